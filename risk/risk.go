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
	"cmp"
	"context"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
	"sallyport.dev/sallyport/risk/mysql"
	"sallyport.dev/sallyport/risk/pgsql"
)

// Options configure an Engine.
type Options struct {
	// CacheDir holds what can be rebuilt; the compiled parser goes into its
	// folder wasm. "" compiles anew at each start, in about a second.
	CacheDir string
	// Internal are the organisation's own mail domains: a message to anybody
	// else is outside. None means that everybody is.
	Internal []string
	// Time bounds one verdict: what is not judged by then is critical. 0 is 0.7 s.
	Time time.Duration
}

// An Engine judges calls. It is safe for concurrent use, and is the path's
// assess step.
type Engine struct {
	postgres *pgsql.Parser
	mysql    mysql.Judge
	internal []string
	time     time.Duration
	shapes   shapes
	ready    sync.Once // the parser for PostgreSQL was started
}

// New returns an Engine. It fails if the cache could be written by somebody
// else: compiled code in it is run.
func New(o Options) (*Engine, error) {
	dir, err := trustedCache(o.CacheDir)
	if err != nil {
		return nil, err
	}
	return &Engine{postgres: pgsql.New(dir), mysql: mysql.New(), internal: o.Internal, time: cmp.Or(o.Time, maxTime)}, nil
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
	for _, dialect := range []string{"sqlite", "mysql"} {
		e.SQL(dialect, "SELECT 1")
	}
	e.Shell("true")
	return nil
}

// SQL judges a text of a dialect: "postgres", "sqlite" or "mysql". The dialect
// is never guessed: the same text means different things.
func (e *Engine) SQL(dialect, text string) sallyport.Risk {
	return e.alone(func(s *sitting) sallyport.Risk { return s.sql(dialect, text) })
}

// Shell judges a shell command or script.
func (e *Engine) Shell(text string) sallyport.Risk {
	return e.alone(func(s *sitting) sallyport.Risk { return s.shell(text) })
}

// Cloud judges an action of a cloud, or a command line of its programs.
// One that a shell would take for more than one is judged as a shell would read it.
func (e *Engine) Cloud(text string) sallyport.Risk {
	return e.alone(func(s *sitting) sallyport.Risk { return s.cloud(text) })
}

// HTTP judges a request, given as JSON {"method", "url", "headers", "body"} or as
// text: METHOD URL on the first line, headers on the following ones, and a body
// after an empty line.
func (e *Engine) HTTP(text string) sallyport.Risk {
	return e.alone(func(s *sitting) sallyport.Risk { return s.http(text) })
}

// Args judges a call of tool with arguments that are not canonical yet.
func (e *Engine) Args(tool sallyport.Tool, args []byte) sallyport.Risk {
	canonical, err := sallyport.Canonical(args)
	if err != nil {
		return finding.One(sallyport.Critical, "the arguments are not valid: %s", err)
	}
	return e.Assess(context.Background(), tool, canonical)
}
