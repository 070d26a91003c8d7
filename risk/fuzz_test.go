package risk_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
)

func check(t *testing.T, text string, r sallyport.Risk) {
	t.Helper()
	if r.Reasons == nil || r.Objects == nil || len(r.Reasons) == 0 {
		t.Fatalf("%q: reasons %#v, objects %#v: want a reason, and no nil", text, r.Reasons, r.Objects)
	}
	if r.Irreversible && r.Level != sallyport.Critical {
		t.Fatalf("%q: irreversible, but %s", text, r.Level)
	}
	for _, reason := range r.Reasons {
		if len(reason) > 1024 {
			t.Fatalf("%q: a reason of %d bytes", text, len(reason))
		}
	}
}

func fuzz(f *testing.F, kind string) {
	e := engine(f)
	judge := analysers(e)[kind]
	for _, c := range corpus(f, kind) {
		f.Add(c.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		start := time.Now()
		check(t, text, judge(text))
		if took := time.Since(start); took > time.Minute {
			t.Fatalf("%d bytes take %s to judge", len(text), took)
		}
	})
}

func FuzzPostgres(f *testing.F) { fuzz(f, "postgres") }
func FuzzSQLite(f *testing.F)   { fuzz(f, "sqlite") }
func FuzzShell(f *testing.F)    { fuzz(f, "shell") }
func FuzzHTTP(f *testing.F)     { fuzz(f, "http") }

func FuzzMySQL(f *testing.F) { fuzz(f, "mysql") }

// A harmless statement before or after never makes a destructive one pass.
func FuzzPostgresSuffix(f *testing.F) {
	e := engine(f)
	for _, c := range corpus(f, "postgres") {
		f.Add(c.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if r := e.SQL("postgres", text); r.Level == sallyport.Critical {
			return
		}
		if r := e.SQL("postgres", text+"\n;DROP TABLE orders"); r.Level != sallyport.Critical {
			t.Fatalf("%q, then DROP TABLE: %s", text, r.Level)
		}
	})
}

// The same for SQLite.
func FuzzSQLiteSuffix(f *testing.F) {
	e := engine(f)
	for _, c := range corpus(f, "sqlite") {
		f.Add(c.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "/*") {
			return // SQLite takes a comment that has no end
		}
		if r := e.SQL("sqlite", text); r.Level == sallyport.Critical {
			return
		}
		if r := e.SQL("sqlite", text+"\n;DROP TABLE orders"); r.Level != sallyport.Critical {
			t.Fatalf("%q, then DROP TABLE: %s", text, r.Level)
		}
	})
}

// The same for the shell.
func FuzzShellSuffix(f *testing.F) {
	e := engine(f)
	for _, c := range corpus(f, "shell") {
		f.Add(c.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.HasSuffix(text, "\\") || strings.Contains(text, "<<") {
			return // the next line belongs to this one, or to a here-document
		}
		if r := e.Shell(text); r.Level == sallyport.Critical {
			return
		}
		if r := e.Shell(text + "\nrm -rf x"); r.Level != sallyport.Critical {
			t.Fatalf("%q, then rm: %s", text, r.Level)
		}
	})
}

func FuzzAssess(f *testing.F) {
	e := engine(f)
	for _, s := range []string{
		``, `{}`, `{"sql":"SELECT 1"}`, `{"sql":["DROP TABLE x"]}`, `{"sql":"{\"a\":\"DROP TABLE x\"}"}`, `{"a":["rm","-rf","/"]}`,
		`{"p":"rm","q":["-rf"]}`, `{"m":"DELETE","u":"https://a.example/"}`, `[1,"\u0044ROP TABLE x"]`, `{"sql":1}`, `{"a":"\\`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, args string) {
		for _, tool := range []sallyport.Tool{sqlTool("postgres"), sqlTool("sqlite"), undeclared, fieldTool(sallyport.RiskField{Path: "/a", Kind: "shell"})} {
			r := e.Assess(context.Background(), tool, json.RawMessage(args))
			check(t, args, r)
			if len(tool.Manifest.Fields) == 0 && r.Level < sallyport.High {
				t.Fatalf("%q: an undeclared tool is %s", args, r.Level)
			}
		}
	})
}
