// Package litesql judges SQL in SQLite's dialect by what it would do. SQLite
// itself compiles each statement, in an empty database in memory, and tells an
// authorizer every operation that the statement would perform; nothing of the
// text is run. The schema that a statement needs is made up as errors name it.
//
// It cannot see what the real schema adds: triggers, views, foreign keys that
// cascade, functions that the application registered.
package litesql

import (
	"strings"
	"unicode/utf8"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

// Bounds. Texts beyond them are critical.
const (
	MaxText       = finding.MaxText
	maxStatements = 256
	maxWork       = 4 << 20 // bytes given to SQLite, for all statements together
	maxEvents     = 4096
	maxMends      = 400
)

// A Judge judges SQLite texts. It is safe for concurrent use.
type Judge struct {
	// Bounded tells whether a WHERE clause leaves rows out; see pgsql.Parser.Bounded.
	Bounded func(where string) bool
}

// Judge says what text would do, and whether SQLite would accept its syntax. It
// never fails: what cannot be judged is critical.
func (j Judge) Judge(text string) (r sallyport.Risk, parsed bool) {
	defer func() {
		if e := recover(); e != nil {
			r, parsed = refuse("the SQL broke the analyser, so what it does is unknown"), false
		}
	}()
	switch {
	case len(text) > MaxText:
		return refuse("the SQL is too long to judge: %d bytes, and %d is the most", len(text), MaxText), false
	case !utf8.ValidString(text):
		return refuse("the SQL is not valid UTF-8"), false
	case strings.IndexByte(text, 0) >= 0:
		return refuse("the SQL holds a NUL byte: what follows it may or may not be read"), false
	}
	s, err := openSession()
	if err != nil {
		return refuse("the SQLite analyser does not start, so what the SQL does is unknown"), false
	}
	defer s.close()
	w := &walk{judge: j, session: s, schema: &schema{session: s}}
	parsed = w.text(text)
	if hidesLine(text) {
		w.found.Add(sallyport.High, "a comment holds a character that other readers take for the end of the line")
	}
	return w.risk(), parsed
}

func refuse(format string, args ...any) sallyport.Risk {
	var l finding.List
	l.Add(sallyport.Critical, format, args...)
	l.Effect(sallyport.EffectOpaque)
	return l.Risk()
}

// A walk goes once through the statements of one text.
type walk struct {
	judge   Judge
	session *session
	schema  *schema
	all     []finding.List // of the statements before
	found   finding.List   // of the statement at hand
	mends   int
	open    bool // a transaction that this text began
	count   int
	work    int
	real    int // statements that are not empty
}

func (w *walk) text(text string) bool {
	for {
		// SQLite takes long over many empty statements.
		if text = strings.TrimLeft(text, "; \t\r\n"); text == "" {
			break
		}
		// SQLite is given the rest of the text for each statement.
		if w.work += len(text); w.work > maxWork {
			w.found.Add(sallyport.Critical, "the SQL has too many statements for its length to judge")
			w.found.Effect(sallyport.EffectOpaque)
			return false
		}
		if w.count++; w.count > maxStatements {
			w.found.Add(sallyport.Critical, "the SQL has too many statements to judge")
			return false
		}
		n, ok := w.statement(text)
		source := text
		if ok {
			source = text[:n]
		}
		w.cut(source)
		if !ok {
			return false
		}
		text = text[n:]
	}
	if w.open {
		w.found.Effect(sallyport.EffectWrite)
		w.found.Add(sallyport.High, "leaves a transaction open: its locks stay")
	}
	return true
}

// cut ends a statement: what was found belongs to it.
func (w *walk) cut(source string) {
	if w.found.Level() >= sallyport.High {
		w.found.Part("", "operation", strings.TrimSpace(source))
		if len(w.found.Risk().Effects) == 0 {
			w.found.Effect(sallyport.EffectWrite)
		}
	}
	w.all = append(w.all, w.found)
	w.found = finding.List{}
}

// risk joins what was found, the most dangerous statement first.
func (w *walk) risk() sallyport.Risk {
	w.found.Join(w.all)
	if w.found.Empty() {
		w.found.Add(sallyport.Low, "only reads")
	}
	if w.real > 1 {
		w.found.Add(w.found.Level(), "holds %d statements: the worst of them counts", w.real)
	}
	return w.found.Risk()
}

// statement judges the first statement of text and says how long it is.
func (w *walk) statement(text string) (length int, ok bool) {
	all := tokens(text)
	if len(all) > 0 && all[0].op(";") {
		return all[0].end, true
	}
	list := first(all)
	if len(list) == 0 {
		p := w.session.prepare(text)
		if p.err != "" || !p.empty || p.length == 0 {
			w.refused(p.err)
			return 0, false
		}
		return p.length, true
	}
	w.real++
	if list[0].is("drop") {
		text, list = withoutIfExists(text, list)
	}
	text = withoutIndexedBy(text, list)
	p := w.session.prepare(text)
	for p.err != "" {
		if w.mends++; w.mends > maxMends {
			w.found.Add(sallyport.Critical, "the SQL names more than can be made up to judge it")
			return 0, false
		}
		if list[0].is("drop") && strings.HasPrefix(p.err, "no such ") {
			return w.dropMissing(text, list)
		}
		if !w.schema.mend(p.err, list) {
			w.refused(p.err)
			w.suspect(all)
			return 0, false
		}
		p = w.session.prepare(text)
	}
	if p.length == 0 {
		w.refused("nothing was read")
		return 0, false
	}
	w.effects(p, text[:p.length], tokens(text[:p.length]))
	return p.length, true
}

func (w *walk) refused(message string) {
	w.found.Effect(sallyport.EffectOpaque)
	w.found.Add(sallyport.Critical, "SQLite cannot compile the SQL, so what it does is unknown: %s", message)
}

// suspect looks at a text that did not compile for what it seems to take away.
// What is here only raises a verdict that is critical already.
func (w *walk) suspect(list []token) {
	for i := 0; i+1 < len(list); i++ {
		t, next := list[i], list[i+1]
		if t.is("drop") && next.kind == word || t.is("delete") && next.is("from") {
			w.found.Effect(sallyport.EffectDelete)
			w.found.Lost("seems to drop or delete: %s %s", strings.ToUpper(t.value), next.value)
			return
		}
	}
}

// withoutIfExists blanks the IF EXISTS of a DROP, so that what it names is
// looked for.
func withoutIfExists(text string, list []token) (string, []token) {
	if len(list) < 5 || !list[2].is("if") || !list[3].is("exists") {
		return text, list
	}
	from, to := list[2].start, list[3].end
	text = text[:from] + strings.Repeat(" ", to-from) + text[to:]
	return text, append(append([]token(nil), list[:2]...), list[4:]...)
}

// withoutIndexedBy blanks INDEXED BY and its name: it only chooses an index, and
// the made-up schema has none.
func withoutIndexedBy(text string, list []token) string {
	for i := 0; i+2 < len(list); i++ {
		if list[i].is("indexed") && list[i+1].is("by") && list[i+2].kind <= quoted {
			from, to := list[i].start, list[i+2].end
			text = text[:from] + strings.Repeat(" ", to-from) + text[to:]
		}
	}
	return text
}

// dropMissing judges a DROP whose object is not in the made-up schema, once
// SQLite has said that the syntax is right up to the name.
func (w *walk) dropMissing(text string, list []token) (int, bool) {
	if len(list) < 3 || len(list) > 5 {
		w.refused("more follows a DROP than a name")
		return 0, false
	}
	w.dropped(strings.ToLower(list[1].value), unquoted(list[2:]))
	end := list[len(list)-1].end
	rest := tokens(text[end:])
	if len(rest) == 0 {
		return len(text), true
	}
	return end + rest[0].end, true
}

func unquoted(list []token) string {
	var b strings.Builder
	for _, t := range list {
		b.WriteString(t.value)
	}
	return b.String()
}

func (w *walk) dropped(kind, name string) {
	w.found.Object(name)
	w.found.Effect(sallyport.EffectDestroy)
	w.found.Part("", kind, name)
	consequence := "it cannot be brought back"
	if kind == "table" {
		consequence = "its rows cannot be brought back"
	}
	w.found.Lost("drops %s %s: %s", kind, name, consequence)
}
