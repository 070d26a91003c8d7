package shell

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// An arg is one word of a command after the shell's expansions, as far as they
// can be told.
type arg struct {
	text  string // what is known of it; unknown parts are left out
	known bool   // text is all of it
	glob  bool   // it holds a pattern that the shell replaces by file names
	loose bool   // it could become an option, or several words
}

// literal says that the word is exactly text.
func (a arg) literal() bool { return a.known && !a.glob }

// option tells whether the word is, or could be, an option.
func (a arg) option() bool { return a.loose || len(a.text) > 1 && a.text[0] == '-' }

const maxBraces = 64 // words out of one word

// environment variables whose value the shell or the login gives, and that do
// not begin with a dash.
var givenVars = set(`HOME PWD OLDPWD USER LOGNAME SHELL HOSTNAME TMPDIR UID EUID PPID RANDOM SECONDS LINENO LANG TERM
	# ? $ ! GITHUB_WORKSPACE CI`)

func set(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}

// constant returns the text of a word that holds nothing to expand.
func constant(word *syntax.Word) (string, bool) {
	if word == nil {
		return "", true
	}
	p := piece{known: true}
	for _, part := range word.Parts {
		p.part(nil, part, false)
	}
	return p.text.String(), p.known && !p.glob
}

// expand turns a word into arguments: braces, quotes, escapes and variables
// that the script itself sets.
func (w *walk) expand(word *syntax.Word) []arg {
	alternatives, ok := braces(word)
	if !ok {
		return []arg{{loose: true}}
	}
	var out []arg
	for _, parts := range alternatives {
		p := piece{known: true}
		for _, part := range parts {
			p.part(w, part, false)
		}
		a := arg{text: p.text.String(), known: p.known, glob: p.glob, loose: p.loose}
		if p.splits && strings.ContainsAny(a.text, " \t\n") {
			for _, field := range strings.Fields(a.text) {
				out = append(out, arg{text: field, known: a.known, glob: a.glob, loose: a.loose})
			}
			continue
		}
		if a.known && a.text == "" && !p.quoted {
			continue // an empty word that is not quoted vanishes
		}
		out = append(out, a)
	}
	return out
}

// braces returns the alternatives of {a,b} in a word. Sequences such as {1..9}
// stand for one of their members.
func braces(word *syntax.Word) ([][]syntax.WordPart, bool) {
	copied := &syntax.Word{Parts: append([]syntax.WordPart(nil), word.Parts...)}
	syntax.SplitBraces(copied)
	return alternatives(copied.Parts, 0)
}

func alternatives(parts []syntax.WordPart, depth int) ([][]syntax.WordPart, bool) {
	out := [][]syntax.WordPart{nil}
	if depth > 8 {
		return nil, false
	}
	for _, part := range parts {
		var options [][]syntax.WordPart
		b, ok := part.(*syntax.BraceExp)
		switch {
		case !ok:
			options = [][]syntax.WordPart{{part}}
		case b.Sequence:
			options = [][]syntax.WordPart{b.Elems[0].Parts}
		default:
			for _, e := range b.Elems {
				inner, ok := alternatives(e.Parts, depth+1)
				if !ok {
					return nil, false
				}
				options = append(options, inner...)
			}
		}
		if len(out)*len(options) > maxBraces {
			return nil, false
		}
		next := make([][]syntax.WordPart, 0, len(out)*len(options))
		for _, o := range out {
			for _, p := range options {
				next = append(next, append(append([]syntax.WordPart(nil), o...), p...))
			}
		}
		out = next
	}
	return out, true
}

// A piece is a word in the making.
type piece struct {
	text   strings.Builder
	known  bool
	glob   bool
	loose  bool
	quoted bool
	splits bool // holds an unquoted variable, whose value the shell cuts at blanks
}

func (p *piece) part(w *walk, part syntax.WordPart, quoted bool) {
	switch part := part.(type) {
	case *syntax.Lit:
		p.lit(part.Value, quoted)
	case *syntax.SglQuoted:
		p.quoted = true
		if part.Dollar {
			s, ok := ansiC(part.Value)
			p.known = p.known && ok
			p.text.WriteString(s)
		} else {
			p.text.WriteString(part.Value)
		}
	case *syntax.DblQuoted:
		p.quoted = true
		for _, inner := range part.Parts {
			p.part(w, inner, true)
		}
	case *syntax.ArithmExp:
		p.text.WriteString("0")
	case *syntax.ParamExp:
		p.param(w, part, quoted)
	case *syntax.ExtGlob:
		p.glob = true
	default:
		p.hide(quoted)
	}
}

// hide notes a part whose text is not known.
func (p *piece) hide(quoted bool) {
	if !quoted || p.text.Len() == 0 {
		p.loose = true
	}
	p.known = false
}

func (p *piece) param(w *walk, e *syntax.ParamExp, quoted bool) {
	if w == nil || e.Param == nil || e.Excl || e.Index != nil || e.Slice != nil || e.Repl != nil || e.Names != 0 || e.Exp != nil {
		if e.Length && w != nil {
			p.text.WriteString("0")
			return
		}
		p.hide(quoted)
		return
	}
	name := e.Param.Value
	if v, ok := w.vars[name]; ok {
		if _, cut := w.vars["IFS"]; !v.known || cut || e.Pos().Offset() < v.from {
			p.hide(quoted)
			return
		}
		p.text.WriteString(v.value)
		if !quoted {
			p.splits = true
			p.glob = p.glob || strings.ContainsAny(v.value, "*?[")
		}
		return
	}
	if givenVars[name] {
		p.known = false
		return
	}
	p.hide(quoted)
}

func (p *piece) lit(s string, quoted bool) {
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '\\' && i+1 < len(s):
			next := s[i+1]
			switch {
			case next == '\n':
			case quoted && !strings.ContainsRune("$`\"\\", rune(next)):
				p.text.WriteByte(c)
				p.text.WriteByte(next)
			default:
				p.text.WriteByte(next)
				p.quoted = true
			}
			i++
		case !quoted && (c == '*' || c == '?' || c == '[' && strings.IndexByte(s[i:], ']') > 0):
			p.glob = true
			p.text.WriteByte(c)
		default:
			p.text.WriteByte(c)
		}
	}
}

var ansiEscapes = map[byte]byte{
	'a': 7, 'b': 8, 'e': 27, 'E': 27, 'f': 12, 'n': 10, 'r': 13, 't': 9, 'v': 11, '\\': '\\', '\'': '\'', '"': '"', '?': '?',
}

// ansiC decodes what stands in $'…'.
func ansiC(s string) (string, bool) {
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
