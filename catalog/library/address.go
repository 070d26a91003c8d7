package library

import (
	"encoding/base64"
	"strings"

	"sallyport.dev/sallyport/backend/openapi/request"
)

// scheme is that of the addresses that agents see.
const scheme = "sallyport:"

// maxAddress bounds an address in bytes. Longer ones are refused.
const maxAddress = 8 << 10

// Expose maps an address of a server's to the one address that agents see. It
// depends on nothing but its arguments and is reversed by Reveal, so any
// gateway can read what another one listed:
//
//   - sallyport:SERVER/ADDRESS where the address is a URI (RFC 3986). No byte of
//     it changes, so a template maps as its expansions do;
//   - sallyport:SERVER/~BASE64URL for anything else. No URI begins with ~.
func Expose(server, address string) string {
	if valid(address) {
		return scheme + server + "/" + address
	}
	return scheme + server + "/~" + base64.RawURLEncoding.EncodeToString([]byte(address))
}

// Reveal reverses Expose. Each address has one exposed form: ok is false for
// any other spelling.
func Reveal(exposed string) (server, address string, ok bool) {
	rest, ok := strings.CutPrefix(exposed, scheme)
	if !ok || len(exposed) > maxAddress {
		return "", "", false
	}
	server, address, ok = strings.Cut(rest, "/")
	if code, hidden := strings.CutPrefix(address, "~"); ok && hidden {
		plain, err := base64.RawURLEncoding.Strict().DecodeString(code)
		if err != nil {
			return "", "", false
		}
		address = string(plain)
	}
	return server, address, ok && server != "" && Expose(server, address) == exposed
}

// exposeTemplate maps a template of addresses (RFC 6570): whatever it expands to
// is the exposed form of what the server's own expands to. ok is false for a
// template of which that could not be said.
func exposeTemplate(server, template string) (exposed string, ok bool) {
	if template == "" || template[0] == '~' || len(template) > maxAddress || strings.ContainsAny(template, "\x00\r\n") {
		return "", false
	}
	return scheme + server + "/" + template, true
}

// valid reports whether s is a URI that can stand in the path of another.
func valid(s string) bool {
	colon := strings.IndexByte(s, ':')
	if colon <= 0 || !letter(s[0]) {
		return false
	}
	for i := 1; i < colon; i++ {
		if c := s[i]; !letter(c) && !digit(c) && c != '+' && c != '-' && c != '.' {
			return false
		}
	}
	fragment := false
	for i := colon + 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '%':
			if i+2 >= len(s) || unhex(s[i+1]) < 0 || unhex(s[i+2]) < 0 {
				return false
			}
			i += 2
		case c == '#':
			if fragment {
				return false
			}
			fragment = true
		case !letter(c) && !digit(c) && strings.IndexByte("-._~:/?@!$&'()*+,;=", c) < 0:
			return false
		}
	}
	return true
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
func digit(c byte) bool  { return c >= '0' && c <= '9' }

func unhex(c byte) int {
	switch {
	case digit(c):
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// normal is the form of a URI that stands for all its spellings (RFC 3986,
// section 6.2.2): scheme and host in small letters, escapes only where they are
// needed and in capitals, no dot segments. A server may take any two of them for
// the same, so a policy must too.
func normal(s string) string {
	colon := strings.IndexByte(s, ':')
	if colon < 0 {
		return s
	}
	head, rest := strings.ToLower(s[:colon+1]), unescape(s[colon+1:])
	tail := ""
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest, tail = rest[:i], rest[i:]
	}
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		host, path := after, ""
		if i := strings.IndexByte(after, '/'); i >= 0 {
			host, path = after[:i], after[i:]
		}
		head, rest = head+"//"+lower(host), path
	}
	return head + undot(rest) + tail
}

// settled reports whether s is the only spelling of what it leads to, for whoever
// decodes it, resolves it as a path, or opens it as a file. s is a valid URI.
func settled(s string) bool {
	scheme, rest, _ := strings.Cut(s, ":")
	if s != normal(s) || request.CheckPath(strings.NewReplacer("?", "/", "#", "/", "&", "/", "=", "/").Replace(rest)) != nil {
		return false
	}
	after, named := strings.CutPrefix(rest, "//")
	host, path, _ := strings.Cut(after, "/")
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		path = path[:i]
	}
	switch scheme {
	case "file": // file:/x, file://localhost/x, file:///%2Fx
		return named && host == "" && !strings.Contains("/"+path, "//") && !strings.Contains(path, "%2F")
	case "http", "https":
		_, port, _ := strings.Cut(host, ":")
		return !strings.Contains(host, "@") && !strings.HasSuffix(host, ":") && port != map[string]string{"http": "80", "https": "443"}[scheme] || host == ""
	}
	return true
}

// lower writes letters small, but in escapes.
func lower(s string) string {
	b := []byte(s)
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '%':
			i += 2
		case c >= 'A' && c <= 'Z':
			b[i] += 'a' - 'A'
		}
	}
	return string(b)
}

// unescape decodes the escapes of characters that need none, once.
func unescape(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' || i+2 >= len(s) {
			b.WriteByte(s[i])
			continue
		}
		c := byte(unhex(s[i+1])<<4 | unhex(s[i+2]))
		if letter(c) || digit(c) || strings.IndexByte("-._~", c) >= 0 {
			b.WriteByte(c)
		} else {
			b.WriteString(strings.ToUpper(s[i : i+3]))
		}
		i += 2
	}
	return b.String()
}

// undot takes dot segments out of a path.
func undot(path string) string {
	if !strings.Contains(path, "/.") && !strings.HasPrefix(path, ".") {
		return path
	}
	segments := strings.Split(path, "/")
	out := make([]string, 0, len(segments))
	for i, s := range segments {
		last := i == len(segments)-1
		switch s {
		case ".", "..":
			if s == ".." && len(out) > 1 {
				out = out[:len(out)-1]
			}
			if last {
				out = append(out, "")
			}
		default:
			out = append(out, s)
		}
	}
	return strings.Join(out, "/")
}
