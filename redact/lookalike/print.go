package lookalike

import "strings"

// Print is a name as print shows it: signs that look the same are one. Unlike a
// Skeleton it keeps separators and most of the letters' forms.
func Print(name string) string {
	return strings.NewReplacer("rn", "m", "vv", "w").Replace(strings.Map(func(r rune) rune {
		switch r {
		case 'I', 'l', '1', '|', '!':
			return 'l'
		case '0', 'O':
			return 'o'
		}
		if r >= 'A' && r <= 'Z' {
			r += 'a' - 'A'
		}
		if r == 'i' { // beside l it is told apart only in some types
			return 'l'
		}
		return r
	}, Read(name)))
}

// Passes reports whether one name passes for the other in print though it is
// another, in more than case.
func Passes(a, b string) bool {
	return a != b && !strings.EqualFold(a, b) && Print(a) == Print(b)
}
