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
const MaxText = 1 << 20

// A Parser judges PostgreSQL texts. It is safe for concurrent use.
type Parser struct {
	machine   *machine
	catalogue func() *catalogue
}

// New returns a Parser that keeps compiled code in cacheDir, "" for none. Who
// can write there can run code in this process: the caller checks the owner.
func New(cacheDir string) *Parser {
	return &Parser{machine: &machine{cache: cacheDir}, catalogue: sync.OnceValue(newCatalogue)}
}

// Warm compiles the parser and parses once, so that the first call is not slow.
func (p *Parser) Warm(ctx context.Context) error {
	if err := p.machine.start(ctx); err != nil {
		return fmt.Errorf("the PostgreSQL parser does not start: %w", err)
	}
	p.catalogue()
	_, err := p.machine.tree("SELECT 1")
	return err
}

// A Judgement is what became of one text.
type Judgement struct {
	Risk   sallyport.Risk
	Parsed bool     // PostgreSQL would accept the text's syntax
	Kinds  []string // the parser's names of the statements, e.g. "DropStmt"
}

// Judge says what text would do. It never fails: what cannot be judged is critical.
func (p *Parser) Judge(text string) (j Judgement) {
	defer func() {
		if r := recover(); r != nil {
			j = refuse("the SQL broke the analyser, so what it does is unknown")
		}
	}()
	return p.judge(text, 0)
}

func refuse(format string, args ...any) Judgement {
	return Judgement{Risk: finding.One(sallyport.Critical, format, args...)}
}

type tree struct {
	Stmts []struct {
		Stmt map[string]any `json:"stmt"`
	} `json:"stmts"`
}

const maxNested = 4 // queries within literals of queries

func (p *Parser) judge(text string, nested int) Judgement {
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
	raw, err := p.machine.tree(text)
	if syntax, ok := errors.AsType[*syntaxError](err); ok {
		return refuse("PostgreSQL cannot parse the SQL, so what it does is unknown: %s", syntax.message)
	}
	if err != nil {
		return refuse("the PostgreSQL parser gave up on the SQL, so what it does is unknown")
	}
	var t tree
	if err := json.Unmarshal(raw, &t); err != nil {
		return refuse("the SQL is nested too deeply to judge")
	}
	w := &walk{parser: p, catalogue: p.catalogue(), nested: nested, prepared: map[string]*finding.List{}, ctes: map[string]bool{}}
	for _, s := range t.Stmts {
		w.statements++
		w.statement(s.Stmt)
	}
	w.finish()
	if ambiguousStrings(text) {
		w.found.Add(sallyport.Critical, "a string ends in a backslash: the server's standard_conforming_strings decides where it ends")
	}
	return Judgement{Risk: w.found.Risk(), Parsed: true, Kinds: w.kinds}
}

// ambiguousStrings tells whether some plain string literal has a backslash just
// before a quote, so that a server with standard_conforming_strings off would
// read on where the parser stopped.
func ambiguousStrings(s string) bool {
	if !strings.Contains(s, `\'`) {
		return false
	}
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '-' && strings.HasPrefix(s[i:], "--"):
			if n := strings.IndexAny(s[i:], "\r\n"); n >= 0 {
				i += n
			} else {
				i = len(s)
			}
		case c == '/' && strings.HasPrefix(s[i:], "/*"):
			i = skipComment(s, i)
		case c == '"':
			i = skipPast(s, i+1, `"`)
		case c == '$':
			i = skipDollar(s, i)
		case c == '\'':
			escapes := i > 0 && (s[i-1] == 'e' || s[i-1] == 'E') && (i < 2 || !isWord(s[i-2]))
			end, backslash := skipString(s, i+1, escapes)
			if backslash && !escapes {
				return true
			}
			i = end
		default:
			i++
		}
	}
	return false
}

func skipString(s string, i int, escapes bool) (end int, backslash bool) {
	for i < len(s) {
		switch {
		case escapes && s[i] == '\\':
			i += 2
		case s[i] == '\'':
			if s[i-1] == '\\' {
				backslash = true
			}
			if i+1 >= len(s) || s[i+1] != '\'' {
				return i + 1, backslash
			}
			i += 2
		default:
			i++
		}
	}
	return len(s), backslash
}

func skipComment(s string, i int) int {
	depth := 0
	for i < len(s) {
		switch {
		case strings.HasPrefix(s[i:], "/*"):
			depth++
			i += 2
		case strings.HasPrefix(s[i:], "*/"):
			i += 2
			if depth--; depth == 0 {
				return i
			}
		default:
			i++
		}
	}
	return i
}

func skipDollar(s string, i int) int {
	end := i + 1
	for end < len(s) && isWord(s[end]) {
		end++
	}
	if end >= len(s) || s[end] != '$' || i > 0 && isWord(s[i-1]) {
		return i + 1
	}
	return skipPast(s, end+1, s[i:end+1])
}

func skipPast(s string, i int, mark string) int {
	if i > len(s) {
		return len(s)
	}
	if n := strings.Index(s[i:], mark); n >= 0 {
		return i + n + len(mark)
	}
	return len(s)
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}
