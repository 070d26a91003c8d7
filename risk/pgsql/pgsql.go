// Package pgsql judges SQL in PostgreSQL's dialect by what it would do. The
// text goes through PostgreSQL's own parser, confined in Wasm, and the tree is
// walked against a list of what is known: whatever is not on it is critical.
//
// What it cannot see, because it looks at the text alone: functions behind
// views, triggers, rules, row policies, casts and column-like calls (t.f).
// The role that the server gives the agent has to bound those.
package pgsql

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

// MaxText bounds a text, in bytes. Longer ones are critical.
const MaxText = finding.MaxText

// A Parser judges PostgreSQL texts. It is safe for concurrent use.
type Parser struct {
	machine   *machine
	catalogue func() *catalogue
}

// New returns a Parser that keeps compiled code in cacheDir, "" for none. Who
// can write there can run code in this process: the caller checks the owner.
func New(cacheDir string) *Parser {
	return &Parser{machine: newMachine(cacheDir), catalogue: sync.OnceValue(newCatalogue)}
}

// Warm compiles the parser and parses once, so that the first call is not slow.
func (p *Parser) Warm(ctx context.Context) error {
	if err := p.machine.start(ctx); err != nil {
		return fmt.Errorf("the PostgreSQL parser does not start: %w", err)
	}
	p.catalogue()
	_, err := p.machine.tree(ctx, "SELECT 1")
	return err
}

// A Judgement is what became of one text.
type Judgement struct {
	Risk   sallyport.Risk
	Parsed bool     // PostgreSQL would accept the text's syntax
	Kinds  []string // the parser's names of the statements, e.g. "DropStmt"
}

// Judge says what text would do. It never fails: what cannot be judged, before
// ctx ends or at all, is critical.
func (p *Parser) Judge(ctx context.Context, text string) (j Judgement) {
	defer func() {
		if r := recover(); r != nil {
			j = refuse("the SQL broke the analyser, so what it does is unknown")
		}
	}()
	return p.judge(ctx, text, 0)
}

func refuse(format string, args ...any) Judgement {
	var l finding.List
	l.Add(sallyport.Critical, format, args...)
	l.Effect(sallyport.EffectOpaque)
	return Judgement{Risk: l.Risk()}
}

// written is a statement as it stands in the text.
func written(text string, from, length int) string {
	if from < 0 || from > len(text) {
		return ""
	}
	if length <= 0 || from+length > len(text) {
		length = len(text) - from
	}
	return strings.TrimSpace(text[from : from+length])
}

type tree struct {
	Stmts []struct {
		Stmt     map[string]any `json:"stmt"`
		Location int            `json:"stmt_location"` // in bytes
		Length   int            `json:"stmt_len"`      // 0 for the rest
	} `json:"stmts"`
}

const maxNested = 4 // queries within literals of queries

func (p *Parser) judge(ctx context.Context, text string, nested int) Judgement {
	switch {
	case len(text) > MaxText:
		return refuse("the SQL is too long to judge: %d bytes, and %d is the most", len(text), MaxText)
	case !utf8.ValidString(text):
		return refuse("the SQL is not valid UTF-8")
	case strings.IndexByte(text, 0) >= 0:
		return refuse("the SQL holds a NUL byte: what follows it may or may not be read")
	case nested > maxNested:
		return refuse("the SQL holds queries within queries, too deep to judge")
	}
	raw, err := p.machine.tree(ctx, text)
	if syntax, ok := errors.AsType[*syntaxError](err); ok {
		return refuse("PostgreSQL cannot parse the SQL, so what it does is unknown: %s", syntax.message)
	}
	if errors.Is(err, errLate) {
		return refuse("the SQL takes too long to judge, so what it does is unknown")
	}
	if err != nil {
		return refuse("the PostgreSQL parser gave up on the SQL, so what it does is unknown")
	}
	var t tree
	if err := json.Unmarshal(raw, &t); err != nil {
		return refuse("the SQL is nested too deeply to judge")
	}
	w := &walk{catalogue: p.catalogue(), nest: func(inner string) Judgement { return p.judge(ctx, inner, nested+1) }, prepared: map[string]*finding.List{}, ctes: map[string]bool{}}
	for _, s := range t.Stmts {
		w.statements++
		w.statement(s.Stmt)
		w.cut(written(text, s.Location, s.Length))
	}
	w.finish()
	if ambiguousStrings(text) {
		w.found.Add(sallyport.Critical, "a string ends in a backslash: the server's standard_conforming_strings decides where it ends")
	}
	if hidesLine(text) {
		w.found.Add(sallyport.High, "a comment holds a character that other readers take for the end of the line")
	}
	return Judgement{Risk: w.found.Risk(), Parsed: true, Kinds: w.kinds}
}
