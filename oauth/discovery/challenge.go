package discovery

import (
	"slices"
	"strings"
)

// A Challenge is what a WWW-Authenticate header asks for (RFC 6750, RFC 9728).
type Challenge struct {
	Bearer           bool // there was one of this scheme
	Error            string
	Scopes           []string
	ResourceMetadata string
}

// Bounds of what a challenge may ask for.
const (
	maxScopes = 64
	maxScope  = 256
)

// ParseChallenge reads the first Bearer challenge of some headers. What cannot be
// read is left out.
func ParseChallenge(headers []string) (c Challenge) {
	for _, h := range headers {
		rest := h
		for rest != "" {
			var scheme string
			scheme, rest = token(strings.TrimLeft(rest, " \t,"))
			if scheme == "" {
				break
			}
			var params map[string]string
			params, rest = parameters(rest)
			if !strings.EqualFold(scheme, "Bearer") {
				continue
			}
			return Challenge{Bearer: true, Error: params["error"], Scopes: Scopes(params["scope"]), ResourceMetadata: params["resource_metadata"]}
		}
	}
	return c
}

// Scopes splits a list of scopes: each once, in order, and not without end.
func Scopes(s string) (out []string) {
	for f := range strings.FieldsSeq(s) {
		if len(out) < maxScopes && validScope(f) && !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}

// Union adds scopes to others: each once, in order, and not without end.
func Union(a, b []string) []string {
	return Scopes(strings.Join(slices.Concat(a, b), " "))
}

// validScope: RFC 6749's scope-token.
func validScope(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return s != "" && len(s) <= maxScope
}

// parameters reads name=value pairs up to the next scheme.
func parameters(s string) (map[string]string, string) {
	out := map[string]string{}
	for {
		s = strings.TrimLeft(s, " \t,")
		name, rest := token(s)
		after, ok := strings.CutPrefix(strings.TrimLeft(rest, " \t"), "=")
		if name == "" || !ok {
			return out, s // a scheme, or nothing
		}
		var value string
		value, s = word(strings.TrimLeft(after, " \t"))
		if name = strings.ToLower(name); out[name] == "" {
			out[name] = value
		}
	}
}

func token(s string) (name, rest string) {
	i := strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	})
	if i < 0 {
		return s, ""
	}
	return s[:i], s[i:]
}

// word reads a token or a quoted string.
func word(s string) (value, rest string) {
	if !strings.HasPrefix(s, `"`) {
		i := strings.IndexAny(s, ", \t")
		if i < 0 {
			return s, ""
		}
		return s[:i], s[i:]
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return b.String(), s[i+1:]
		case c == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), ""
}
