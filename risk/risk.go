// Package risk judges a call by its effect: what the SQL, the shell command or
// the HTTP request in its arguments would do, and what a sandboxed tool can
// reach. It touches nothing. The names of tools and arguments never matter, nor
// does anything that an upstream says about itself.
//
//	low       proven to change nothing
//	medium    reads what is secret
//	high      writes, locks, changes privileges, the session or the server
//	critical  unknown or unparsable, many rows, or not to be undone
package risk

import (
	"context"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/cloud"
	"sallyport.dev/sallyport/risk/finding"
	"sallyport.dev/sallyport/risk/litesql"
	"sallyport.dev/sallyport/risk/mysql"
	"sallyport.dev/sallyport/risk/pgsql"
	"sallyport.dev/sallyport/risk/shell"
)

// Options configure an Engine.
type Options struct {
	// CacheDir holds what can be rebuilt; the compiled parser goes into its
	// folder wasm. "" compiles anew at each start, in about a second.
	CacheDir string
	// Internal are the organisation's own mail domains: a message to anybody
	// else is outside. None means that everybody is.
	Internal []string
}

// An Engine judges calls. It is safe for concurrent use, and is the path's
// assess step.
type Engine struct {
	postgres *pgsql.Parser
	sqlite   litesql.Judge
	mysql    mysql.Judge
	commands shell.Judge
	internal []string
	shapes   shapes
}

// New returns an Engine. It fails if the cache could be written by somebody
// else: compiled code in it is run.
func New(o Options) (*Engine, error) {
	dir, err := trustedCache(o.CacheDir)
	if err != nil {
		return nil, err
	}
	e := &Engine{postgres: pgsql.New(dir), mysql: mysql.New(), internal: o.Internal}
	e.sqlite = litesql.Judge{Bounded: e.postgres.Bounded}
	e.commands = shell.Judge{SQL: e.SQL}
	return e, nil
}

// Warm makes the parsers ready, so that no call waits for it: about a second
// without a cache, a fifth of one with it.
func (e *Engine) Warm(ctx context.Context) error {
	if err := e.postgres.Warm(ctx); err != nil {
		return &sallyport.Error{
			Code: sallyport.Unavailable, Step: sallyport.Assess, Err: err,
			Message: "the SQL parser does not start, so calls cannot be judged",
			Hint:    "the log has the cause; removing the cache's wasm folder makes it anew",
		}
	}
	e.sqlite.Judge("SELECT 1")
	e.mysql.Judge("SELECT 1")
	e.commands.Judge("true")
	return nil
}

// SQL judges a text of a dialect: "postgres", "sqlite" or "mysql". The dialect
// is never guessed: the same text means different things.
func (e *Engine) SQL(dialect, text string) sallyport.Risk {
	var r sallyport.Risk
	switch strings.ToLower(dialect) {
	case "postgres", "postgresql":
		r = e.postgres.Judge(text).Risk
	case "sqlite", "sqlite3":
		r, _ = e.sqlite.Judge(text)
	case "mysql", "mariadb":
		r, _ = e.mysql.Judge(text)
	case "":
		return finding.One(sallyport.Critical, "nothing says which SQL dialect it is, so what it does is unknown")
	default:
		return finding.One(sallyport.Critical, "the SQL dialect %q is not known: it must be postgres, sqlite or mysql", dialect)
	}
	if word := commandAsAlias(text); r.Level < sallyport.High && word != "" {
		return r.Join(finding.One(sallyport.High, "%s is an alias here, and a command in another dialect", word))
	}
	return r
}

// Shell judges a shell command or script.
func (e *Engine) Shell(text string) sallyport.Risk {
	r, _ := e.commands.Judge(text)
	return r
}

// Cloud judges an action of a cloud, or a command line of its programs.
// One that a shell would take for more than one is judged as a shell would read it.
func (e *Engine) Cloud(text string) sallyport.Risk {
	if words := strings.Fields(text); len(words) > 1 && (strings.ContainsAny(text, ";|&`\n") || strings.Contains(text, "$(")) {
		if _, ok := cloud.Command(words); ok {
			return e.Shell(text)
		}
	}
	return cloud.Action(text)
}

// Args judges a call of tool with arguments that are not canonical yet.
func (e *Engine) Args(tool sallyport.Tool, args []byte) sallyport.Risk {
	canonical, err := sallyport.Canonical(args)
	if err != nil {
		return finding.One(sallyport.Critical, "the arguments are not valid: %s", err)
	}
	return e.Assess(tool, canonical)
}
