package word

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

var ansiEscapes = map[byte]byte{
	'a': 7, 'b': 8, 'e': 27, 'E': 27, 'f': 12, 'n': 10, 'r': 13, 't': 9, 'v': 11, '\\': '\\', '\'': '\'', '"': '"', '?': '?',
}

// ANSI decodes what stands in $'…'.
func ANSI(s string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 >= len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		if c, ok := ansiEscapes[s[i]]; ok {
			b.WriteByte(c)
			continue
		}
		base, most, from := 16, 2, i+1
		switch c := s[i]; {
		case c >= '0' && c <= '7':
			base, most, from = 8, 3, i
		case c == 'x':
		case c == 'u':
			most = 4
		case c == 'U':
			most = 8
		default:
			return b.String(), false
		}
		end := from
		for end < len(s) && end-from < most && digit(s[end], base) {
			end++
		}
		n, err := strconv.ParseUint(s[from:end], base, 32)
		if err != nil || n == 0 {
			return b.String(), false
		}
		if s[i] == 'u' || s[i] == 'U' {
			if !utf8.ValidRune(rune(n)) {
				return b.String(), false
			}
			b.WriteRune(rune(n))
		} else {
			b.WriteByte(byte(n))
		}
		i = end - 1
	}
	return b.String(), true
}

func digit(c byte, base int) bool {
	switch {
	case c >= '0' && c <= '7':
		return true
	case base == 8:
		return false
	}
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}
