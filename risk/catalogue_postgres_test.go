package risk_test

import (
	"os"
	"strings"
	"testing"
)

// A volatile function of the running server's own catalogue is harmless only if
// it was judged so by hand; others are, unless they were judged not to be. One
// that a newer server brings is unknown, and so critical.
func TestCatalogueAgainstPostgres(t *testing.T) {
	s := startPostgres(t)
	e := engine(t)
	data, err := os.ReadFile("pgsql/judged.txt")
	if err != nil {
		t.Fatal(err)
	}
	shipped, err := os.ReadFile("pgsql/catalogue.txt")
	if err != nil {
		t.Fatal(err)
	}
	byHand := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] != "#" {
			for _, name := range fields[1:] {
				byHand[name] = fields[0]
			}
		}
	}
	out, err := s.command("", "psql", "-qAt", "-c", `SELECT max(provolatile), proname FROM pg_proc
		WHERE pronamespace = 'pg_catalog'::regnamespace GROUP BY 2`)
	if err != nil {
		t.Fatal(out)
	}
	checked, newer := 0, 0
	for line := range strings.Lines(out) {
		kind, name, ok := strings.Cut(strings.TrimSpace(line), "|")
		if !ok || byHand[name] == "sql" {
			continue
		}
		r := e.SQL("postgres", `SELECT pg_catalog."`+name+`"('a')`)
		want := byHand[name]
		known := func(kind string) bool { return strings.Contains(string(shipped), "\n"+kind+" "+name+"\n") }
		if !known("i") && !known("s") && !known("v") {
			t.Logf("%s came with a newer server", name)
			want = "critical"
			newer++
		}
		if want == "" {
			want = map[string]string{"i": "low", "s": "low", "v": "high"}[kind]
		}
		if got := verdict(r); got != want {
			t.Errorf("%s, which is %s in the server's catalogue, is %s, want %s", name, kind, got, want)
		}
		checked++
	}
	if checked < 2000 || newer > 20 {
		t.Errorf("%d functions, %d of them not in the catalogue that is shipped", checked, newer)
	}
}
