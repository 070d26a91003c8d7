package audit

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"golang.org/x/mod/sumdb/tlog"
)

const (
	maxExportLine = 64 << 20
	maxProblems   = 1000
)

// VerifyExport checks what Export wrote, with nothing but public keys: that each entry
// is what it committed to, that none is missing, and that all of them lead to the
// signed heads, and to those kept elsewhere. It returns an error only when it could not
// read.
func VerifyExport(r io.Reader, o Options) (Report, error) {
	vs, err := newVerifiers(o.PublicKeys)
	if err != nil {
		return Report{}, err
	}
	var rep Report
	x := exported{keys: vs, kept: readKept(o.Head, &rep), rep: &rep}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxExportLine)
	for lines.Scan() && len(rep.Problems) < maxProblems {
		x.n++
		if text := lines.Bytes(); len(bytes.TrimSpace(text)) > 0 {
			x.line(text)
		}
	}
	if err := lines.Err(); err != nil {
		return rep, fmt.Errorf("line %d: %w", x.n+1, err)
	}
	x.close()
	if len(x.logs) == 0 {
		rep.add("?", -1, "there is no signed head in the file: it is no export, or its beginning is gone")
	}
	settle(x.logs, &rep)
	for _, c := range x.logs {
		rep.Logs = append(rep.Logs, c.log)
	}
	judgeAbsent(x.kept, vs, &rep)
	if len(o.Head) == 0 {
		rep.Notes = append(rep.Notes, "no head kept elsewhere was given: that the log was cut back before it was exported would not be noticed")
	}
	return rep, nil
}

// An exported is an export that is being read.
type exported struct {
	keys verifiers
	kept map[string][]head // of logs that did not come yet
	rep  *Report
	n    int // lines read

	logs []*checker
	head head  // of the last of logs
	bare int64 // entries of it that are told by their hash alone
	gap  bool  // entries of it are missing: from there on it has no tree
}

// log is the one that is being read, nil before the first.
func (x *exported) log() *checker {
	if len(x.logs) == 0 {
		return nil
	}
	return x.logs[len(x.logs)-1]
}

func (x *exported) problem(format string, args ...any) {
	writer := "?"
	if c := x.log(); c != nil {
		writer = c.state.Writer
	}
	x.rep.add(writer, -1, fmt.Sprintf("line %d: ", x.n)+fmt.Sprintf(format, args...))
}

func (x *exported) line(text []byte) {
	var l exportLine
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(&l); err != nil || in.More() {
		x.problem("it is no line of an export, or was cut off")
		return
	}
	if !bytes.Equal(l.written(), text) {
		x.problem("it is not as an export has it: who reads it may see more in it, or something else, than what is checked here")
		return
	}
	if l.Head != "" {
		x.close()
		x.open([]byte(l.Head))
		return
	}
	c := x.log()
	switch {
	case c == nil || l.Writer != c.state.Writer:
		x.problem("no head of log %.80q stands before the entry", l.Writer)
	case l.Seq < c.tree.size:
		x.problem("entry %d stands twice, or after a later one", l.Seq)
	default:
		x.entry(c, l)
	}
}

// open begins the log of a head.
func (x *exported) open(text []byte) {
	h, err := parseHead(text)
	if err != nil {
		x.problem("the head is malformed: %v", err)
		h.writer = "?" // so that its entries are not taken for another's
	}
	x.head, x.bare, x.gap = h, 0, false
	c := &checker{keys: x.keys, state: State{Writer: h.writer, Size: h.size}, kept: x.kept[h.writer], rep: x.rep,
		log: LogReport{Writer: h.writer, Erased: []int64{}}, erasing: map[int64][]int64{}}
	delete(x.kept, h.writer)
	for _, o := range x.logs {
		if o.state.Writer == h.writer {
			x.problem("log %s stands twice", h.writer)
		}
	}
	x.logs = append(x.logs, c)
	if err := x.keys.check(h); err != nil {
		c.unsigned(fmt.Sprintf("the log's head is not signed by a given key (another gateway's? then give its keys/audit.pub with --key, too): %v", err))
	}
	c.keptAt() // heads of an empty log
}

// entry takes one into its log's tree.
func (x *exported) entry(c *checker, l exportLine) {
	if l.Seq > c.tree.size {
		c.problem(c.tree.size, fmt.Sprintf("line %d: the entries from here to %d are not in the file", x.n, l.Seq-1))
		c.tree.size, x.gap = l.Seq, true // what follows is still judged, each by its proof
	}
	leaf := l.Leaf
	if leaf == nil {
		r, err := l.row()
		if err != nil {
			c.problem(l.Seq, fmt.Sprintf("line %d: %v", x.n, err))
		} else {
			c.payload(r)
		}
		hash := tlog.RecordHash(r.Leaf())
		if leaf = &hash; tlog.CheckRecord(l.Proof, x.head.size, x.head.root, l.Seq, hash) != nil {
			c.problem(l.Seq, fmt.Sprintf("line %d: the entry is not in the log that the head signs: it was altered, or its proof was", x.n))
		}
	} else {
		x.bare++
	}
	if x.gap {
		c.tree.size++
		return
	}
	if _, err := c.tree.add(*leaf); err != nil {
		c.problem(l.Seq, err.Error())
	}
	c.keptAt()
}

// close ends the log that is being read.
func (x *exported) close() {
	c := x.log()
	if c == nil || c.log.Root != "" {
		return
	}
	c.log.Entries, c.log.Root = c.tree.size, x.head.root.String()
	if x.bare > 0 {
		x.rep.Notes = append(x.rep.Notes, fmt.Sprintf("log %s: %d of its %d entries are told by their hash alone: of another tenant, or taken out of the file", c.state.Writer, x.bare, x.head.size))
	}
	if x.gap {
		c.kept = nil // nothing leads to them
	}
	if c.tree.size != x.head.size {
		c.problem(-1, fmt.Sprintf("the file ends at %d entries, its signed head says %d", c.tree.size, x.head.size))
	} else if root, err := c.tree.root(); !x.gap && err == nil && root != x.head.root {
		c.problem(-1, "the entries do not lead to the signed head")
	}
	for by, seqs := range c.erasing {
		for _, seq := range seqs {
			c.problem(seq, fmt.Sprintf("its payload is gone, and entry %d, which should record that, is not in the file", by))
		}
	}
	x.later(c)
}

// later judges heads kept elsewhere that speak of more entries than the file has: a
// log goes on after it was exported.
func (x *exported) later(c *checker) {
	for _, h := range c.kept {
		if h.time.After(x.head.time) && x.keys.check(h) == nil {
			x.rep.Notes = append(x.rep.Notes, fmt.Sprintf("log %s was exported with %d entries at %s, and has grown since: a head kept elsewhere says %d", h.writer, x.head.size, stamp(x.head.time), h.size))
			c.kept = nil
			return
		}
	}
	c.beyondEnd()
}

// written is the line as Export writes it: with nothing beside a head or a hash, and
// nothing twice or by another spelling of its name, of which another reader than this
// may take what nobody signed.
func (l exportLine) written() []byte {
	switch {
	case l.Head != "":
		l = exportLine{Head: l.Head}
	case l.Leaf != nil:
		l = exportLine{Writer: l.Writer, Seq: l.Seq, Leaf: l.Leaf}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(l); err != nil {
		return nil
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// row is the entry of a line.
func (l exportLine) row() (Row, error) {
	r := Row{Writer: l.Writer, Seq: l.Seq, Tenant: l.Tenant, Time: l.Time, Kind: l.Kind, CallID: l.CallID, Erased: l.ErasedBy}
	c, err := hex.DecodeString(l.Commitment)
	if err != nil || len(c) != len(r.Commitment) {
		return r, errors.New("the commitment is malformed")
	}
	r.Commitment = [32]byte(c)
	if l.Salt != "" {
		if r.Salt, err = hex.DecodeString(l.Salt); err != nil {
			return r, errors.New("the salt is malformed")
		}
	}
	if l.Payload != nil {
		r.Payload = json.RawMessage(*l.Payload)
	}
	return r, nil
}
