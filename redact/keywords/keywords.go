// Package keywords finds many fixed words in one pass over a text.
package keywords

// An Automaton finds every occurrence of a fixed set of keywords in one pass,
// ignoring ASCII case (Aho–Corasick, as a dense table). With it most text meets
// no regular expression at all.
type Automaton struct {
	class [256]uint8 // byte → column
	width int        // columns
	next  []uint16   // state*width + column → state
	out   [][]uint16 // state → keywords that end there
	Words []string   // by their number
}

// New returns an automaton of words.
func New(words []string) *Automaton {
	a := &Automaton{Words: words, width: 1} // column 0: bytes in no keyword
	for _, w := range words {
		for i := range len(w) {
			if c := Fold(w[i]); a.class[c] == 0 {
				a.class[c] = uint8(a.width)
				a.width++
			}
		}
	}
	for c := byte('A'); c <= 'Z'; c++ {
		a.class[c] = a.class[Fold(c)]
	}
	a.grow()
	for id, w := range words {
		state := 0
		for i := range len(w) {
			at := state*a.width + int(a.class[Fold(w[i])])
			if a.next[at] == 0 {
				to := uint16(len(a.out))
				a.grow()
				a.next[at] = to
			}
			state = int(a.next[at])
		}
		a.out[state] = append(a.out[state], uint16(id))
	}
	a.link()
	return a
}

func (a *Automaton) grow() {
	a.next = append(a.next, make([]uint16, a.width)...)
	a.out = append(a.out, nil)
}

// link turns the tree into a table: a missing edge becomes the edge of the
// longest proper suffix.
func (a *Automaton) link() {
	fail := make([]uint16, len(a.out))
	queue := make([]uint16, 0, len(a.out))
	for col := range a.width {
		if s := a.next[col]; s != 0 {
			queue = append(queue, s)
		}
	}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		a.out[s] = append(a.out[s], a.out[fail[s]]...)
		for col := range a.width {
			edge := &a.next[int(s)*a.width+col]
			suffix := a.next[int(fail[s])*a.width+col]
			if *edge == 0 {
				*edge = suffix
				continue
			}
			fail[*edge] = suffix
			queue = append(queue, *edge)
		}
	}
}

// Find calls hit with each keyword and the byte after its last.
func (a *Automaton) Find(s string, hit func(word uint16, end int)) {
	state, width, next := 0, a.width, a.next
	for i := range len(s) {
		state = int(next[state*width+int(a.class[s[i]])])
		if state == 0 {
			continue
		}
		for _, w := range a.out[state] {
			hit(w, i+1)
		}
	}
}

// Fold is c in lower case, in ASCII.
func Fold(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
