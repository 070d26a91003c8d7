package risk_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
	"sallyport.dev/sallyport/risk/paths"
)

// Each path gets its verdict, by a tool whose manifest says what is done to it.
func TestPathCorpus(t *testing.T) {
	e := engine(t)
	harmless, alarms := 0, 0
	for _, c := range corpus(t, "paths") {
		args := json.RawMessage(`{"p":"` + c.text + `"}`)
		r := e.Assess(context.Background(), fieldTool(sallyport.RiskField{Path: "/p", Kind: "path", Effect: c.effect}), args)
		if got := verdict(r); got != c.verdict {
			t.Errorf("paths.txt:%d: %s %s is %s, want %s: %q", c.line, c.effect, c.text, got, c.verdict, r.Reasons)
		}
		check(t, c.text, r)
		if c.effect == "reads" && c.verdict != "critical" {
			harmless++
			if r.Level == sallyport.Critical {
				alarms++
			}
		}
		if c.effect != "reads" && c.text != "" && len(r.Parts) == 0 {
			t.Errorf("paths.txt:%d: no part shows the path", c.line)
		}
	}
	if harmless < 30 || alarms > 0 {
		t.Errorf("%d harmless, %d alarms", harmless, alarms)
	}
}

// A path alone says nothing about what is done to it; a list is judged whole;
// what is no text is critical.
func TestPathFields(t *testing.T) {
	e := engine(t)
	field := func(effect string) sallyport.Tool {
		return fieldTool(sallyport.RiskField{Path: "/p", Kind: "path", Effect: effect})
	}
	move := fieldTool(sallyport.RiskField{Path: "/source", Kind: "path", Effect: "deletes"}, sallyport.RiskField{Path: "/destination", Kind: "path", Effect: "overwrites"})
	for _, c := range []struct {
		tool sallyport.Tool
		args string
		want string
	}{
		{field(""), `{"p":"notes.txt"}`, "high"}, // nothing says that the tool only reads
		{field("reads"), `{"p":["a.txt","b.txt"]}`, "low"},
		{field("reads"), `{"p":["a.txt",".env"]}`, "medium"},
		{field("reads"), `{"p":["a.txt",7]}`, "critical"},
		{field("reads"), `{"p":{"x":1}}`, "critical"},
		{field("writes"), `{"p":["a.txt"]}`, "irreversible"},
		{field("twists"), `{"p":"a.txt"}`, "critical"},
		{move, `{"source":"a","destination":"b"}`, "irreversible"},
		{field("reads"), `{"p":"a.txt","P":"b.txt"}`, "critical"},
	} {
		if got := verdict(e.Assess(context.Background(), c.tool, json.RawMessage(c.args))); got != c.want {
			t.Errorf("%s: %s, want %s", c.args, got, c.want)
		}
	}
}

// However a path is written, it is no less dangerous than plainly.
func FuzzPaths(f *testing.F) {
	for _, s := range []string{"a", "/etc/shadow", "~/.bashrc", "%2e%2e/x", `\\a\b`, "a\x00b", "//?/C:/x", "．ssh", strings.Repeat("../", 50)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		for _, use := range []paths.Use{paths.Names, paths.Reads, paths.Creates, paths.Appends, paths.Overwrites, paths.Deletes} {
			var plain, spelled finding.List
			paths.Judge(&plain, use, name)
			paths.Judge(&spelled, use, strings.ToUpper(name))
			if use >= paths.Overwrites && !plain.Risk().Irreversible {
				t.Fatalf("%q: %d is not irreversible", name, use)
			}
			if strings.ToLower(name) == name && isASCII(name) && plain.Level() > spelled.Level() {
				t.Fatalf("%q: %s, but in capitals %s", name, plain.Level(), spelled.Level())
			}
		}
	})
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r > 127 }) < 0
}
