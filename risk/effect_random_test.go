package risk_test

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
)

// Texts that nobody wrote: two lines of a corpus, cut at words and joined. What
// is judged harmless of them is executed, and must change nothing.
func checkSplices(t *testing.T, kind string, n int, lab laboratory) {
	t.Helper()
	e := engine(t)
	lines := corpus(t, kind)
	random := rand.New(rand.NewPCG(7, 11))
	executed, tried := 0, 0
	for tried < 200*n && executed < n {
		tried++
		a, b := pieces(lines[random.IntN(len(lines))].text), pieces(lines[random.IntN(len(lines))].text)
		text := strings.Join(a[:random.IntN(len(a)+1)], "") + []string{"", " ", "\n", "; ", " /* ", " */ ", " -- "}[random.IntN(7)] + strings.Join(b[random.IntN(len(b)+1):], "")
		if r := e.SQL(kind, text); r.Level >= sallyport.High {
			continue
		}
		executed++
		if effect, detail := lab.observe(t, text); effect != "none" && effect != "refused" {
			t.Errorf("%s: %q is judged harmless, but executing it shows %q: %s", kind, text, effect, detail)
		}
	}
	t.Logf("%s: %d of %d spliced texts were judged harmless and executed", kind, executed, tried)
	if executed < n/2 {
		t.Errorf("%s: only %d texts were executed", kind, executed)
	}
}

var wordsAndSpaces = regexp.MustCompile(`\s+|[\pL\pN_]+|.`)

func pieces(text string) []string { return wordsAndSpaces.FindAllString(text, -1) }

func TestSplicesInSQLite(t *testing.T) {
	t.Parallel()
	checkSplices(t, "sqlite", 60, newSQLiteLab(t))
}

func TestSplicesInPostgres(t *testing.T) {
	t.Parallel()
	checkSplices(t, "postgres", 60, newPostgresLab(t))
}

func TestSplicesInMariaDB(t *testing.T) {
	t.Parallel()
	checkSplices(t, "mysql", 60, startMariaDB(t))
}

// No text that is judged harmless changes anything in a real SQLite, the
// connection's own settings among it.
func FuzzSQLiteEffects(f *testing.F) {
	e := engine(f)
	for _, c := range corpus(f, "sqlite") {
		f.Add(c.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if r := e.SQL("sqlite", text); r.Level >= sallyport.High {
			return
		}
		db, err := sql.Open("sqlite", ":memory:")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		db.SetMaxOpenConns(1)
		if _, err := db.Exec(sqliteSeed); err != nil {
			t.Fatal(err)
		}
		before := memoryState(t, db)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_ = runSQLite(ctx, db, text)
		if effect, detail := effectOf(before, memoryState(t, db)); effect != "none" {
			t.Fatalf("%q is judged harmless, but: %s, %s", text, effect, detail)
		}
	})
}

func memoryState(t *testing.T, db *sql.DB) state {
	t.Helper()
	s := state{}
	for _, q := range []string{"SELECT * FROM sqlite_master", "SELECT * FROM customers", "SELECT * FROM orders", "SELECT * FROM lines", "SELECT * FROM user_secrets",
		"PRAGMA user_version", "PRAGMA application_id", "PRAGMA foreign_keys", "PRAGMA recursive_triggers", "PRAGMA query_only", "PRAGMA writable_schema",
		"PRAGMA trusted_schema", "PRAGMA ignore_check_constraints", "PRAGMA cache_size", "PRAGMA busy_timeout", "PRAGMA temp_store"} {
		rows, err := db.QueryContext(t.Context(), q)
		if err != nil {
			t.Fatalf("%s: %v", q, err)
		}
		s.set("object:"+q, texts(t, rows)...)
		rows.Close()
	}
	return s
}
