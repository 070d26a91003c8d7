package risk_test

import (
	"strings"
	"testing"

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
		query, ok := p.ExplainQuery(text)
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
		if query, ok := p.ExplainQuery(text); ok {
			t.Errorf("%q would be explained by %q", text, query)
		}
	}
	if _, ok := pgsql.EstimatedRows([]byte(`[{"Plan": 1}]`)); ok {
		t.Error("nonsense has rows")
	}
}
