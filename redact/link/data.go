package link

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"regexp"
	"strings"
)

// links finds addresses that carry data, or hide where they lead. Others are the
// reader's to follow.
func (f *Filter) links(text string) string {
	var out strings.Builder
	last := 0
	for i := 0; i < len(text); {
		j := strings.IndexByte(text[i:], ':')
		if j < 0 {
			break
		}
		colon := i + j
		i = colon + 1
		if !strings.HasPrefix(text[i:], "//") && !strings.HasPrefix(text[i:], `\/\/`) {
			continue
		}
		start := colon
		for start > last && letter(text[start-1]) {
			start--
		}
		if !schemes[strings.ToLower(text[start:colon])] {
			continue
		}
		end := i
		for end < len(text) && !ends(text[end:]) {
			end++
		}
		if i = end; !carries(text[start:end]) {
			continue
		}
		f.note(text[start:end])
		out.WriteString(text[last:start])
		if strings.EqualFold(text[start:start+4], "http") {
			out.WriteString(text[start:start+1] + "xx" + text[start+3:end])
		} else {
			out.WriteString(strings.Replace(text[start:end], ":", "[:]", 1))
		}
		last = end
	}
	if last == 0 {
		return text
	}
	return out.String() + text[last:]
}

var schemes = map[string]bool{"http": true, "https": true, "ftp": true, "ftps": true, "ws": true, "wss": true}

// ends reports whether an address ends before s. A slash that JSON has escaped is
// part of it.
func ends(s string) bool {
	if s[0] == '\\' {
		return !strings.HasPrefix(s, `\/`)
	}
	return s[0] <= ' ' || strings.IndexByte("<>\"'`)]}", s[0]) >= 0
}

// The shortest pieces of an address that are taken for data.
const (
	minData   = 16
	minBase32 = 24
)

// carries reports whether an address has data of somebody in it, as far as that
// can be told: a piece that decodes to readable text, or a user before the host. A
// signature or a random token decodes to noise.
func carries(at string) bool {
	_, rest, _ := strings.Cut(strings.ReplaceAll(at, `\/`, "/"), "://")
	host, path := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		host, path = rest[:i], rest[i:]
	}
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		if user := host[:i]; !name.MatchString(user) || !strings.Contains(path, ".git") && !strings.Contains(path, "/_git/") {
			return true
		}
		host = host[i+1:]
	}
	if labels := strings.Split(host, "."); len(labels) > 2 {
		joined := ""
		for _, l := range labels[:len(labels)-2] {
			if joined += l; readable(l) {
				return true
			}
		}
		if len(labels) > 3 && readable(joined) {
			return true
		}
	}
	for _, piece := range strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune("/?#&;", r) }) {
		if _, v, ok := strings.Cut(piece, "="); ok && strings.Trim(v, "=.,;:!?") != "" {
			piece = v
		}
		if plain, err := url.QueryUnescape(piece); err == nil {
			piece = strings.ReplaceAll(plain, " ", "+")
		}
		if readable(piece) {
			return true
		}
	}
	return false
}

// name is a user as in the addresses of repositories.
var name = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// readable reports whether a piece is text in an encoding.
func readable(s string) bool {
	s = strings.TrimRight(s, "=.,;:!?*_")
	if len(s) < minData || len(s) > 8<<10 {
		return false
	}
	if b, err := hex.DecodeString(s[:len(s)&^1]); err == nil && text(b) {
		return true
	}
	if len(s) >= minBase32 { // shorter words of letters can be anything
		if b, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(strings.ToUpper(s[:len(s)&^7])); err == nil && text(b) {
			return true
		}
	}
	b, err := base64.RawURLEncoding.DecodeString(strings.NewReplacer("+", "-", "/", "_").Replace(s[:len(s)&^3]))
	return err == nil && text(b)
}

// text reports whether bytes are what people or programs write. Random ones are
// not, for all practical purposes.
func text(b []byte) bool {
	if len(b) < minData/2 {
		return false
	}
	letters := 0
	for _, c := range b {
		if c < ' ' && c != '\n' && c != '\t' && c != '\r' || c >= 0x7f {
			return false
		}
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == ' ' {
			letters++
		}
	}
	return letters*4 >= len(b)*3
}
