package risk

import (
	"context"
	"errors"
	"strings"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/pause"
	"sallyport.dev/sallyport/risk/cloud"
	"sallyport.dev/sallyport/risk/finding"
	"sallyport.dev/sallyport/risk/litesql"
	"sallyport.dev/sallyport/risk/pgsql"
	"sallyport.dev/sallyport/risk/shell"
)

// maxTime bounds one verdict where Options say nothing. One text takes a
// hundredth of that, and a call has few of them.
const maxTime = 700 * time.Millisecond

// A sitting judges one call: as long as the call lasts, and no longer than the
// Engine's time for one. That is time in which the process runs: what a call does
// is not unknown because the machine is busy.
type sitting struct {
	*Engine
	parse    func(text string) pgsql.Judgement
	sqlite   litesql.Judge
	commands shell.Judge
	late     func() string // why nothing more is judged, "" while there is time
}

// sit begins a sitting; end must be called.
func (e *Engine) sit(ctx context.Context) (s *sitting, end func()) {
	e.ready.Do(func() { _ = e.postgres.Warm(ctx) }) // making the parser ready is not the call's fault
	ctx, end = pause.Within(ctx, e.time)
	s = &sitting{Engine: e}
	s.parse = func(text string) pgsql.Judgement { return e.postgres.Judge(ctx, text) }
	s.sqlite = litesql.Judge{Bounded: func(where string) bool { return e.postgres.Bounded(ctx, where) }}
	s.commands = shell.Judge{SQL: s.sql}
	s.late = func() string {
		switch cause := context.Cause(ctx); {
		case cause == nil:
			return ""
		case errors.Is(cause, context.DeadlineExceeded):
			return "there is too much to judge in the time for it, so what the call does is unknown"
		default:
			return "the call ended before it was judged"
		}
	}
	return s, end
}

// alone judges one text that is no call's.
func (e *Engine) alone(judge func(*sitting) sallyport.Risk) sallyport.Risk {
	s, end := e.sit(context.Background())
	defer end()
	return judge(s)
}

func (e *sitting) sql(dialect, text string) sallyport.Risk {
	if why := e.late(); why != "" {
		return finding.One(sallyport.Critical, "%s", why)
	}
	var r sallyport.Risk
	switch strings.ToLower(dialect) {
	case "postgres", "postgresql":
		r = e.parse(text).Risk
	case "sqlite", "sqlite3":
		r, _ = e.sqlite.Judge(text)
	case "mysql", "mariadb":
		r, _ = e.mysql.Judge(text)
	case "":
		return finding.One(sallyport.Critical, "nothing says which SQL dialect it is, so what it does is unknown")
	default:
		return finding.One(sallyport.Critical, "the SQL dialect %q is not known: it must be postgres, sqlite or mysql", dialect)
	}
	if r.Level >= sallyport.High {
		return r
	}
	if word := commandAsAlias(text); word != "" {
		return r.Join(finding.One(sallyport.High, "%s is an alias here, and a command in another dialect", word))
	}
	return r
}

func (e *sitting) shell(text string) sallyport.Risk {
	if why := e.late(); why != "" {
		return finding.One(sallyport.Critical, "%s", why)
	}
	r, _ := e.commands.Judge(text)
	return r
}

// commandLines are programs of clouds whose words a shell must read.
var commandLines = map[string]bool{"bq": true, "gh": true, "heroku": true}

func (e *sitting) cloud(text string) sallyport.Risk {
	words := strings.Fields(text)
	if len(words) > 1 && (commandLines[words[0]] || shell.Shows(words)) {
		return e.shell(text)
	}
	if len(words) > 1 && (strings.ContainsAny(text, ";|&`\n") || strings.Contains(text, "$(")) {
		if _, ok := cloud.Command(words); ok {
			return e.shell(text)
		}
	}
	return cloud.Action(text)
}
