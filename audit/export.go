package audit

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"sallyport.dev/sallyport"
)

// An exportLine is one line of an export: a head; or an entry with the proof that it
// is part of the log that the head before it signs; or, of an entry of another tenant,
// its hash alone, so that none can be missing unseen.
type exportLine struct {
	Head string `json:"head,omitempty"`

	Writer     string              `json:"writer,omitempty"`
	Seq        int64               `json:"seq"`
	Tenant     string              `json:"tenant,omitempty"`
	Time       time.Time           `json:"time,omitzero"`
	Kind       sallyport.EntryKind `json:"kind,omitempty"`
	CallID     string              `json:"call_id,omitempty"`
	Commitment string              `json:"commitment,omitempty"` // hex
	Salt       string              `json:"salt,omitempty"`       // hex
	Payload    *string             `json:"payload,omitempty"`    // the exact text; null once erased
	ErasedBy   int64               `json:"erased_by,omitempty"`
	Proof      []tlog.Hash         `json:"proof,omitempty"` // base64, RFC 6962 audit path
	Leaf       *tlog.Hash          `json:"leaf,omitempty"`  // base64, of another tenant's entry
}

// Export writes every entry of tenant ("" = all) as JSON lines, each with its
// inclusion proof, after a line with the signed head of its log. Of other tenants'
// entries it writes that they are there.
func Export(ctx context.Context, src Source, w io.Writer, tenant string) error {
	logs, err := src.Logs(ctx)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	for _, st := range logs {
		if err := enc.Encode(exportLine{Head: string(st.Head)}); err != nil {
			return err
		}
		err := src.Rows(ctx, st.Writer, 0, func(r Row) error {
			if r.Seq >= st.Size {
				return errEnough
			}
			if tenant != "" && r.Tenant != tenant {
				leaf := tlog.RecordHash(r.Leaf())
				return enc.Encode(exportLine{Writer: r.Writer, Seq: r.Seq, Leaf: &leaf})
			}
			proof, err := tlog.ProveRecord(st.Size, r.Seq, hashReader{ctx, src, st.Writer})
			if err != nil {
				return fmt.Errorf("prove entry %d of log %s: %w", r.Seq, st.Writer, err)
			}
			return enc.Encode(lineOf(r, proof))
		})
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
	}
	return out.Flush()
}

func lineOf(r Row, proof tlog.RecordProof) exportLine {
	l := exportLine{Writer: r.Writer, Seq: r.Seq, Tenant: r.Tenant, Time: r.Time, Kind: r.Kind, CallID: r.CallID,
		Commitment: hex.EncodeToString(r.Commitment[:]), Salt: hex.EncodeToString(r.Salt), ErasedBy: r.Erased, Proof: proof}
	if r.Payload != nil {
		p := string(r.Payload)
		l.Payload = &p
	}
	return l
}

type hashReader struct {
	ctx    context.Context //nolint:containedctx // tlog's reader takes none
	src    Source
	writer string
}

func (h hashReader) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	have, err := h.src.Hashes(h.ctx, h.writer, indexes)
	if err != nil {
		return nil, err
	}
	out := make([]tlog.Hash, len(indexes))
	for i, n := range indexes {
		v, ok := have[n]
		if !ok {
			return nil, fmt.Errorf("stored hash %d is missing", n)
		}
		out[i] = v
	}
	return out, nil
}
