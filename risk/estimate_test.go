package risk_test

import (
	"strconv"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/pgsql"
)

// A real PostgreSQL estimates the rows of a statement that is not run.
func TestEstimateOfRows(t *testing.T) {
	l := newPostgresLab(t)
	p := pgsql.New(cacheDir)
	c := l.connect(t, "lab")
	defer c.Close(t.Context())
	ask(t, c, "INSERT INTO log SELECT generate_series(1, 1000); ANALYZE log")
	for text, want := range map[string]int64{
		"DELETE FROM log":                          1000,
		"UPDATE log SET n = 0 WHERE n = 5":         1,
		"SELECT * FROM log":                        1000,
		"DELETE FROM log WHERE n IN (1, 2, 3)":     3,
		"INSERT INTO archive SELECT n FROM log;":   1000,
		"UPDATE log SET n = n + 1 WHERE n <= 1000": 1000,
	} {
		query, ok := p.ExplainQuery(t.Context(), text)
		if !ok {
			t.Errorf("%s: no query", text)
			continue
		}
		got, ok := pgsql.EstimatedRows([]byte(strings.Join(ask(t, c, query), "\n")))
		if !ok || got < want*9/10 || got > want*11/10 {
			t.Errorf("%s: %d rows, %v; want %d", text, got, ok, want)
		}
	}
	if n := ask(t, c, "SELECT count(*) FROM log"); n[0] != "1000" {
		t.Errorf("estimating changed the table: %s rows", n[0])
	}
	for _, text := range []string{"DROP TABLE log", "SELECT 1; DELETE FROM log", "DELETE FROM log WHERE n = my_function()", "EXPLAIN ANALYZE DELETE FROM log", "DELETE", ""} {
		if query, ok := p.ExplainQuery(t.Context(), text); ok {
			t.Errorf("%q would be explained by %q", text, query)
		}
	}
}

// Only one declared argument, of one dialect, is worth a question.
func TestExplain(t *testing.T) {
	e := engine(t)
	field := func(path, dialect string) sallyport.RiskField {
		return sallyport.RiskField{Path: path, Kind: "sql", Dialect: dialect}
	}
	for _, tt := range []struct {
		args, want string
		fields     []sallyport.RiskField
	}{
		{`{"q":"DELETE FROM a"}`, "EXPLAIN (FORMAT JSON) DELETE FROM a", []sallyport.RiskField{field("/q", "postgres")}},
		{`{"q":"DELETE FROM a"}`, "EXPLAIN (FORMAT JSON) DELETE FROM a", []sallyport.RiskField{field("/q", "PostgreSQL"), field("/other", "postgres")}},
		{`{"q":"DELETE FROM a"}`, "only PostgreSQL is asked", []sallyport.RiskField{field("/q", "sqlite")}},
		{`{"q":"DELETE FROM a"}`, "only PostgreSQL is asked", []sallyport.RiskField{field("/q", "")}},
		{`{"q":"DELETE FROM a","r":"SELECT 1"}`, "2 arguments of SQL", []sallyport.RiskField{field("/q", "postgres"), field("/r", "postgres")}},
		{`{"q":["DELETE FROM a"]}`, "not one text", []sallyport.RiskField{field("/q/*", "postgres")}},
		{`{"q":["DELETE FROM a"]}`, "not one text", []sallyport.RiskField{field("/q", "postgres")}},
		{`{"q":"DELETE FROM a"}`, "0 arguments of SQL", nil},
		{`{"q":"DELETE FROM a; DELETE FROM b"}`, "not one SELECT", []sallyport.RiskField{field("/q", "postgres")}},
		{`{"q":"ANALYZE DELETE FROM a"}`, "not one SELECT", []sallyport.RiskField{field("/q", "postgres")}},
		{`{"q":"(ANALYZE) DELETE FROM a"}`, "not one SELECT", []sallyport.RiskField{field("/q", "postgres")}},
		{`{"q":"SELECT my_function()"}`, "could act already", []sallyport.RiskField{field("/q", "postgres")}},
		{`{"q":"SELECT pg_sleep(100)"}`, "could act already", []sallyport.RiskField{field("/q", "postgres")}},
		{`{"q":"TRUNCATE a"}`, "not one SELECT", []sallyport.RiskField{field("/q", "postgres")}},
	} {
		got, err := e.Explain(t.Context(), sallyport.Tool{Manifest: sallyport.Manifest{Fields: tt.fields}}, []byte(tt.args))
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.args, got, tt.want)
		}
	}
}

// A plan is found however a server wraps it, and only if there is exactly one.
func TestRowsOfAnAnswer(t *testing.T) {
	e := engine(t)
	const plan = `[{"Plan":{"Node Type":"Seq Scan","Plan Rows":42}}]`
	text := func(v string) string { return strconv.Quote(v) }
	for _, tt := range []struct {
		answer string
		rows   int64
		ok     bool
	}{
		{plan, 42, true},
		{`{"content":[{"type":"text","text":` + text(plan) + `}]}`, 42, true},
		{`{"content":[{"type":"text","text":` + text(`[{"QUERY PLAN":`+plan+`}]`) + `}]}`, 42, true},
		{`{"content":[{"type":"text","text":` + text(`{"rows":[{"QUERY PLAN":`+text(plan)+`}]}`) + `}],"structuredContent":{"rows":[{"QUERY PLAN":` + plan + `}]}}`, 42, true},
		{`[[{"Plan":{"Node Type":"ModifyTable","Plan Rows":0,"Plans":[{"Plan Rows":7},{"Plan Rows":2}]}}]]`, 9, true},
		{`[` + plan + `,[{"Plan":{"Node Type":"Seq Scan","Plan Rows":43}}]]`, 0, false},
		{`{"content":[{"type":"text","text":"Seq Scan on log (rows=1000)"}]}`, 0, false},
		{`[{"Plan":1}]`, 0, false}, {`[{"Plan":{}}]`, 0, false}, {``, 0, false}, {`null`, 0, false},
		{`[{"Plan":{"Node Type":"Seq Scan","Plan Rows":-1}}]`, 0, false},
		{`[{"Plan":{"Node Type":"Seq Scan","Plan Rows":1e300}}]`, 0, false},
		{strings.Repeat("[", 5000) + plan + strings.Repeat("]", 5000), 0, false},
		{`"` + strings.Repeat(" ", 1<<20) + `"`, 0, false},
	} {
		if rows, ok := e.Rows([]byte(tt.answer)); rows != tt.rows || ok != tt.ok {
			t.Errorf("%.80s: %d %v, want %d %v", tt.answer, rows, ok, tt.rows, tt.ok)
		}
	}
}
