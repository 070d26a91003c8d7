// Package encoded reads what texts are once they are decoded: base64, hex,
// percent-encoding, HTML entities, backslash escapes, JSON.
package encoded

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// maxRun bounds one run of hex or base64.
const maxRun = 256 << 10

// Views are what a text is once decoded, in each encoding that it may be in.
func Views(s string) (out []string) {
	if t := strings.TrimSpace(s); len(t) > 1 && (t[0] == '{' || t[0] == '[' || t[0] == '"') && json.Valid([]byte(t)) {
		out = append(out, t)
	}
	if strings.Contains(s, "%") {
		if plain, err := url.PathUnescape(s); err == nil && plain != s {
			out = append(out, plain)
		} else if loose := unpercent(s); loose != s {
			out = append(out, loose)
		}
	}
	if strings.Contains(s, "&") {
		if plain := html.UnescapeString(s); plain != s {
			out = append(out, plain)
		}
	}
	if strings.Contains(s, `\`) {
		if plain := unescapeText(s); plain != s {
			out = append(out, plain)
		}
	}
	if folded := unfold(s); folded != s {
		out = append(out, runs(folded)...)
	}
	return append(append(out, apart(s)...), runs(s)...)
}

// unfold joins the lines of a text that is nothing but wrapped base64 or hex.
func unfold(s string) string {
	if !strings.ContainsAny(s, "\r\n") {
		return s
	}
	joined := strings.NewReplacer("\r", "", "\n", "", " ", "").Replace(s)
	for i := range len(joined) {
		if !Base64Byte(joined[i]) && joined[i] != '=' {
			return s
		}
	}
	return joined
}

// runs decodes each run of hex or base64 in s that holds readable text.
func runs(s string) (out []string) {
	for i := 0; i < len(s); {
		if !Base64Byte(s[i]) {
			i++
			continue
		}
		start := i
		for i < len(s) && Base64Byte(s[i]) {
			i++
		}
		text := decoded(s[start:i])
		if text != "" {
			out = append(out, text)
			continue
		}
		for part := range strings.FieldsFuncSeq(s[start:i], func(r rune) bool { return strings.ContainsRune("/-_+", r) }) { // of a path, or a name
			if text := decoded(part); text != "" && len(part) < i-start {
				out = append(out, text)
			}
		}
	}
	return out
}

// decoded is the readable text that a run of hex or base64 holds, "" if it holds
// none.
func decoded(run string) string {
	if len(run) < 12 || len(run) > maxRun {
		return ""
	}
	if plain, err := hex.DecodeString(run); err == nil {
		if text := narrow(string(plain)); printable(text) {
			return text
		}
		return ""
	}
	for skip := range 4 { // something else may be glued to its front
		if len(run)-skip < 12 || !Readable(run[skip:skip+(len(run)-skip)/4*4]) {
			continue
		}
		if text := narrow(Base64(run[skip:])); printable(text) {
			return text
		}
	}
	return ""
}

func printable(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\n' && c != '\t' && c != '\r' || c == 0x7f {
			return false
		}
	}
	return s != ""
}

// unpercent decodes what is percent-encoded and leaves every other % alone.
func unpercent(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := hex.DecodeString(s[i+1 : i+3]); err == nil {
				b.Write(c)
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// unescapeText decodes \xHH, \uHHHH, \UHHHHHHHH, \u{H…}, \NNN and single escapes such as \".
func unescapeText(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		if code, n := escape(s[i:]); n > 0 {
			b.WriteRune(code)
			i += n - 1
			continue
		}
		digits := 0
		switch s[i+1] {
		case 'x':
			digits = 2
		case 'u':
			digits = 4
		case 'U':
			digits = 8
		}
		if digits > 0 && i+2+digits <= len(s) {
			if c, err := hex.DecodeString(s[i+2 : i+2+digits]); err == nil {
				b.WriteByte(c[len(c)-1])
				i += 1 + digits
				continue
			}
		}
		i++
		b.WriteByte(s[i])
	}
	return b.String()
}

var escapes = regexp.MustCompile(`^\\(?:([0-7]{3})|u\{([0-9a-fA-F]{1,6})\})`)

// escape reads \NNN or \u{H…}, and says how long it is; 0 if s begins with neither.
func escape(s string) (code rune, n int) {
	m := escapes.FindStringSubmatch(s[:min(len(s), 10)])
	if m == nil {
		return 0, 0
	}
	base := 8
	if m[2] != "" {
		base = 16
	}
	c, _ := strconv.ParseInt(m[1]+m[2], base, 32)
	return rune(c), len(m[0])
}

// Base64Byte tells whether c can stand in base64, the form for URLs included.
func Base64Byte(c byte) bool {
	return wordByte(c) || c == '+' || c == '/' || c == '-'
}

// Base64 decodes a run of base64, as far as it is whole; "" if it is none.
func Base64(run string) string {
	enc := base64.RawStdEncoding
	if strings.ContainsAny(run, "-_") {
		enc = base64.RawURLEncoding
	}
	b, err := enc.DecodeString(run[:len(run)-len(run)%4])
	if err != nil {
		return ""
	}
	if tail := run[len(run)-len(run)%4:]; len(tail) > 1 {
		if t, err := enc.DecodeString(tail); err == nil {
			b = append(b, t...)
		}
	}
	return string(b)
}

// Readable reports whether a run decodes to text, so that hashes, names and
// paths are not decoded in full.
func Readable(run string) bool {
	head := narrow(Base64(run))
	for i := range len(head) {
		if c := head[i]; c < ' ' && c != '\n' && c != '\t' && c != '\r' || c == 0x7f {
			return false
		}
	}
	return head != ""
}

func wordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
