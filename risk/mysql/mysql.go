// Package mysql judges SQL in the dialect of MySQL and MariaDB by what it would
// do. The text is cut into tokens here, because both servers read it by their
// settings: what a comment executes, where a string ends, whether "x" is a name.
// Each reading that differs is parsed by vitess and walked against a list of
// what is known; the worst reading counts, and what is not known is critical.
//
// What vitess does not parse is critical, too: much of MariaDB's own syntax,
// accounts and privileges, stored programs, HANDLER, XA.
//
// It looks at the text alone, so it cannot see triggers, views, events, and
// stored functions that bear the name of a function which only one of the two
// servers has built in. The account that the server gives the agent bounds those.
package mysql

import (
	"strings"
	"sync"
	"unicode/utf8"

	"vitess.io/vitess/go/vt/sqlparser"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

// Bounds. Texts beyond them are critical.
const (
	MaxText       = finding.MaxText
	maxStatements = 256
	maxDepth      = 500 // of parentheses
	maxNested     = 4   // statements within strings of statements
)

// A Judge judges MySQL and MariaDB texts. It is safe for concurrent use.
type Judge struct {
	parser func() (*sqlparser.Parser, error)
}

// New returns a Judge.
func New() Judge {
	return Judge{parser: sync.OnceValues(func() (*sqlparser.Parser, error) { return sqlparser.New(sqlparser.Options{}) })}
}

// Judge says what text would do, and whether it could be parsed. It never
// fails: what cannot be judged is critical.
func (j Judge) Judge(text string) (r sallyport.Risk, parsed bool) {
	defer func() {
		if e := recover(); e != nil {
			r, parsed = refuse("the SQL broke the analyser, so what it does is unknown"), false
		}
	}()
	return j.judge(text, 0)
}

func refuse(format string, args ...any) sallyport.Risk {
	var l finding.List
	l.Add(sallyport.Critical, format, args...)
	l.Effect(sallyport.EffectOpaque)
	return l.Risk()
}

func (j Judge) judge(text string, nested int) (sallyport.Risk, bool) {
	switch {
	case len(text) > MaxText:
		return refuse("the SQL is too long to judge: %d bytes, and %d is the most", len(text), MaxText), false
	case !utf8.ValidString(text):
		return refuse("the SQL is not valid UTF-8"), false
	case strings.IndexByte(text, 0) >= 0:
		return refuse("the SQL holds a NUL byte: what follows it may or may not be read"), false
	case nested > maxNested:
		return refuse("the SQL holds statements within strings, too deep to judge"), false
	}
	parser, err := j.parser()
	if err != nil {
		return refuse("the MySQL parser does not start, so what the SQL does is unknown"), false
	}
	w := &walk{judge: j, parser: parser, nested: nested, prepared: map[string]sallyport.Risk{}}
	first := lex(text, mode{inline: true, backslash: true})
	parsed := w.reading(text, first, "")
	seen := map[string]bool{first.canonical(): true}
	for _, o := range otherModes(first) {
		other := lex(text, o.mode)
		if seen[other.canonical()] || other.broken != "" && len(other.statements()) < 2 {
			continue // the server refuses it before it runs anything
		}
		seen[other.canonical()] = true
		w.reading(text, other, o.why)
	}
	return w.risk(), parsed
}

// reading judges a text as one of its modes reads it.
func (w *walk) reading(text string, r reading, why string) bool {
	w.open, w.why, w.names = false, why, r.names
	parsed := true
	for _, h := range r.hazards {
		w.begin("")
		w.found.Add(h.level, "%s%s", h.reason, why)
		w.end()
	}
	if r.broken != "" {
		w.begin("")
		w.unknown("%s%s, so what it does is unknown", r.broken, why)
		w.end()
		parsed = false
	}
	list := r.statements()
	if len(list) > maxStatements {
		w.begin("")
		w.unknown("the SQL has too many statements to judge")
		w.end()
		return false
	}
	for _, s := range list {
		w.begin(text[s.start():s.end()])
		parsed = w.statement(s) && parsed
		w.end()
	}
	if w.open {
		w.begin("")
		w.found.Effect(sallyport.EffectWrite)
		w.found.Add(sallyport.High, "leaves a transaction open: its locks stay")
		w.end()
	}
	w.count = max(w.count, len(list))
	return parsed
}

// risk joins what was found, the most dangerous statement first.
func (w *walk) risk() sallyport.Risk {
	var l finding.List
	l.Join(w.all)
	if w.count > 1 {
		l.Add(l.Level(), "holds %d statements: the worst of them counts", w.count)
	}
	if l.Empty() {
		l.Add(sallyport.Low, "holds no statement")
	}
	return l.Risk()
}
