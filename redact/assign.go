package redact

import (
	"strings"
)

// A place is a key that may carry a secret, and what stands after it.
type place struct {
	ident      string // the whole identifier, e.g. POSTGRES_PASSWORD
	start, end int    // of the identifier
	op         byte   // '=' or ':', 0 for a space (SQL)
	tight      bool   // no space around op
	value      int    // where the value begins, after an opening quote
	quote      byte   // the opening quote, 0 if none
	escaped    bool   // the quote is written \", as in JSON inside a string
}

// keySecret judges a key like password and what follows it. A bare word in
// prose or code is not a secret; what makes it one is a quoted value, a query
// string, an environment assignment, a line of its own, or the company of
// other keys of a connection string.
func keySecret(s string, h hit, dsn []int) span {
	p, ok := placeAt(s, h)
	if !ok {
		return span{}
	}
	if folder(p.ident, s[p.value:]) {
		return span{}
	}
	name := "password"
	if near(s, p, dsn) {
		name = "dsn password"
	}
	if p.quote != 0 {
		end := closing(s, p)
		if p.op == 0 && p.quote != '\'' || common(s[p.value:end]) {
			return span{}
		}
		return span{start: p.value, end: end, name: name}
	}
	if p.op == 0 {
		return span{}
	}
	end := bare(s, p)
	switch {
	case end == p.value || strings.HasPrefix(s[p.value:], markOpen):
		return span{}
	case p.op == '=' && p.start > 0 && (s[p.start-1] == '?' || s[p.start-1] == '&'):
		return span{start: p.value, end: until(s, p.value, maxValue, " \t\r\n\"'`<>&#"), name: name}
	case p.op == '=' && name == "dsn password" && !listed(s, p):
	case p.op == '=' && p.tight && len(p.ident) > len("pwd") && upper(p.ident):
	case alone(s, p, end) && !reference(s[p.value:end], p.ident):
	default:
		return span{}
	}
	if common(s[p.value:end]) && name == "password" {
		return span{}
	}
	return span{start: p.value, end: end, name: name}
}

func placeAt(s string, h hit) (place, bool) {
	p := place{end: h.end, start: h.end - int(h.len)}
	sql := s[p.end-1] == 'y' || s[p.end-1] == 'Y' // identified by
	for n := 0; p.start > 0 && n < maxIdent && (wordByte(s[p.start-1]) || s[p.start-1] == '.' || s[p.start-1] == '-'); n++ {
		p.start--
	}
	p.ident = s[p.start:p.end]
	i := p.end
	if i >= len(s) || wordByte(s[i]) {
		return p, false
	}
	if i, ok := closeKey(s, i, p.start); ok {
		p.end = i
	}
	i = skipSpaces(s, p.end)
	if i >= len(s) {
		return p, false
	}
	switch c := s[i]; {
	case c == '=' || c == ':':
		p.op, p.tight = c, i == p.end
		i++
		if i < len(s) && (s[i] == '=' || s[i] == '>') {
			i++ // :=, ==, =>
		}
		if p.tight && i < len(s) && (s[i] == ' ' || s[i] == '\t') {
			p.tight = false
		}
		i = skipSpaces(s, i)
	case i == p.end || !sql && !strings.EqualFold(p.ident, "password"):
		return p, false
	}
	if i+1 < len(s) && s[i] == '\\' && (s[i+1] == '"' || s[i+1] == '\'') {
		p.escaped = true
		i++
	}
	if i < len(s) && (s[i] == '"' || s[i] == '\'' || s[i] == '{' && p.op == '=') {
		p.quote = s[i]
		i++
	}
	p.value = i
	return p, i < len(s)
}

// closeKey steps over the quote after a quoted key, as in "password": or in
// \"password\": .
func closeKey(s string, i, start int) (int, bool) {
	j := i
	if s[j] == '\\' {
		j++
	}
	if j >= len(s) || s[j] != '"' && s[j] != '\'' || start == 0 || s[start-1] != s[j] {
		return i, false
	}
	return j + 1, true
}

// closing returns the index of the quote that ends the value, or of the end of
// its line.
func closing(s string, p place) int {
	quote := p.quote
	if quote == '{' {
		quote = '}'
	}
	i := p.value
	for n := 0; i < len(s) && n < maxValue && s[i] != '\n'; n++ {
		switch {
		case s[i] == '\\' && i+1 < len(s):
			if p.escaped && s[i+1] == quote {
				return i
			}
			i++
		case s[i] == quote:
			if i+1 >= len(s) || s[i+1] != quote || i == p.value || quote == '"' {
				return i
			}
			i++ // doubled, as SQL and libpq write it
		}
		i++
	}
	return min(i, len(s))
}

// bare returns the end of an unquoted value: a space, a quote, or a semicolon
// after which another key=value follows.
func bare(s string, p place) int {
	i := p.value
	for n := 0; i < len(s) && n < maxValue; n++ {
		switch s[i] {
		case ' ', '\t', '\r', '\n', '"', '`':
			return i
		case ';':
			j := skipSpaces(s, i+1)
			for k := 0; j < len(s) && k < maxIdent && (wordByte(s[j]) || s[j] == ' '); k++ {
				j++
			}
			if j >= len(s) || s[j] == '=' || s[j] == '\n' || s[j] == '"' {
				return i
			}
		}
		i++
	}
	return i
}

// near reports whether another key of a connection string stands close to p,
// with no line break between. dsn is sorted.
func near(s string, p place, dsn []int) bool {
	lo, hi := 0, len(dsn)
	for lo < hi {
		if mid := (lo + hi) / 2; dsn[mid] < p.start {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo > 0 && p.start-dsn[lo-1] <= maxApart && strings.IndexByte(s[dsn[lo-1]:p.start], '\n') < 0 {
		return true
	}
	return lo < len(dsn) && dsn[lo]-p.end <= maxApart && dsn[lo] >= p.end && strings.IndexByte(s[p.end:dsn[lo]], '\n') < 0
}

// alone reports whether key and value have a line to themselves.
func alone(s string, p place, end int) bool {
	if end < len(s) && s[end] != '\n' && s[end] != '\r' {
		return false
	}
	start := since(s, p.start, maxIdent, "\n")
	before := strings.TrimLeft(s[start:p.start], " \t-\"'")
	return before == "" || before == "export " || before == "set "
}

// folder reports whether key and value are a working directory: PWD=/root.
func folder(ident, v string) bool {
	return len(ident) >= 3 && strings.EqualFold(ident[len(ident)-3:], "pwd") &&
		(v != "" && (v[0] == '/' || v[0] == '~') || len(v) > 2 && v[1] == ':' && v[2] == '\\')
}

// listed reports whether a comma stands before p: arguments of a call, not a
// connection string.
func listed(s string, p place) bool {
	before := strings.TrimRight(s[since(s, p.start, maxIdent, "\n"):p.start], " \t")
	return strings.HasSuffix(before, ",") || strings.HasSuffix(before, "(")
}

// reference reports whether an unquoted value is code that fetches a secret
// rather than the secret.
func reference(v, ident string) bool {
	if strings.ContainsAny(v, "()[]{}<>") {
		return true
	}
	last := v[strings.LastIndexByte(v, '.')+1:]
	return len(last) < len(v) && strings.EqualFold(last, ident[strings.LastIndexByte(ident, '.')+1:])
}

// common reports whether a value beside a password key is a word from a form,
// a schema or code.
func common(v string) bool {
	switch strings.ToLower(strings.TrimRight(v, ",;")) {
	case "", "string", "password", "passwd", "pwd", "text", "null", "none", "nil", "true", "false", "required", "optional",
		"secret", "hidden", "yes", "no", "undefined", "[redacted]", "redacted", "xxxxx":
		return true
	}
	return placeholder(v)
}
