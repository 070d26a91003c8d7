package policies

import (
	"strings"
	"testing"

	"sallyport.dev/sallyport"
)

func TestParseTable(t *testing.T) {
	rows, err := parseTable("t.yaml", []byte(`cases:
  - {agent: a, tool: run_python, args: {code: "print(1)"}, expect: allow}
  - agent: b
    roles: [agent, "reader"]
    profile: p
    tool: db__run_sql
    tainted: true
    args:
      sql: |
        DROP TABLE orders
      n: 9007199254740993
    expect: approval
`))
	if err != nil || len(rows) != 2 {
		t.Fatal(rows, err)
	}
	if r := rows[0]; r.line != 2 || string(r.args) != `{"code":"print(1)"}` || r.name != "a calls run_python" {
		t.Errorf("%+v %s", r, r.args)
	}
	if r := rows[1]; string(r.args) != `{"n":9007199254740993,"sql":"DROP TABLE orders\n"}` || len(r.roles) != 2 || !r.tainted || r.profile != "p" || r.line != 3 {
		t.Errorf("%+v %s", r, r.args)
	}
}

func TestParseTableSaysWhatIsWrong(t *testing.T) {
	for src, want := range map[string]string{
		"":              "holds no table",
		"cases: []":     "would test nothing",
		"cases: {a: b}": "must be a list",
		"case: []":      `unknown key "case"`,
		"cases:\n - {agent: a, tool: t, expect: maybe}":             "t.yaml:2",
		"cases:\n - {agent: a, expect: allow}":                      "needs a tool",
		"cases:\n - {tool: a, expect: allow}":                       "needs who makes it",
		"cases:\n - {agent: a, tool: t, expect: allow, args: [1]}":  "an object",
		"cases:\n - {agent: a, agent: b, tool: t, expect: allow}":   "t.yaml:2",
		"cases:\n - {agent: a, tool: t, expect: allow, roles: x}":   "roles must be a list",
		"cases:\n - {agent: a, tool: t, expect: allow, tainted: 1}": "true or false",
		"cases:\n - {agent: 7, tool: t, expect: allow}":             "expected text",
		"cases: [\n": "t.yaml:",
	} {
		_, err := parseTable("t.yaml", []byte(src))
		if sallyport.CodeOf(err) != sallyport.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", src, err)
		}
	}
}

func FuzzParseTable(f *testing.F) {
	f.Add([]byte("cases:\n - {agent: a, tool: t, expect: allow, args: {a: *x}}"))
	f.Add([]byte(`{"cases":[{"agent":"a","tool":"t","args":{"n":1e400},"expect":"deny"}]}`))
	f.Fuzz(func(t *testing.T, src []byte) {
		rows, err := parseTable("t", src)
		if err == nil && len(rows) == 0 {
			t.Error("neither calls nor an error")
		}
	})
}
