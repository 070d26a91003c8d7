package shell

import (
	"regexp"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"sallyport.dev/sallyport/risk/shell/form"
	"sallyport.dev/sallyport/risk/shell/word"
)

type arg = word.Word

// environment variables whose value the shell or the login gives, and that do
// not begin with a dash.
var givenVars = set(`HOME PWD OLDPWD USER LOGNAME SHELL HOSTNAME TMPDIR UID EUID PPID RANDOM SECONDS LINENO LANG TERM
	# ? $ ! GITHUB_WORKSPACE CI`)

// addressVar are variables from outside that hold an address, by their names.
var addressVar = regexp.MustCompile(`^([A-Z0-9]+_)*(DATABASE|DB|PG|POSTGRES|MYSQL|MONGO|MONGODB|REDIS)_(URL|URI|DSN)$`)

var set = word.Set

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
	alternatives, ok := form.Braces(word)
	if !ok {
		return []arg{{Loose: true}}
	}
	var out []arg
	for _, parts := range alternatives {
		p := piece{known: true}
		for _, part := range parts {
			p.part(w, part, false)
		}
		a := arg{Text: p.text.String(), Known: p.known, Glob: p.glob, Loose: p.loose, Fresh: p.fresh && !strings.Contains(p.text.String(), "..")}
		if p.splits && strings.ContainsAny(a.Text, " \t\n") {
			for _, field := range strings.Fields(a.Text) {
				out = append(out, arg{Text: field, Known: a.Known, Glob: a.Glob, Loose: a.Loose})
			}
			continue
		}
		if a.Known && a.Text == "" && !p.quoted {
			continue // an empty word that is not quoted vanishes
		}
		out = append(out, a)
	}
	return out
}

// A piece is a word in the making.
type piece struct {
	text   strings.Builder
	known  bool
	glob   bool
	loose  bool
	quoted bool
	fresh  bool // begins with a variable that names what mktemp made
	splits bool // holds an unquoted variable, whose value the shell cuts at blanks
}

func (p *piece) part(w *walk, part syntax.WordPart, quoted bool) {
	switch part := part.(type) {
	case *syntax.Lit:
		p.lit(part.Value, quoted)
	case *syntax.SglQuoted:
		p.quoted = true
		if part.Dollar {
			s, ok := word.ANSI(part.Value)
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
	case *syntax.ProcSubst:
		p.known, p.quoted = false, true // /dev/fd/63
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
		if v.fresh && e.Pos().Offset() >= v.from {
			p.fresh = p.fresh || p.text.Len() == 0 && p.known
			p.known = false
			return
		}
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
	if name == "HOME" && p.text.Len() == 0 {
		p.text.WriteByte('~') // what it is, for those who read it
	}
	if givenVars[name] || quoted && addressVar.MatchString(name) {
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
