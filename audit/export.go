package audit

import (
	"bufio"
	"bytes"
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

// An exportLine is one line of an export: a head, or an entry with the proof
// that it is part of the log that the latest head line of its writer signs.
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
}

// Export writes every entry of tenant ("" = all) as JSON lines, each with its
// inclusion proof, after a line with the signed head of its log.
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
				return nil
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

// VerifyExport checks each line of an export against its proof and the signed
// head, with nothing but the public keys. It returns how many entries hold.
func VerifyExport(r io.Reader, publicKeys []string) (int, error) {
	vs, err := newVerifiers(publicKeys)
	if err != nil {
		return 0, err
	}
	var h head
	in := bufio.NewReader(r)
	for n, line := 0, 1; ; line++ {
		text, err := in.ReadBytes('\n')
		if len(bytes.TrimSpace(text)) == 0 {
			if errors.Is(err, io.EOF) {
				return n, nil
			}
			return n, fmt.Errorf("line %d: %w", line, err)
		}
		var l exportLine
		if err := json.Unmarshal(text, &l); err != nil {
			return n, fmt.Errorf("line %d is not an export line: %w", line, err)
		}
		if l.Head != "" {
			if h, err = parseHead([]byte(l.Head)); err == nil {
				err = vs.check(h)
			}
		} else if err = l.check(h); err == nil {
			n++
		}
		if err != nil {
			return n, fmt.Errorf("line %d: %w", line, err)
		}
	}
}

func (l exportLine) check(h head) error {
	r := Row{Writer: l.Writer, Seq: l.Seq, Tenant: l.Tenant, Time: l.Time, Kind: l.Kind, CallID: l.CallID}
	c, err := hex.DecodeString(l.Commitment)
	if err != nil || len(c) != len(r.Commitment) {
		return errors.New("the commitment is malformed")
	}
	r.Commitment = [32]byte(c)
	if r.Salt, err = hex.DecodeString(l.Salt); err != nil {
		return errors.New("the salt is malformed")
	}
	if l.Payload != nil {
		r.Payload = json.RawMessage(*l.Payload)
	}
	if r.Writer != h.writer {
		return fmt.Errorf("no head of log %s stands before the entry", r.Writer)
	}
	if err := tlog.CheckRecord(l.Proof, h.size, h.root, r.Seq, tlog.RecordHash(r.Leaf())); err != nil {
		return fmt.Errorf("entry %d is not in the log: %w", r.Seq, err)
	}
	if (l.Payload != nil || l.ErasedBy == 0) && !r.Opens() {
		return fmt.Errorf("entry %d: the payload is not what it committed to", r.Seq)
	}
	return nil
}
