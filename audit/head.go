package audit

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// A head says: this log had this size, and this was the root of all of it.
type head struct {
	writer string
	size   int64
	root   tlog.Hash
	time   time.Time
	note   []byte
}

func (k *Key) sign(size int64, root tlog.Hash, now time.Time) ([]byte, error) {
	text := fmt.Sprintf("%s%s\n%d\n%s\n%s\n", originPrefix, k.writer, size,
		base64.StdEncoding.EncodeToString(root[:]), now.UTC().Format(time.RFC3339Nano))
	return note.Sign(&note.Note{Text: text}, k.signer)
}

// parseHead reads a head without checking its signature.
func parseHead(msg []byte) (head, error) {
	lines := strings.Split(string(msg), "\n")
	if len(lines) < 6 {
		return head{}, errors.New("a head has four lines, an empty one and a signature")
	}
	h := head{note: msg}
	var ok bool
	if h.writer, ok = strings.CutPrefix(lines[0], originPrefix); !ok {
		return head{}, fmt.Errorf("the first line %.80q does not begin with %s", lines[0], originPrefix)
	}
	var err error
	if h.size, err = strconv.ParseInt(lines[1], 10, 64); err != nil || h.size < 0 || lines[1] != strconv.FormatInt(h.size, 10) {
		return head{}, fmt.Errorf("the size %.40q is not a number", lines[1])
	}
	root, err := base64.StdEncoding.Strict().DecodeString(lines[2])
	if err != nil || len(root) != tlog.HashSize {
		return head{}, fmt.Errorf("the root %.80q is not a hash", lines[2])
	}
	h.root = tlog.Hash(root)
	if h.time, err = time.Parse(time.RFC3339Nano, lines[3]); err != nil {
		return head{}, fmt.Errorf("the time %.40q is not RFC 3339", lines[3])
	}
	if lines[4] != "" {
		return head{}, fmt.Errorf("unexpected line %.80q", lines[4])
	}
	return h, nil
}

// verifiers are the public keys that a reader trusts.
type verifiers struct{ list note.Verifiers }

func newVerifiers(keys []string) (verifiers, error) {
	var vs []note.Verifier
	for _, k := range keys {
		v, err := note.NewVerifier(strings.TrimSpace(k))
		if err != nil {
			return verifiers{}, fmt.Errorf("the public key %.80q is malformed: %w", k, err)
		}
		vs = append(vs, v)
	}
	return verifiers{note.VerifierList(vs...)}, nil
}

// check reports why h is not signed by its own writer's trusted key, or nil.
func (v verifiers) check(h head) error {
	n, err := note.Open(h.note, v.list)
	if err != nil {
		return err
	}
	for _, s := range n.Sigs {
		if s.Name == originPrefix+h.writer {
			return nil
		}
	}
	return fmt.Errorf("signed by another log's key")
}

// splitHeads cuts a file of heads into single ones. torn counts the pieces that
// a crash in mid-write left behind.
func splitHeads(text []byte) (heads [][]byte, torn int) {
	start, signed := 0, false
	end := func(at int) {
		if piece := text[start:at]; signed && bytes.HasSuffix(piece, []byte("\n")) {
			heads = append(heads, piece)
		} else if len(bytes.TrimSpace(piece)) > 0 {
			torn++
		}
		start, signed = at, false
	}
	for pos := 0; pos < len(text); {
		next := len(text)
		if i := bytes.IndexByte(text[pos:], '\n'); i >= 0 {
			next = pos + i + 1
		}
		line := text[pos:next]
		isSig := bytes.Contains(line, []byte("— "))
		if pos > start && (signed && !isSig || bytes.HasPrefix(line, []byte(originPrefix))) {
			end(pos)
		}
		signed = signed || isSig
		pos = next
	}
	end(len(text))
	return heads, torn
}

// headFile is the second place: a file that only ever grows.
type headFile struct {
	mu     sync.Mutex // one writer; those who wait find their work done
	f      *os.File
	synced int64

	latestMu sync.Mutex
	latest   head
}

func openHeadFile(path string) (*headFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the file for audit heads (audit.heads): %w", err)
	}
	if err := endLine(f); err != nil {
		return nil, errors.Join(fmt.Errorf("mend the file for audit heads: %w", err), f.Close())
	}
	return &headFile{f: f, synced: -1}, nil
}

// endLine ends a line that a crash tore, so that the next head begins its own.
func endLine(f *os.File) error {
	st, err := f.Stat()
	if err != nil || st.Size() == 0 {
		return err
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, st.Size()-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err = f.WriteString("\n")
	return err
}

// last returns the last head near the end of the file that ok accepts, or none.
func (h *headFile) last(ok func(head) bool) (head, error) {
	st, err := h.f.Stat()
	if err != nil {
		return head{}, err
	}
	const tail = 256 << 10
	from := max(0, st.Size()-tail)
	text := make([]byte, st.Size()-from)
	if _, err := h.f.ReadAt(text, from); err != nil && err != io.EOF {
		return head{}, fmt.Errorf("read the file for audit heads: %w", err)
	}
	notes, _ := splitHeads(text)
	for i := len(notes) - 1; i >= 0; i-- {
		if l, err := parseHead(notes[i]); err == nil && ok(l) {
			return l, nil
		}
	}
	return head{}, nil
}

// publish returns when a head at least as large as size is on disk.
func (h *headFile) publish(size int64, msg []byte) error {
	h.latestMu.Lock()
	if size >= h.latest.size {
		h.latest = head{size: size, note: msg}
	}
	h.latestMu.Unlock()

	h.mu.Lock()
	defer h.mu.Unlock()
	if h.synced >= size {
		return nil
	}
	h.latestMu.Lock()
	l := h.latest
	h.latestMu.Unlock()
	if _, err := h.f.Write(l.note); err != nil {
		return err
	}
	if err := h.f.Sync(); err != nil {
		return err
	}
	h.synced = l.size
	return nil
}

// Heads joins kept heads from several places into one Options.Head.
func Heads(texts ...[]byte) []byte {
	for i, t := range texts {
		if len(t) > 0 && !bytes.HasSuffix(t, []byte("\n")) {
			texts[i] = append(bytes.Clone(t), '\n')
		}
	}
	return bytes.Join(texts, nil)
}

func stamp(t time.Time) string { return t.Format("2006-01-02 15:04:05Z") }
