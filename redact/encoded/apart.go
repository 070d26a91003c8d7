package encoded

import (
	"encoding/base32"
	"encoding/hex"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// apart are the views of bytes that are written one by one, of base32, quoted-printable,
// and letters of full width.
func apart(s string) (out []string) {
	if len(s) < 16 {
		return nil // eight bytes need as much
	}
	add := func(b []byte) {
		if text := narrow(string(b)); printable(text) {
			out = append(out, text)
		}
	}
	if listed(s, hexByte, add); strings.ContainsAny(s, ",; ") {
		listed(s, number, add)
	}
	for rest, found := s, true; found; {
		if rest, found = behind0x(rest); found {
			run := rest[:span(rest, func(c byte) bool { return hexDigit(c) >= 0 })]
			b, _ := hex.DecodeString(run[:len(run)&^1])
			add(b)
		}
	}
	for i := 0; i < len(s); i++ {
		if n := span(s[i:], inBase32); n > 0 {
			if b, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(strings.ToUpper(s[i : i+n])); n >= 16 && err == nil {
				add(b)
			}
			i += n
		}
	}
	if plain := unquote(s); plain != s {
		add([]byte(plain))
	}
	if span(s, func(c byte) bool { return c < 0x80 }) < len(s) {
		if wide := norm.NFKC.String(s); wide != s {
			out = append(out, wide)
		}
	}
	return out
}

// listed finds eight or more bytes that are written one behind the other.
func listed(s string, read func(string) (byte, int), found func([]byte)) {
	var held [64]byte
	for i := 0; i < len(s); {
		b, n := read(s[i:])
		if n == 0 {
			i++
			continue
		}
		bytes := append(held[:0], b)
		for i += n; ; {
			gap := span(s[i:min(len(s), i+2)], func(c byte) bool { return strings.IndexByte(" :,;-", c) >= 0 })
			if b, n = read(s[i+gap:]); n == 0 || gap == 0 {
				break
			}
			bytes = append(bytes, b)
			i += gap + n
		}
		if len(bytes) >= 8 {
			found(bytes)
		}
	}
}

// hexByte reads 4a, 0x4a or \x4a.
func hexByte(s string) (byte, int) {
	n := 0
	if len(s) > 2 && (s[0] == '0' || s[0] == '\\') && s[1]|' ' == 'x' {
		n = 2
	}
	if len(s) < n+2 || hexDigit(s[n]) < 0 || hexDigit(s[n+1]) < 0 {
		return 0, 0
	}
	return byte(hexDigit(s[n])<<4 | hexDigit(s[n+1])), n + 2
}

// number reads a byte of ASCII as a number.
func number(s string) (byte, int) {
	n := span(s[:min(len(s), 4)], func(c byte) bool { return c >= '0' && c <= '9' })
	if n < 2 || n > 3 {
		return 0, 0
	}
	c := 0
	for i := range n {
		c = c*10 + int(s[i]-'0')
	}
	if c > 0x7f {
		return 0, 0
	}
	return byte(c), n
}

func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c|' ' >= 'a' && c|' ' <= 'f':
		return int(c|' '-'a') + 10
	}
	return -1
}

func inBase32(c byte) bool { return c|' ' >= 'a' && c|' ' <= 'z' || c >= '2' && c <= '7' }

// span is how many bytes of s, from its start, are so.
func span(s string, is func(byte) bool) int {
	for i := range len(s) {
		if !is(s[i]) {
			return i
		}
	}
	return len(s)
}

// behind0x is what stands behind the first 0x or 0X.
func behind0x(s string) (rest string, found bool) {
	for i := 1; i < len(s); i++ {
		if s[i]|' ' == 'x' && s[i-1] == '0' {
			return s[i+1:], true
		}
	}
	return "", false
}

// unquote decodes quoted-printable: =4A, and = at the end of a line.
func unquote(s string) string {
	if !strings.Contains(s, "=") {
		return s
	}
	s = strings.NewReplacer("=\r\n", "", "=\n", "").Replace(s)
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if c, n := hexByte(s[min(i+1, len(s)):]); s[i] == '=' && n == 2 {
			b.WriteByte(c)
			i += n
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// narrow is the text of UTF-16 whose letters are those of ASCII.
func narrow(s string) string {
	if n := strings.Count(s, "\x00"); n > 0 && n >= len(s)/2-1 {
		return strings.TrimPrefix(strings.TrimPrefix(strings.ReplaceAll(s, "\x00", ""), "\xff\xfe"), "\xfe\xff")
	}
	return s
}
