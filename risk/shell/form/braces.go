package form

import "mvdan.cc/sh/v3/syntax"

const maxBraces = 64 // words out of one word

// Braces returns the alternatives of {a,b} in a word. Sequences such as {1..9}
// stand for one of their members. It reports false for too many.
func Braces(word *syntax.Word) ([][]syntax.WordPart, bool) {
	copied := &syntax.Word{Parts: append([]syntax.WordPart(nil), word.Parts...)}
	syntax.SplitBraces(copied)
	return alternatives(copied.Parts, 0)
}

func alternatives(parts []syntax.WordPart, depth int) ([][]syntax.WordPart, bool) {
	out := [][]syntax.WordPart{nil}
	if depth > 8 {
		return nil, false
	}
	for _, part := range parts {
		var options [][]syntax.WordPart
		b, ok := part.(*syntax.BraceExp)
		switch {
		case !ok:
			for i := range out {
				out[i] = append(out[i], part)
			}
			continue
		case b.Sequence:
			options = [][]syntax.WordPart{b.Elems[0].Parts}
		default:
			for _, e := range b.Elems {
				inner, ok := alternatives(e.Parts, depth+1)
				if !ok {
					return nil, false
				}
				options = append(options, inner...)
			}
		}
		if len(out)*len(options) > maxBraces {
			return nil, false
		}
		next := make([][]syntax.WordPart, 0, len(out)*len(options))
		for _, o := range out {
			for _, p := range options {
				next = append(next, append(append([]syntax.WordPart(nil), o...), p...))
			}
		}
		out = next
	}
	return out, true
}
