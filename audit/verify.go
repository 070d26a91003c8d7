package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"

	"golang.org/x/mod/sumdb/tlog"

	"sallyport.dev/sallyport"
)

// Options say what Verify holds the log against.
type Options struct {
	// PublicKeys are the verifier keys of all logs in the store; they should
	// come from somewhere else than the data folder.
	PublicKeys []string

	// Head is the text of one or more heads kept elsewhere (the file of
	// audit.heads, or one note). Without it a log that was cut back to an
	// older head looks whole.
	Head []byte
}

// A Problem is one thing that is wrong with a log.
type Problem struct {
	Writer string `json:"writer"`
	Seq    int64  `json:"seq"` // of the entry, -1 if it is about the whole log
	What   string `json:"what"`
}

func (p Problem) String() string {
	if p.Seq < 0 {
		return fmt.Sprintf("log %s: %s", p.Writer, p.What)
	}
	return fmt.Sprintf("log %s, entry %d: %s", p.Writer, p.Seq, p.What)
}

// A LogReport tells what was checked of one log.
type LogReport struct {
	Writer    string  `json:"writer"`
	Entries   int64   `json:"entries"`
	Root      string  `json:"root"`       // as computed from the entries
	KeptHeads int     `json:"kept_heads"` // heads from elsewhere that the entries lead to
	Erased    []int64 `json:"erased"`     // entries whose payload was erased, properly
}

// A Report is the result of Verify.
type Report struct {
	Logs     []LogReport `json:"logs"`
	Problems []Problem   `json:"problems"`
	Notes    []string    `json:"notes"` // worth knowing, but not wrong
}

// OK reports whether nothing is wrong.
func (r Report) OK() bool { return len(r.Problems) == 0 }

// Verify recomputes every leaf and the whole tree of every log from its rows,
// and holds them against payloads, stored hashes, the signed head and the
// heads kept elsewhere. It returns an error only when it could not read;
// what is wrong with the log is in the report. It changes nothing and may run
// while a gateway appends.
func Verify(ctx context.Context, src Source, o Options) (Report, error) {
	vs, err := newVerifiers(o.PublicKeys)
	if err != nil {
		return Report{}, err
	}
	var rep Report
	kept := readKept(o.Head, &rep)
	logs, err := src.Logs(ctx)
	if err != nil {
		return rep, err
	}
	var checked []*checker
	for _, st := range logs {
		c := &checker{src: src, keys: vs, state: st, kept: kept[st.Writer], rep: &rep,
			log: LogReport{Writer: st.Writer, Erased: []int64{}}, erasing: map[int64][]int64{}}
		if err := c.run(ctx); err != nil {
			return rep, err
		}
		rep.Logs = append(rep.Logs, c.log)
		checked = append(checked, c)
		delete(kept, st.Writer)
	}
	settle(checked, &rep)
	judgeAbsent(kept, vs, &rep)
	if len(o.Head) == 0 {
		rep.Notes = append(rep.Notes, "no head kept elsewhere was given: a log cut back to an older head would not be noticed")
	}
	return rep, nil
}

// judgeAbsent judges heads kept elsewhere of logs that are not there.
func judgeAbsent(kept map[string][]head, vs verifiers, rep *Report) {
	for writer, hs := range kept {
		last := hs[len(hs)-1]
		if err := vs.check(last); err != nil {
			rep.add(writer, -1, fmt.Sprintf("a head kept elsewhere is not signed by a given key: %v", err))
		} else if last.size > 0 {
			rep.add(writer, -1, fmt.Sprintf("the log is gone: a head kept elsewhere says it had %d entries", last.size))
		}
	}
}

func (r *Report) add(writer string, seq int64, what string) {
	r.Problems = append(r.Problems, Problem{writer, seq, what})
}

// readKept returns the kept heads by writer, smallest first.
func readKept(text []byte, rep *Report) map[string][]head {
	kept := map[string][]head{}
	notes, torn := splitHeads(text)
	for _, n := range notes {
		h, err := parseHead(n)
		if err != nil { // what a crash cuts off is its end, and the signature is the end
			rep.add("?", -1, fmt.Sprintf("a head kept elsewhere was altered: %v", err))
			continue
		}
		kept[h.writer] = append(kept[h.writer], h)
	}
	if torn > 0 {
		rep.Notes = append(rep.Notes, fmt.Sprintf("%d of the heads kept elsewhere are incomplete (a crash in mid-write leaves such) and were not used", torn))
	}
	if len(text) > 0 && len(kept) == 0 {
		rep.add("?", -1, "there is no head in what was given as kept elsewhere")
	}
	for _, hs := range kept {
		sort.SliceStable(hs, func(i, j int) bool { return hs[i].size < hs[j].size })
	}
	return kept
}

// A checker verifies one log.
type checker struct {
	src   Source
	keys  verifiers
	state State
	kept  []head
	rep   *Report
	log   LogReport

	tree    edge
	good    int64             // size of the last kept head that the entries lead to
	erasing map[int64][]int64 // entry that must record erasures → entries erased
	pending []tlog.Hash       // recomputed hashes not yet held against the stored ones
	first   int64             // index of pending[0]
	foreign []string          // what is not signed by a given key
	retires []retired         // other logs, by entries of this one
	suspect []int64           // entries whose stored hash is not what the row gives, ascending
	inner   []node            // the same for hashes above the leaves
}

type node struct {
	level int
	n     int64
}

func (c *checker) run(ctx context.Context) error {
	c.keptAt() // heads of an empty log
	err := c.src.Rows(ctx, c.state.Writer, 0, func(r Row) error {
		if r.Seq >= c.state.Size {
			return c.beyond(ctx, r)
		}
		if err := c.fill(ctx, r.Seq); err != nil {
			return err
		}
		c.payload(r)
		return c.extend(ctx, tlog.RecordHash(r.Leaf()))
	})
	if err == nil || errors.Is(err, errEnough) {
		err = c.fill(ctx, c.state.Size)
	}
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	if err := c.stored(ctx); err != nil {
		return err
	}
	c.finish()
	return nil
}

var errEnough = errors.New("enough")

func (c *checker) problem(seq int64, what string) { c.rep.add(c.state.Writer, seq, what) }

// beyond judges a row after the size that the head speaks of: a gateway that is
// just appending, or a row that somebody put there.
func (c *checker) beyond(ctx context.Context, r Row) error {
	logs, err := c.src.Logs(ctx)
	if err != nil {
		return err
	}
	for _, st := range logs {
		if st.Writer == c.state.Writer && r.Seq < st.Size {
			return errEnough
		}
	}
	c.problem(r.Seq, "the entry lies beyond the log's signed head: it was put there by another way, or the head was set back")
	return errEnough
}

// maxMissing bounds how many missing rows are stood in for.
const maxMissing = 1 << 20

// fill stands in for missing rows with their stored hashes, so that what
// follows them can still be judged.
func (c *checker) fill(ctx context.Context, until int64) error {
	seq := c.tree.size
	switch missing := until - seq; {
	case missing <= 0:
		return nil
	case missing == 1:
		c.problem(seq, "the entry is missing")
	default:
		c.problem(seq, fmt.Sprintf("%d entries, %d to %d, are missing", missing, seq, until-1))
		if missing > maxMissing {
			return errEnough
		}
	}
	for ; seq < until; seq++ {
		i := tlog.StoredHashIndex(0, seq)
		have, err := c.src.Hashes(ctx, c.state.Writer, []int64{i})
		if err != nil {
			return err
		}
		if err := c.extend(ctx, have[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) payload(r Row) {
	for _, what := range c.erasing[r.Seq] {
		if !recordsErasure(r, what) {
			c.problem(what, fmt.Sprintf("its payload is gone, but entry %d does not record an erasure of it", r.Seq))
		}
	}
	delete(c.erasing, r.Seq)
	switch {
	case r.Erased > r.Seq && r.Payload == nil && r.Salt == nil:
		c.log.Erased = append(c.log.Erased, r.Seq)
		c.erasing[r.Erased] = append(c.erasing[r.Erased], r.Seq)
	case r.Payload == nil && r.Salt == nil:
		c.problem(r.Seq, "its payload is missing, and no entry records that it was erased")
	case !r.Opens():
		c.problem(r.Seq, "its payload is not what the entry committed to: payload, salt or commitment was altered")
	default:
		c.retirement(r)
	}
}

// An Erasure is the detail of an "audit erase" change.
type Erasure struct {
	Writer string `json:"writer"`
	Seq    int64  `json:"seq"`
}

// EraseAction is the action of the admin entry that records an erasure.
const EraseAction = "audit erase"

func recordsErasure(r Row, erased int64) bool {
	var c struct {
		Action string  `json:"action"`
		Detail Erasure `json:"detail"`
	}
	return r.Kind == sallyport.EntryAdmin && json.Unmarshal(r.Payload, &c) == nil &&
		c.Action == EraseAction && c.Detail == Erasure{r.Writer, erased}
}

func (c *checker) extend(ctx context.Context, leaf tlog.Hash) error {
	if len(c.pending) == 0 {
		c.first = tlog.StoredHashCount(c.tree.size)
	}
	hs, err := c.tree.add(leaf)
	if err != nil {
		return err
	}
	c.pending = append(c.pending, hs...)
	c.keptAt()
	if len(c.pending) >= 512 {
		return c.stored(ctx)
	}
	return nil
}

// keptAt holds the tree against the kept heads of its present size.
func (c *checker) keptAt() {
	for len(c.kept) > 0 && c.kept[0].size == c.tree.size {
		h := c.kept[0]
		c.kept = c.kept[1:]
		if root, err := c.tree.root(); err == nil && root == h.root {
			c.log.KeptHeads++
			c.good = h.size
			if len(c.kept) > 0 {
				continue // a later head stands for this one too
			}
		} else if c.keys.check(h) == nil {
			c.problem(-1, fmt.Sprintf("the first %d entries do not lead to the head kept elsewhere at %s: one of the entries %d to %d was altered",
				h.size, stamp(h.time), c.good, h.size-1))
			c.good = h.size // what follows is another finding
			continue
		}
		if err := c.keys.check(h); err != nil {
			c.unsigned(fmt.Sprintf("a head kept elsewhere (size %d) is not signed by a given key: %v", h.size, err))
		}
	}
}

// stored holds the recomputed hashes against the stored ones.
func (c *checker) stored(ctx context.Context) error {
	idx := make([]int64, len(c.pending))
	for i := range idx {
		idx[i] = c.first + int64(i)
	}
	have, err := c.src.Hashes(ctx, c.state.Writer, idx)
	if err != nil {
		return err
	}
	for i, want := range c.pending {
		level, n := tlog.SplitStoredHashIndex(idx[i])
		if got, ok := have[idx[i]]; !ok || got != want {
			if level == 0 {
				c.suspect = append(c.suspect, n)
			} else {
				c.inner = append(c.inner, node{level, n})
			}
		}
	}
	c.pending = c.pending[:0]
	return nil
}

// blamed returns the suspect entries, and the first entry under each wrong
// inner hash that no suspect explains.
func (c *checker) blamed() []int64 {
	out := slices.Clone(c.suspect)
	for _, in := range c.inner {
		lo, hi := in.n<<in.level, (in.n+1)<<in.level
		if i, _ := slices.BinarySearch(c.suspect, lo); i == len(c.suspect) || c.suspect[i] >= hi {
			out = append(out, lo)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// finish holds the tree against the signed head and says which entries are to
// blame: where the rows lead to the head, it is the stored hashes that are wrong.
func (c *checker) finish() {
	root, _ := c.tree.root() // the edge holds all that it needs
	c.log.Entries, c.log.Root = c.tree.size, root.String()
	h, err := parseHead(c.state.Head)
	switch {
	case err != nil:
		c.problem(-1, fmt.Sprintf("the log's head is malformed: %v", err))
	case h.writer != c.state.Writer || h.size != c.state.Size:
		c.problem(-1, fmt.Sprintf("the log says %d entries, its head says %d of %s", c.state.Size, h.size, h.writer))
	default:
		if err := c.keys.check(h); err != nil {
			c.unsigned(fmt.Sprintf("the log's head is not signed by a given key (another gateway's? then append its keys/audit.pub to keys/audit-others.pub here; else it was rewritten and signed anew): %v", err))
		}
	}
	rowsHold := err == nil && h.root == root
	blamed := c.blamed()
	for _, seq := range blamed {
		if rowsHold {
			c.problem(seq, "the stored hash of the entry, or one above it, was altered; the entry itself is intact")
		} else {
			c.problem(seq, "the entry was altered: its hash is not the one that was stored with it")
		}
	}
	if err == nil && !rowsHold && len(blamed) == 0 {
		c.problem(-1, fmt.Sprintf("the entries do not lead to the signed head: an entry from %d on was altered together with its hashes", c.good))
	}
	for by, seqs := range c.erasing {
		for _, seq := range seqs {
			c.problem(seq, fmt.Sprintf("its payload is gone, and entry %d, which should record that, is missing", by))
		}
	}
	c.beyondEnd()
}

// beyondEnd judges kept heads that speak of more entries than there are.
func (c *checker) beyondEnd() {
	for _, h := range c.kept {
		if err := c.keys.check(h); err != nil {
			c.unsigned(fmt.Sprintf("a head kept elsewhere (size %d) is not signed by a given key: %v", h.size, err))
			continue
		}
		c.problem(-1, fmt.Sprintf("the log was cut back: it has %d entries, a head kept elsewhere at %s says %d",
			c.tree.size, stamp(h.time), h.size))
		return
	}
}
