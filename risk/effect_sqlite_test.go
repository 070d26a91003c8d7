package risk_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"sort"
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

// state writes down all that a statement could change: schema, rows, the
// database's own numbers, and the files around it.
func state(t *testing.T, ctx context.Context, path string) string {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var out []string
	dump := func(query string) {
		rows, err := db.QueryContext(ctx, query)
		if err != nil {
			out = append(out, query+": "+err.Error())
			return
		}
		defer rows.Close()
		columns, _ := rows.Columns()
		for rows.Next() {
			values := make([]any, len(columns))
			for i := range values {
				values[i] = new(any)
			}
			if err := rows.Scan(values...); err != nil {
				t.Fatal(err)
			}
			line := query + ":"
			for _, v := range values {
				line += fmt.Sprintf(" %v", *v.(*any))
			}
			out = append(out, line)
		}
	}
	dump("SELECT type, name, sql FROM sqlite_master")
	tables, err := db.QueryContext(ctx, "SELECT name FROM sqlite_master WHERE type = 'table'")
	if err != nil {
		return err.Error()
	}
	var names []string
	for tables.Next() {
		var n string
		if err := tables.Scan(&n); err != nil {
			t.Fatal(err)
		}
		names = append(names, n)
	}
	tables.Close()
	for _, n := range names {
		dump(`SELECT * FROM "` + n + `"`)
	}
	for _, p := range []string{"user_version", "application_id", "journal_mode", "page_size", "auto_vacuum"} {
		dump("PRAGMA " + p)
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasPrefix(filepath.Base(f), "shop.db-") {
			out = append(out, "file "+filepath.Base(f))
		}
	}
	sort.Strings(out)
	return strings.Join(out, "\n")
}

// Each line of the corpus runs in a throw-away database. What is said to be
// harmless must leave everything as it was; the truth is the effect.
func TestEffectsInSQLite(t *testing.T) {
	seedPath := filepath.Join(t.TempDir(), "seed.db")
	db, err := sql.Open("sqlite", seedPath)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(sqliteSeed); err != nil {
		t.Fatal(err)
	}
	db.Close()
	seed, err := os.ReadFile(seedPath)
	if err != nil {
		t.Fatal(err)
	}
	changed, ran := 0, 0
	for _, c := range corpus(t, "sqlite") {
		dir := t.TempDir()
		path := filepath.Join(dir, "shop.db")
		if err := os.WriteFile(path, seed, 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		before := state(t, ctx, path)
		err := runSQLite(ctx, path, strings.ReplaceAll(c.text, "/tmp/", dir+"/"))
		after := state(t, ctx, path)
		cancel()
		if err == nil {
			ran++
		}
		different := before != after
		if different {
			changed++
		}
		switch c.verdict {
		case "low", "medium":
			if different {
				t.Errorf("sqlite.txt:%d: %q is said to be %s, but changed something:\n%s\n→\n%s", c.line, c.text, c.verdict, before, after)
			}
			if err != nil {
				t.Errorf("sqlite.txt:%d: %q does not run: %v", c.line, c.text, err)
			}
		case "irreversible":
			if !different && err == nil {
				t.Logf("sqlite.txt:%d: %q is said to be irreversible and changed nothing in this database", c.line, c.text)
			}
		}
	}
	t.Logf("%d lines ran, %d changed the database", ran, changed)
	if changed < 30 { // the positive control
		t.Errorf("only %d lines changed anything: this test does not see effects", changed)
	}
}

func runSQLite(ctx context.Context, path, text string) error {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
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
