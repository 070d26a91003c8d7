package redact

import (
	"slices"
	"strconv"

	"sallyport.dev/sallyport/redact/visible"
)

// A tally counts what was done to a document. It never holds a secret.
type tally struct {
	masks    []count
	hidden   visible.Counts
	repaired bool // invalid UTF-8 was replaced
	cut      bool
	instruct bool
	notes    []string
}

type count struct {
	name string
	n    int
}

func (t *tally) masked(name string) {
	for i := range t.masks {
		if t.masks[i].name == name {
			t.masks[i].n++
			return
		}
	}
	t.masks = append(t.masks, count{name, 1})
}

// findings lists what was done, for the record and for people:
// "masked: postgres password ×2".
func (t *tally) findings() []string {
	var out []string
	add := func(s string, n int) {
		if n > 1 {
			s += " ×" + strconv.Itoa(n)
		}
		out = append(out, s)
	}
	for _, c := range t.masks {
		add("masked: "+c.name, c.n)
	}
	for k, n := range t.hidden {
		if n > 0 {
			add("escaped: "+visible.Kind(k).String(), n)
		}
	}
	if t.repaired {
		add("repaired: invalid UTF-8", 1)
	}
	if t.cut {
		add("truncated", 1)
	}
	if t.instruct {
		add("flag: instruction-like text", 1)
	}
	return append(out, slices.Compact(t.notes)...)
}
