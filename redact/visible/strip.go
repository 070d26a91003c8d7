package visible

// Strip returns s without hidden characters and terminal sequences, and for
// each byte of the result its place in s; at is nil if there are none.
func Strip(s string) (bare string, at []int) {
	i := Index(s)
	if i < 0 {
		return s, nil
	}
	at = make([]int, i, len(s))
	for j := range at {
		at[j] = j
	}
	b := append(make([]byte, 0, len(s)), s[:i]...)
	for i < len(s) {
		r, size, kind := At(s, i)
		if kind == None || LineEnd(s, i) {
			for j := range size {
				at = append(at, i+j)
			}
			b = append(b, s[i:i+size]...)
			i += size
			continue
		}
		i += size
		if r == 0x1b || r == 0x9b {
			i = sequence(s, i, r)
		}
	}
	return string(b), at
}

const maxSequence = 64

// sequence returns the end of the terminal sequence whose first character
// ended before i. The text inside an operating system command stays.
func sequence(s string, i int, r rune) int {
	if r == 0x1b {
		if i >= len(s) || s[i] < 0x20 || s[i] > 0x7e {
			return i
		}
		i++
		if s[i-1] != '[' {
			return i
		}
	}
	for n := 0; i < len(s) && n < maxSequence; n++ {
		if c := s[i]; c >= 0x40 && c <= 0x7e {
			return i + 1
		} else if c < 0x20 || c > 0x7e {
			return i
		}
		i++
	}
	return i
}
