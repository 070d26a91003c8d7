package risk_test

import (
	"context"
	"encoding/json"
	"testing"

	"sallyport.dev/sallyport"
)

// What a manifest does not name is judged as if there were none.
func TestArgumentsBesideTheDeclared(t *testing.T) {
	e := engine(t)
	sql, sh := sqlTool("postgres"), fieldTool(sallyport.RiskField{Path: "/command", Kind: "shell"})
	vouched := sqlTool("postgres")
	vouched.Manifest.ReadOnly = true
	inert := sqlTool("postgres")
	inert.Manifest.Fields = append(inert.Manifest.Fields, sallyport.RiskField{Path: "/why", Kind: "inert"})
	list := fieldTool(sallyport.RiskField{Path: "/steps/*/sql", Kind: "sql", Dialect: "postgres"})
	filled := sqlTool("postgres")
	filled.InputSchema = json.RawMessage(`{"type":"object","properties":{"sql":{"type":"string","default":"DROP TABLE x"},"then":{"type":"string","default":"DROP TABLE y"}}}`)
	plain := filled
	plain.InputSchema = json.RawMessage(`{"type":"object","properties":{"sql":{"type":"string","default":"DROP TABLE x"},"limit":{"type":"integer","default":5}}}`)
	for _, tt := range []struct {
		args, want string
		tool       sallyport.Tool
	}{
		{`{"sql":"SELECT 1"}`, "low", sql},
		{`{"sql":"SELECT 1","limit":10,"format":"json","explain":false,"columns":["id","total"],"schema":null}`, "low", sql},
		{`{"sql":"SELECT 1","then":"DELETE FROM orders"}`, "irreversible", sql},
		{`{"sql":"SELECT 1","a":{"b":["{\"c\":\"DROP TABLE orders\"}"]}}`, "irreversible", sql},
		{`{"command":"ls","then":"rm -rf /srv"}`, "irreversible", sh},
		{`{"command":"ls","then":["rm","-rf","/srv"]}`, "irreversible", sh},
		{`{"command":"ls","env":{"LD_PRELOAD":"/tmp/x.so"}}`, "high", sh},
		{`{"command":"ls","after":"python3 /tmp/x.py"}`, "high", sh},
		{`{"command":"ls","after":"$(x)"}`, "high", sh},
		{`{"command":"ls","m":"DELETE","u":"https://api.example.com/x"}`, "irreversible", sh},
		{`{"sql":"DELETE FROM orders","limit":1}`, "irreversible", sql},
		{`{"sql":"SELECT 1","why":"to see whether all is well"}`, "high", sql},
		{`{"sql":"SELECT 1","why":"to see whether all is well"}`, "low", inert},
		{`{"sql":"SELECT 1","why":"to see whether all is well"}`, "low", vouched},
		{`{"steps":[{"sql":"SELECT 1"},{"sql":"SELECT 2","n":1}]}`, "low", list},
		{`{"steps":[{"sql":"SELECT 1","after":"DROP TABLE orders"}]}`, "irreversible", list},
		{`{"sql":"SELECT 1"}`, "irreversible", filled}, // the server puts its own default there
		{`{"sql":"SELECT 1"}`, "low", plain},
	} {
		r := e.Assess(context.Background(), tt.tool, json.RawMessage(tt.args))
		if got := verdict(r); got != tt.want {
			t.Errorf("%s is %s, want %s: %q", tt.args, got, tt.want, r.Reasons)
		}
	}
}
