package audit

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
)

// RetireAction is the action of the admin entry that retires the log of a
// gateway that is gone for good.
const RetireAction = "audit retire"

// A Retirement is the detail of such an entry: where the log ended. From then on
// the log that holds the entry vouches for that one, in place of its key.
type Retirement struct {
	Writer  string `json:"writer"`
	Entries int64  `json:"entries"`
	Root    string `json:"root"`
}

type retired struct {
	Retirement
	seq int64
	by  string
}

// RetirementOf is where a log ends by its head, of which no signature is checked.
func RetirementOf(st State) (Retirement, error) {
	h, err := parseHead(st.Head)
	if err == nil && (h.writer != st.Writer || h.size != st.Size) {
		err = fmt.Errorf("the log says %d entries, its head says %d of %s", st.Size, h.size, h.writer)
	}
	return Retirement{Writer: st.Writer, Entries: st.Size, Root: h.root.String()}, err
}

// retirement takes note of an entry that retires another log.
func (c *checker) retirement(r Row) {
	if r.Kind != sallyport.EntryAdmin || !strings.Contains(string(r.Payload), RetireAction) {
		return
	}
	var v struct {
		Action string     `json:"action"`
		By     string     `json:"by"`
		Detail Retirement `json:"detail"`
	}
	if json.Unmarshal(r.Payload, &v) == nil && v.Action == RetireAction && v.Detail.Writer != c.state.Writer {
		c.retires = append(c.retires, retired{v.Detail, r.Seq, v.By})
	}
}

func (c *checker) unsigned(what string) { c.foreign = append(c.foreign, what) }

// settle judges logs that were retired by what was written down of them, and
// says of the others what is not signed. A log speaks for another only if
// nothing is wrong with it and it is signed, or is itself spoken for.
func settle(all []*checker, rep *Report) {
	told := map[string]bool{}
	for more := true; more; {
		more = false
		for _, c := range all {
			if told["by "+c.state.Writer] || len(c.foreign) > 0 || slices.ContainsFunc(rep.Problems, func(p Problem) bool { return p.Writer == c.state.Writer }) {
				continue
			}
			told["by "+c.state.Writer], more = true, true
			for _, r := range c.retires {
				if !told[r.Writer] {
					told[r.Writer] = true
					r.judge(all, c.state.Writer, rep)
				}
			}
		}
	}
	for _, c := range all {
		for _, what := range c.foreign {
			rep.add(c.state.Writer, -1, what)
		}
	}
}

// judge holds a log against its retirement.
func (r retired) judge(all []*checker, in string, rep *Report) {
	where := fmt.Sprintf("%s retired it with %d entries (log %s, entry %d)", r.by, r.Entries, in, r.seq)
	i := slices.IndexFunc(all, func(c *checker) bool { return c.state.Writer == r.Writer })
	if i < 0 {
		rep.add(r.Writer, -1, "the log is gone: "+where)
		return
	}
	switch c := all[i]; {
	case c.log.Entries < r.Entries || c.state.Size < r.Entries:
		rep.add(r.Writer, -1, fmt.Sprintf("the log was cut back to %d entries: %s", min(c.log.Entries, c.state.Size), where))
	case c.log.Entries > r.Entries || c.state.Size > r.Entries:
		rep.add(r.Writer, -1, fmt.Sprintf("the log has %d entries, some of them written later: %s", max(c.log.Entries, c.state.Size), where))
	case c.log.Root != r.Root:
		rep.add(r.Writer, -1, "an entry was altered since: "+where)
	default:
		c.foreign = nil
		rep.Notes = append(rep.Notes, fmt.Sprintf("log %s is retired, and whole: %s", r.Writer, where))
	}
}
