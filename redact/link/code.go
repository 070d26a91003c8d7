package link

import "strings"

// Code and elements bind tighter than brackets: in "![a `]` b](x)" the image has one
// pair of them, not two. But what is code hangs on where a paragraph ends, and of that
// clients think differently. So each text is read in every way.

// readings are where code and elements end at the latest: at once, at the end of a
// paragraph, or of a line.
var readings = [...]string{"", "\n\n", "\n"}

// blanked is a text of the same length, without the brackets in code and elements,
// neither of which goes on over end.
func blanked(text, end string) string {
	if end == "" || !strings.Contains(text, "![") || !strings.ContainsAny(text, "`<") {
		return text
	}
	var out strings.Builder
	budget := 8*len(text) + 4<<10 // of steps through elements that do not close
	for block := range strings.SplitAfterSeq(text, end) {
		out.WriteString(blankedBlock(block, &budget))
	}
	return out.String()
}

var blanks = strings.NewReplacer("[", " ", "]", " ", `\`, " ")

func blankedBlock(text string, budget *int) string {
	var out strings.Builder
	ticks, done := lastTicks(text), 0
	for i := 0; i < len(text); {
		next, within := i+1, false
		switch text[i] {
		case '\\':
			next = i + 2
		case '`':
			n := ticksAt(text, i)
			if next = i + n; ticks[n] > i {
				next, within = closed(text, next, n), true
			}
		case '<':
			if n := angled(text[i:], budget); n > 0 {
				next, within = i+n, true
			}
		}
		if within {
			out.WriteString(text[done:i] + blanks.Replace(text[i:next]))
			done = next
		}
		i = next
	}
	return out.String() + text[done:]
}

// lastTicks is where the last run of so many backticks begins, by their number.
func lastTicks(text string) map[int]int {
	last := map[int]int{}
	for i := 0; i < len(text); i++ {
		if n := ticksAt(text, i); n > 0 {
			last[n] = i
			i += n
		}
	}
	return last
}

func ticksAt(text string, i int) int {
	return len(text[i:]) - len(strings.TrimLeft(text[i:], "`"))
}

// closed is where code ends that a run of n backticks before i began. There is one.
func closed(text string, i, n int) int {
	for {
		i += strings.IndexByte(text[i:], '`')
		m := ticksAt(text, i)
		if i += m; m == n {
			return i
		}
	}
}

// angled is how long the element or address in angle brackets at the beginning of
// s is, 0 if it is none.
func angled(s string, budget *int) int {
	if len(s) < 3 || !letter(s[1]) && strings.IndexByte("/!?", s[1]) < 0 {
		return 0
	}
	quote := byte(0)
	for i := 1; i < len(s) && *budget > 0; i++ {
		switch c := s[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '>':
			return i + 1
		case (c == '"' || c == '\'') && strings.HasSuffix(strings.TrimRight(s[:i], " \n"), "="):
			quote = c
		}
		*budget--
	}
	return 0
}
