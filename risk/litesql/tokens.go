package litesql

import (
	"strings"
	"unicode"
)

// A tokenKind is what a piece of SQL is, in SQLite's reading.
type tokenKind byte

const (
	word     tokenKind = iota // a bare name or keyword
	quoted                    // a name in "", [] or ``
	text                      // a string
	number                    // a number or blob
	variable                  // ?, ?1, :a, @a, $a
	operator
)

type token struct {
	kind  tokenKind
	value string // of names and strings: without quotes
	start int
	end   int
}

// is tells whether the token is a keyword, in any case.
func (t token) is(keyword string) bool { return t.kind == word && strings.EqualFold(t.value, keyword) }

func (t token) op(s string) bool { return t.kind == operator && t.value == s }

// tokens cuts sql as SQLite would, comments left out.
func tokens(sql string) []token {
	var out []token
	for i := 0; i < len(sql); {
		start := i
		c := sql[i]
		kind := operator
		switch {
		case c == ' ' || c >= '\t' && c <= '\r':
			i++
			continue
		case strings.HasPrefix(sql[i:], "--"):
			i = upTo(sql, i, "\n")
			continue
		case strings.HasPrefix(sql[i:], "/*"):
			i = upTo(sql, i+2, "*/")
			continue
		case c == '\'':
			kind, i = text, closing(sql, i+1, '\'')
		case c == '"' || c == '`':
			kind, i = quoted, closing(sql, i+1, c)
		case c == '[':
			kind, i = quoted, upTo(sql, i+1, "]")
		case (c == 'x' || c == 'X') && i+1 < len(sql) && sql[i+1] == '\'':
			kind, i = number, closing(sql, i+2, '\'')
		case isDigit(c) || c == '.' && i+1 < len(sql) && isDigit(sql[i+1]):
			kind = number
			for i < len(sql) && (isWord(sql[i]) || sql[i] == '.' || (sql[i] == '+' || sql[i] == '-') && (sql[i-1] == 'e' || sql[i-1] == 'E')) {
				i++
			}
		case c == '?' || c == ':' || c == '@' || c == '$' || c == '#':
			kind = variable
			for i++; i < len(sql) && (isWord(sql[i]) || sql[i] == ':'); {
				i++
			}
		case isWord(c):
			kind = word
			for i < len(sql) && (isWord(sql[i]) || sql[i] == '$') {
				i++
			}
		default:
			i++
			if i < len(sql) && strings.Contains(" == != <> <= >= || -> << >> ", " "+sql[start:i+1]+" ") {
				i++
			}
			if strings.HasPrefix(sql[start:], "->>") {
				i = start + 3
			}
		}
		out = append(out, token{kind: kind, value: plain(sql[start:i], kind), start: start, end: i})
	}
	return out
}

// hidesLine tells whether a line comment holds a character that may end a line
// for another reader, with more than white space behind it.
func hidesLine(sql string) bool {
	const enders = "\r\v\f\u0085\u2028\u2029"
	if !strings.ContainsAny(sql, enders) || !strings.Contains(sql, "--") {
		return false
	}
	gap := 0 // comments stand between tokens
	for _, t := range append(tokens(sql), token{start: len(sql)}) {
		for i := gap; i < t.start; {
			switch {
			case strings.HasPrefix(sql[i:], "--"):
				end := min(upTo(sql, i, "\n"), t.start)
				comment := strings.TrimRight(sql[i:end], "\r\n")
				if j := strings.IndexAny(comment, enders); j >= 0 && strings.TrimFunc(comment[j:], unicode.IsSpace) != "" {
					return true
				}
				i = end
			case strings.HasPrefix(sql[i:], "/*"):
				i = upTo(sql, i+2, "*/")
			default:
				i++
			}
		}
		gap = t.end
	}
	return false
}

func plain(s string, kind tokenKind) string {
	if kind != text && kind != quoted || len(s) < 2 {
		return s
	}
	q := s[len(s)-1:]
	return strings.ReplaceAll(s[1:len(s)-1], q+q, q)
}

func upTo(s string, i int, mark string) int {
	if i < len(s) {
		if n := strings.Index(s[i:], mark); n >= 0 {
			return i + n + len(mark)
		}
	}
	return len(s)
}

func closing(s string, i int, q byte) int {
	for i < len(s) {
		if s[i] == q {
			if i+1 >= len(s) || s[i+1] != q {
				return i + 1
			}
			i++
		}
		i++
	}
	return len(s)
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isWord(c byte) bool {
	return c == '_' || isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// first cuts a statement's tokens at the semicolon that ends it. It does not
// know where a trigger's body ends; only prepared.length does.
func first(list []token) []token {
	for i, t := range list {
		if t.op(";") {
			return list[:i]
		}
	}
	return list
}

// has tells whether the keywords stand one after the other somewhere in list.
func has(list []token, keywords ...string) bool {
	for i := 0; i+len(keywords) <= len(list); i++ {
		all := true
		for j, k := range keywords {
			all = all && list[i+j].is(k)
		}
		if all {
			return true
		}
	}
	return false
}

// condition returns the WHERE clause of an UPDATE, as text that PostgreSQL's
// parser reads the same way, and whether there is one.
func condition(sql string, list []token) (string, bool) {
	depth, seen := 0, false
	var b strings.Builder
	in := false
	for _, t := range list {
		switch {
		case t.op("("):
			depth++
		case t.op(")"):
			depth--
		}
		if depth == 0 && t.is("update") {
			seen = true
		}
		if in && depth == 0 && (t.is("returning") || t.is("order") || t.is("limit") || t.op(";")) {
			break
		}
		if in {
			b.WriteString(translate(sql, t))
			b.WriteByte(' ')
		}
		if seen && depth == 0 && t.is("where") {
			in = true
		}
	}
	return strings.TrimSpace(b.String()), in
}

// likeOf writes a pattern of GLOB as one of LIKE; a set of characters, such as
// [^z], counts as any character.
func likeOf(glob string) string {
	var b strings.Builder
	for i := 0; i < len(glob); i++ {
		switch c := glob[i]; c {
		case '*':
			b.WriteByte('%')
		case '?':
			b.WriteByte('_')
		case '[':
			if n := strings.IndexByte(glob[i:], ']'); n > 0 {
				b.WriteByte('_')
				i += n
				continue
			}
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func translate(sql string, t token) string {
	switch {
	case t.kind == quoted:
		return `"` + strings.ReplaceAll(t.value, `"`, `""`) + `"`
	case t.kind == text && strings.ContainsAny(t.value, "*?["):
		return "'" + strings.ReplaceAll(likeOf(t.value), "'", "''") + "'"
	case t.kind == variable:
		return "$1"
	case t.op("=="):
		return "="
	case t.is("glob"):
		return "LIKE"
	case t.is("regexp") || t.is("match"):
		return "~"
	case t.kind == number && (strings.HasPrefix(t.value, "x'") || strings.HasPrefix(t.value, "X'")):
		return "'x'"
	}
	return sql[t.start:t.end]
}
