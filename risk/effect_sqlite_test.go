package risk_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"
)

const sqliteSeed = `
CREATE TABLE customers (id INTEGER PRIMARY KEY, name, password, api_key);
CREATE TABLE orders (id INTEGER, customer_id, total, note, created_at);
CREATE TABLE lines (order_id, qty);
CREATE TABLE user_secrets (id, value);
CREATE TABLE audit (x);
CREATE VIEW v AS SELECT id FROM orders;
CREATE INDEX i ON orders (total);
CREATE TRIGGER tr AFTER INSERT ON audit BEGIN UPDATE orders SET note = 'seen' WHERE id = 1; END;
INSERT INTO customers VALUES (1, 'Ann', 'x', 'y'), (2, 'Bob', 'x', 'y'), (3, 'Cyd', 'x', 'y');
INSERT INTO orders VALUES (1, 1, 20, 'abcd', '2019-01-01'), (2, 2, 5, 'b', '2024-01-01'), (3, 2, 50, 'c', '2024-02-01');
INSERT INTO lines VALUES (1, 2), (2, 1), (3, 9);
INSERT INTO user_secrets VALUES (1, 's');`

// A sqliteLab executes lines in throw-away copies of one database file.
type sqliteLab struct{ seed []byte }

func newSQLiteLab(t testing.TB) *sqliteLab {
	t.Helper()
	return &sqliteLab{seeded(t, sqliteSeed)}
}

// plant makes a seed the one that every line finds from now on.
func (l *sqliteLab) plant(t *testing.T, seed string) {
	t.Helper()
	l.seed = seeded(t, seed)
}

// seeded is the file of a database in which a seed was executed.
func seeded(t testing.TB, seed string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "seed.db")
	db, err := sql.Open("sqlite", path+"?_pragma=synchronous(off)")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(seed); err != nil {
		t.Fatal(err)
	}
	db.Close()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// sqliteState writes down all that a statement could change: schema, rows, the
// database's own numbers, and the files around it.
func sqliteState(t testing.TB, path string) state {
	t.Helper()
	s := state{}
	db, err := sql.Open("sqlite", path+"?_pragma=synchronous(off)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows := func(query string) []string {
		r, err := db.QueryContext(t.Context(), query)
		if err != nil {
			return []string{"error: " + err.Error()}
		}
		defer r.Close()
		return texts(t, r)
	}
	for _, line := range rows("SELECT type || ' ' || name, sql FROM sqlite_master") {
		key, value, _ := strings.Cut(line, "|")
		_, body, _ := strings.Cut(value, "(") // the name is in the key
		s.set("object:"+key, body)
	}
	for _, table := range rows("SELECT name FROM sqlite_master WHERE type = 'table'") {
		s.set("rows:"+table, rows(`SELECT * FROM "`+table+`"`)...)
		for _, c := range rows(`SELECT cid || ' ' || "notnull" || pk, name FROM pragma_table_info('` + table + `')`) {
			key, name, _ := strings.Cut(c, "|")
			s.set("object:column "+table+"."+name, key)
		}
	}
	for _, p := range []string{"user_version", "application_id", "journal_mode", "page_size", "auto_vacuum", "encoding"} {
		s.set("object:pragma "+p, rows("PRAGMA "+p)...)
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasPrefix(filepath.Base(f), "shop.db") {
			s.set("file:" + filepath.Base(f))
		}
	}
	return s
}

func texts(t testing.TB, r *sql.Rows) []string {
	t.Helper()
	columns, err := r.Columns()
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for r.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		if err := r.Scan(values...); err != nil {
			t.Fatal(err)
		}
		line := make([]string, len(values))
		for i, v := range values {
			line[i] = fmt.Sprint(*v.(*any))
		}
		out = append(out, strings.Join(line, "|"))
	}
	return out
}

func (l *sqliteLab) observe(t *testing.T, text string) (effect, detail string) {
	return l.execute(t, text)
}

func (l *sqliteLab) execute(t testing.TB, text string) (effect, detail string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "shop.db")
	if err := os.WriteFile(path, l.seed, 0o600); err != nil {
		t.Fatal(err)
	}
	before := sqliteState(t, path)
	db, err := sql.Open("sqlite", path+"?_pragma=synchronous(off)")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	failed := runSQLite(ctx, db, strings.ReplaceAll(text, "/tmp/", dir+"/"))
	locked := !writable(t, path)
	db.Close()
	after := sqliteState(t, path)
	if locked {
		after.set("session:lock", "held")
	}
	effect, detail = effectOf(before, after)
	if failed != nil && effect == "none" {
		return "refused", failed.Error()
	}
	return effect, detail
}

// writable tells whether another connection can write.
func writable(t testing.TB, path string) bool {
	t.Helper()
	db, err := sql.Open("sqlite", path+"?_pragma=synchronous(off)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	_, err = db.Exec("BEGIN EXCLUSIVE; ROLLBACK")
	return err == nil
}

func runSQLite(ctx context.Context, db *sql.DB, text string) error {
	var args []any
	if strings.Contains(text, "?") && strings.Contains(text, ":min") {
		args = []any{"x", sql.Named("min", 1)}
	}
	rows, err := db.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for {
		for rows.Next() {
		}
		if !rows.NextResultSet() {
			return rows.Err()
		}
	}
}

func TestEffectsInSQLite(t *testing.T) {
	t.Parallel()
	checkEffects(t, "sqlite", newSQLiteLab(t))
}
