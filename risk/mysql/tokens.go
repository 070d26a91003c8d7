package mysql

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"sallyport.dev/sallyport"
)

// A mode is a way in which a server could be set to read.
type mode struct {
	inline    bool // comments that are code are executed
	backslash bool // a backslash escapes within strings
	ansi      bool // "x" is a name, not a string
}

type tokenKind byte

const (
	word tokenKind = iota
	name           // in backquotes, or in double quotes in ansi mode
	text
	number
	operator
)

// A token is a piece of SQL, comments left out.
type token struct {
	kind   tokenKind
	value  string // of names and texts: decoded
	start  int
	end    int
	spaced bool // white space or a comment stands before it
}

func (t token) is(keyword string) bool { return t.kind == word && strings.EqualFold(t.value, keyword) }

func (t token) op(s string) bool { return t.kind == operator && t.value == s }

// A hazard is something about a text that raises its level whatever it says.
type hazard struct {
	level  sallyport.Level
	reason string
}

// A reading is a text as one mode reads it.
type reading struct {
	tokens  []token
	hazards []hazard
	broken  string          // why the server cannot read it to its end, "" if it can
	names   map[string]bool // lower case, those in double quotes

	executable, slashes, doubles bool // it has comments that are code, backslashes in strings, double quotes
}

type modeChoice struct {
	mode mode
	why  string
}

// otherModes are the other ways to read a text that differ from the first.
func otherModes(r reading) []modeChoice {
	list := []modeChoice{}
	for _, inline := range []bool{true, false} {
		for _, backslash := range []bool{true, false} {
			for _, ansi := range []bool{false, true} {
				if !inline && !r.executable || !backslash && !r.slashes || ansi && !r.doubles || inline && backslash && !ansi {
					continue
				}
				var why []string
				if !inline {
					why = append(why, "where the comment is not executed")
				}
				if !backslash {
					why = append(why, "with NO_BACKSLASH_ESCAPES")
				}
				if ansi {
					why = append(why, "with ANSI_QUOTES")
				}
				list = append(list, modeChoice{mode{inline, backslash, ansi}, " (read " + strings.Join(why, ", ") + ")"})
			}
		}
	}
	return list
}

// A lexer cuts a text into tokens.
type lexer struct {
	s      string
	i      int
	mode   mode
	spaced bool
	inside bool // a comment that is executed
	depth  int
	reading
}

func lex(s string, m mode) reading {
	l := &lexer{s: s, mode: m, reading: reading{names: map[string]bool{}}}
	for l.i < len(l.s) && l.broken == "" {
		l.next()
	}
	if l.inside && l.broken == "" {
		l.broken = "a comment that is code has no end"
	}
	return l.reading
}

func (l *lexer) hazard(level sallyport.Level, reason string) {
	for _, h := range l.hazards {
		if h.reason == reason {
			return
		}
	}
	l.hazards = append(l.hazards, hazard{level, reason})
}

func (l *lexer) rest() string { return l.s[l.i:] }

func (l *lexer) has(prefix string) bool { return strings.HasPrefix(l.rest(), prefix) }

func (l *lexer) next() {
	c := l.s[l.i]
	switch {
	case c == ' ' || c == '\t' || c == '\n' || c == '\r':
		l.i++
		l.spaced = true
	case c < ' ' || c == 0x7f:
		l.broken = "the SQL holds a control character"
	case l.inside && l.has("*/"):
		l.i, l.inside, l.spaced = l.i+2, false, true
	case c == '#' || l.has("--") && (len(l.rest()) == 2 || l.s[l.i+2] <= ' '):
		l.line()
	case l.has("/*"):
		l.comment()
	case c == '\'' || c == '"':
		l.quoted(c)
	case c == '`':
		l.backquoted()
	case c >= '0' && c <= '9':
		l.number()
	case isWord(c):
		l.word()
	default:
		l.operator()
	}
}

func isWord(c byte) bool {
	return c == '_' || c == '$' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

func (l *lexer) add(kind tokenKind, value string, start int) {
	l.tokens = append(l.tokens, token{kind: kind, value: value, start: start, end: l.i, spaced: l.spaced})
	l.spaced = false
}

// line skips a comment to the end of its line.
func (l *lexer) line() {
	end := strings.IndexByte(l.rest(), '\n')
	if end < 0 {
		end = len(l.rest())
	}
	if hidesLine(l.s[l.i : l.i+end]) {
		l.hazard(sallyport.High, "a comment holds a character that other readers take for the end of the line")
	}
	l.i += end
	l.spaced = true
}

// hidesLine finds, in a line comment, a character that may end a line for
// another reader and has more than white space behind it.
func hidesLine(comment string) bool {
	i := strings.IndexAny(strings.TrimRight(comment, "\r"), "\r\v\f\u0085\u2028\u2029")
	return i >= 0 && strings.TrimFunc(comment[i:], unicode.IsSpace) != ""
}

// comment skips a comment, or enters one that is code.
func (l *lexer) comment() {
	open := 2
	switch {
	case l.has("/*!"):
		open = 3
	case l.has("/*M!"):
		open = 4
	}
	end := strings.Index(l.s[l.i+2:], "*/")
	if end < 0 {
		l.executable = l.executable || open > 2
		if open == 2 || l.inside || !l.mode.inline {
			l.broken = "a comment has no end"
			return
		}
		l.i += open // some servers execute it all the same; lex says that it has no end
		l.inside, l.spaced = true, true
		l.version()
		return
	}
	body := l.s[l.i+open : max(l.i+open, l.i+2+end)]
	l.spaced = true
	if open == 2 || l.inside {
		l.hint(body)
		l.i += 2 + end + 2
		return
	}
	l.executable = true
	if strings.Contains(body, "/*") {
		l.hazard(sallyport.Critical, "a comment that is code holds another comment: servers differ on where it ends")
	}
	if !l.mode.inline {
		l.i += 2 + end + 2
		return
	}
	l.i += open
	l.inside = true
	l.version()
}

// version skips the version of a comment that is code.
func (l *lexer) version() {
	n := 0
	for n < len(l.rest()) && l.rest()[n] >= '0' && l.rest()[n] <= '9' {
		n++
	}
	if n != 0 && n != 5 && n != 6 {
		l.hazard(sallyport.Critical, "a comment that is code has a version that servers read differently")
		return
	}
	if n > 0 && l.i+n < len(l.s) && isWord(l.s[l.i+n]) {
		l.hazard(sallyport.High, "a comment that is code has a version that runs into its text")
	}
	l.i += n
}

// hint looks at an optimizer hint. All but those that set something only choose a plan.
func (l *lexer) hint(body string) {
	if !strings.HasPrefix(body, "+") {
		return
	}
	upper := strings.ToUpper(body)
	if strings.Contains(upper, "SET_VAR") || strings.Contains(upper, "RESOURCE_GROUP") {
		l.hazard(sallyport.High, "an optimizer hint sets a variable or a resource group for the statement")
	}
}

func (l *lexer) quoted(q byte) {
	start := l.i
	identifier := q == '"' && l.mode.ansi
	var b strings.Builder
	for l.i++; ; l.i++ {
		if l.i >= len(l.s) {
			l.broken = "a string has no end"
			return
		}
		c := l.s[l.i]
		switch {
		case c == q && l.i+1 < len(l.s) && l.s[l.i+1] == q:
			l.i++
			b.WriteByte(q)
		case c == q:
			l.i++
			l.finish(b.String(), start, q, identifier)
			return
		case c == '\\' && !identifier:
			l.slashes = true
			if l.i > start && l.s[l.i-1] >= 0x80 {
				l.hazard(sallyport.High, "a backslash follows a character that is not ASCII: a server set to GBK or SJIS reads them as one")
			}
			if l.mode.backslash && l.i+1 < len(l.s) {
				l.i++
				b.WriteString(unescape(l.s[l.i]))
			} else {
				b.WriteByte(c)
			}
		default:
			b.WriteByte(c)
		}
	}
}

func (l *lexer) finish(value string, start int, q byte, identifier bool) {
	l.doubles = l.doubles || q == '"'
	kind := text
	if identifier {
		kind = name
		l.names[strings.ToLower(value)] = true
	}
	l.add(kind, value, start)
}

// unescape is what a backslash and c stand for in a string.
func unescape(c byte) string {
	switch c {
	case '0':
		return "\x00"
	case 'b':
		return "\b"
	case 'n':
		return "\n"
	case 'r':
		return "\r"
	case 't':
		return "\t"
	case 'Z':
		return "\x1a"
	case '%', '_':
		return `\` + string(c)
	}
	return string([]byte{c})
}

func (l *lexer) backquoted() {
	start := l.i
	var b strings.Builder
	for l.i++; l.i < len(l.s); l.i++ {
		if l.s[l.i] != '`' {
			b.WriteByte(l.s[l.i])
			continue
		}
		if l.i+1 < len(l.s) && l.s[l.i+1] == '`' {
			l.i++
			b.WriteByte('`')
			continue
		}
		l.i++
		l.add(name, b.String(), start)
		return
	}
	l.broken = "a name in backquotes has no end"
}

// number takes a number, or a name that begins with digits; 1.5e-3 is one token.
func (l *lexer) number() {
	start := l.i
	for l.i < len(l.s) && (isWord(l.s[l.i]) && l.s[l.i] < 0x80 || l.s[l.i] == '.' ||
		(l.s[l.i] == '+' || l.s[l.i] == '-') && (l.s[l.i-1]|0x20) == 'e' && l.s[start:l.i-1] != "" && !strings.HasPrefix(l.s[start:], "0x")) {
		l.i++
	}
	l.add(number, l.s[start:l.i], start)
}

func (l *lexer) word() {
	start := l.i
	for l.i < len(l.s) && isWord(l.s[l.i]) {
		if l.s[l.i] < 0x80 {
			l.i++
			continue
		}
		r, size := utf8.DecodeRuneInString(l.rest())
		if !unicode.IsLetter(r) && !unicode.IsMark(r) && !unicode.IsDigit(r) {
			l.broken = "the SQL holds a character outside quotes that is neither a letter nor an operator"
			return
		}
		l.i += size
	}
	l.add(word, l.s[start:l.i], start)
}

func (l *lexer) operator() {
	start := l.i
	c := l.s[l.i]
	l.i++
	for _, op := range []string{"<=>", "->>", ":=", "&&", "||", "<=", ">=", "<>", "!=", "<<", ">>", "->", "@@"} {
		if strings.HasPrefix(l.s[start:], op) {
			l.i = start + len(op)
			l.add(operator, op, start)
			return
		}
	}
	switch c {
	case '(':
		if l.depth++; l.depth > maxDepth {
			l.broken = "the SQL is nested too deeply to judge"
		}
	case ')':
		l.depth--
	case ':', '\\', '{', '}', '[', ']':
		l.broken = "the SQL holds a character that MySQL does not read: " + string(c)
		return
	}
	l.add(operator, string(c), start)
}
