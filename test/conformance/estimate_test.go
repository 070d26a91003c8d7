package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sallyport.dev/sallyport/store/postgres/postgrestest"
	"sallyport.dev/sallyport/test/stage"
	"sallyport.dev/sallyport/toolkit"
)

// A database is a tool server in front of a real PostgreSQL: it runs what it is
// told, and remembers it.
type database struct {
	url  string // of the tool server
	mu   sync.Mutex
	seen []string
	conn *pgx.Conn
	hang chan struct{} // EXPLAIN waits for it to be closed
}

func newDatabase(t *testing.T) *database {
	t.Helper()
	d := &database{}
	var err error
	if d.conn, err = pgx.Connect(t.Context(), postgrestest.New(t).Database(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.conn.Close(context.Background()) })
	d.must(t, "CREATE TABLE orders (n int)")
	d.must(t, "INSERT INTO orders SELECT generate_series(1, 1000)")
	d.must(t, "ANALYZE orders")
	s := toolkit.New("db", "1.0")
	type query struct {
		SQL string `json:"sql" jsonschema:"a statement to run"`
	}
	run := func(ctx context.Context, _ toolkit.Call, in query) (string, error) { return d.run(ctx, in.SQL) }
	toolkit.Tool(s, "run_sql", "Runs SQL.", run)
	toolkit.Tool(s, "undeclared", "Runs SQL.", run)
	web := httptest.NewServer(s.Handler())
	t.Cleanup(web.Close)
	d.url = web.URL
	return d
}

func (d *database) must(t *testing.T, sql string) {
	t.Helper()
	if _, err := d.conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func (d *database) run(ctx context.Context, sql string) (string, error) {
	d.mu.Lock()
	d.seen = append(d.seen, sql)
	hang := d.hang
	d.mu.Unlock()
	if hang != nil && strings.HasPrefix(sql, "EXPLAIN") {
		<-hang
		return "", errors.New("too late")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	rows, err := d.conn.Query(ctx, sql)
	if err != nil {
		return "", err
	}
	lines, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (string, error) {
		v, err := r.Values()
		if err != nil || len(v) != 1 {
			return "", fmt.Errorf("%d columns, %w", len(v), err)
		}
		b, err := json.Marshal(v[0])
		return string(b), err
	})
	return strings.Join(lines, "\n"), err
}

// took returns what reached the database since the last call, and how many rows
// the table has.
func (d *database) took(t *testing.T) (seen []string, rows int) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	seen, d.seen = d.seen, nil
	if err := d.conn.QueryRow(t.Context(), "SELECT count(*) FROM orders").Scan(&rows); err != nil {
		t.Fatal(err)
	}
	return seen, rows
}

// An approver is told how many rows PostgreSQL expects, and nothing is done to
// find out: only EXPLAIN of what needs a human reaches the database.
func TestEstimateOfRowsInATicket(t *testing.T) {
	t.Parallel()
	d, g := newDatabase(t), stage.New(t)
	servers := map[string]stage.Server{"db": {URL: d.url}, "other": {URL: d.url}}
	g.Write("sallyport.yaml", g.Config("approvals: {cooldown: 0s}\n"+roomy+stage.Servers(servers)))
	manifest := func(file, server, tool, dialect, estimate string) {
		g.Write("tools/"+file+".yaml", fmt.Sprintf("server: %s\ntool: %s\nfields: [{path: /sql, kind: sql, dialect: %s}]\nestimate: %s\n", server, tool, dialect, estimate))
	}
	manifest("db_run", "db", "run_sql", "postgres", "{tool: db__run_sql, argument: sql}")
	manifest("db_undeclared", "db", "undeclared", "sqlite", "{tool: db__run_sql, argument: sql}")
	manifest("other_run", "other", "run_sql", "postgres", "{tool: db__run_sql, argument: sql}")
	manifest("other_undeclared", "other", "undeclared", "postgres", "{tool: other__nothing, argument: sql}")
	g.Start("db", "other")
	c := newRaw(t, g)
	g.Login()
	if a := c.must(t, "db__run_sql", `{"sql":"SELECT count(*) FROM orders"}`, ""); a.Text != "1000" {
		t.Errorf("a plain read: %s", a)
	}
	if seen, _ := d.took(t); len(seen) != 1 {
		t.Errorf("a call that needs nobody sent %q", seen)
	}
	for _, tt := range []struct{ tool, sql, want, sent string }{
		{"db__run_sql", "DELETE FROM orders", "about 1000, says db__run_sql", "EXPLAIN (FORMAT JSON) DELETE FROM orders"},
		{"db__run_sql", "DELETE FROM orders; DELETE FROM orders", "not available: the SQL is not one", ""},
		{"db__run_sql", "EXPLAIN ANALYZE DELETE FROM orders", "not available: the SQL is not one", ""},
		{"db__run_sql", "DELETE FROM nowhere", "not available: ", "EXPLAIN (FORMAT JSON) DELETE FROM nowhere"},
		{"db__run_sql", "DELETE FROM orders WHERE n = f()", "not available: ", ""},
		{"db__undeclared", "DELETE FROM orders", "not available: only PostgreSQL is asked", ""},
		{"other__run_sql", "DELETE FROM orders", "not available: db__run_sql is not a tool of the server", ""},
		{"other__undeclared", "DELETE FROM orders", `not available: there is no active tool "other__nothing"`, ""},
	} {
		id := ticketFor(t, c, tt.tool, `{"sql":`+str(tt.sql)+`}`, "")
		if shown := g.Must("", "approvals", "show", id).Out; !strings.Contains(shown, "estimated rows "+tt.want) {
			t.Errorf("%s %s: want %q in\n%s", tt.tool, tt.sql, tt.want, shown)
		}
		if shown := g.Must("", "approvals", "show", id, "--json").Out; !strings.Contains(shown, `"estimated rows"`) {
			t.Errorf("the API does not tell:\n%s", shown)
		}
		seen, rows := d.took(t)
		if rows != 1000 || strings.Join(seen, "\n") != tt.sent {
			t.Errorf("%s %s: %d rows are left, the database got %q, want %q", tt.tool, tt.sql, rows, seen, tt.sent)
		}
	}
	approvedAfterAHang(t, d, g, c)
}

// A database that does not answer delays a ticket by seconds, and no more; what
// was approved runs, whatever an estimate would be by then.
func approvedAfterAHang(t *testing.T, d *database, g *stage.Gateway, c raw) {
	hang := make(chan struct{})
	defer close(hang)
	d.mu.Lock()
	d.hang = hang
	d.mu.Unlock()
	begun := time.Now()
	args := `{"sql":"DELETE FROM orders"}`
	id := ticketFor(t, c, "db__run_sql", args, "")
	if took := time.Since(begun); took > stage.Patience {
		t.Errorf("the ticket took %s", took)
	}
	if shown := g.Must("", "approvals", "show", id).Out; !strings.Contains(shown, "estimated rows not available: ") {
		t.Errorf("want no estimate in\n%s", shown)
	}
	d.took(t)
	g.Must("", "approvals", "approve", id)
	if a := c.must(t, "db__run_sql", args, ticketed(id)); a.Code != "" {
		t.Errorf("approved: %s", a)
	}
	if seen, rows := d.took(t); rows != 0 || len(seen) != 1 {
		t.Errorf("%d rows are left, the database got %q", rows, seen)
	}
}
