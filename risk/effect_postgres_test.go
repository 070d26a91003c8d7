package risk_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

const postgresSeed = `
CREATE TABLE customers (id int PRIMARY KEY, name text, password text, api_key text);
CREATE TABLE orders (id serial PRIMARY KEY, customer_id int, total numeric, note text, created_at timestamptz DEFAULT now());
CREATE TABLE lines (order_id int, qty int);
CREATE TABLE "delete" ("drop" int);
CREATE TABLE sessions (id int, "accessToken" text);
CREATE TABLE user_credentials (id int, v text);
CREATE TABLE usage (prompt_tokens int, max_tokens int);
INSERT INTO customers VALUES (1, 'Ann', 'x', 'y'), (2, 'Bob', 'x', 'y');
INSERT INTO orders (customer_id, total, note) VALUES (1, 20, 'a'), (2, 5, 'b');
INSERT INTO lines VALUES (1, 2), (2, 1);`

// A server is a PostgreSQL of the machine's own, in a temporary folder.
type server struct {
	bin, dir string
	as       *syscall.SysProcAttr
}

func (s server) run(stdin, program string, args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(s.bin, program), args...)
	cmd.Dir, cmd.SysProcAttr, cmd.Stdin = s.dir, s.as, strings.NewReader(stdin)
	cmd.Env = []string{"PATH=" + s.bin + ":/usr/bin:/bin", "PGHOST=" + s.dir, "PGUSER=postgres", "PGDATABASE=postgres", "LC_ALL=C"}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func startPostgres(t *testing.T) server {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		t.Skip("no PostgreSQL server is installed: the labels are not checked against one")
	}
	s := server{bin: filepath.Dir(found[len(found)-1]), dir: t.TempDir()}
	if os.Geteuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			t.Skip("PostgreSQL does not run as root, and there is no user postgres")
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		if err := os.Chmod(filepath.Dir(s.dir), 0o711); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(s.dir, uid, gid); err != nil {
			t.Fatal(err)
		}
		s.as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	data := filepath.Join(s.dir, "data")
	if out, err := s.run("", "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N", "--no-instructions"); err != nil {
		t.Skipf("initdb does not run here: %v\n%s", err, out)
	}
	log := filepath.Join(s.dir, "log")
	options := fmt.Sprintf("-k %s -c listen_addresses= -c fsync=off -c autovacuum=off -c max_wal_senders=0", s.dir)
	if out, err := s.run("", "pg_ctl", "-D", data, "-l", log, "-o", options, "-w", "start"); err != nil {
		t.Fatalf("PostgreSQL does not start: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := s.run("", "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop"); err != nil {
			t.Errorf("PostgreSQL does not stop: %v\n%s", err, out)
		}
	})
	if out, err := s.run(postgresSeed, "psql", "-v", "ON_ERROR_STOP=1", "-q"); err != nil {
		t.Fatalf("the seed: %v\n%s", err, out)
	}
	return s
}

// dumpKeys are the random keys that newer pg_dump writes into each dump.
var dumpKeys = regexp.MustCompile(`(?m)^\\(un)?restrict .*$`)

func (s server) dump(t *testing.T) string {
	t.Helper()
	out, err := s.run("", "pg_dumpall", "--no-sync")
	if err != nil {
		t.Fatalf("pg_dumpall: %v\n%s", err, out)
	}
	return dumpKeys.ReplaceAllString(out, "")
}

// What is said to be harmless runs in a real PostgreSQL and must change nothing.
// Other lines are not run: some would leave the machine.
func TestEffectsInPostgres(t *testing.T) {
	s := startPostgres(t)
	e := engine(t)
	before := s.dump(t)
	ran := 0
	for _, c := range corpus(t, "postgres") {
		if c.verdict != "low" && c.verdict != "medium" || strings.HasPrefix(c.text, `\`) {
			continue
		}
		if got := verdict(e.SQL("postgres", c.text)); got != c.verdict {
			t.Errorf("postgres.txt:%d: %s", c.line, got)
		}
		if out, err := s.run("", "psql", "-v", "ON_ERROR_STOP=1", "-qAt", "-c", c.text); err != nil {
			t.Errorf("postgres.txt:%d: %q does not run: %s", c.line, c.text, out)
		}
		ran++
	}
	if after := s.dump(t); after != before {
		t.Errorf("after %d harmless lines the server is not what it was:\n%s", ran, firstDifference(before, after))
	}
	// The positive control: the dump does show a change.
	if out, err := s.run("", "psql", "-qc", "UPDATE orders SET total = 99 WHERE id = 1"); err != nil {
		t.Fatal(out)
	}
	if s.dump(t) == before {
		t.Error("the dump does not show an UPDATE: this test does not see effects")
	}
	t.Logf("%d harmless lines ran", ran)
}

func firstDifference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return x[i] + "\n→\n" + y[i]
		}
	}
	return "one is longer"
}

// A volatile function of the running server's own catalogue is harmless only if
// it was judged so by hand; others are, unless they were judged not to be.
func TestCatalogueAgainstPostgres(t *testing.T) {
	s := startPostgres(t)
	e := engine(t)
	data, err := os.ReadFile("pgsql/judged.txt")
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
	out, err := s.run("", "psql", "-qAt", "-c", `SELECT max(provolatile), proname FROM pg_proc
		WHERE pronamespace = 'pg_catalog'::regnamespace GROUP BY 2`)
	if err != nil {
		t.Fatal(out)
	}
	checked := 0
	for line := range strings.Lines(out) {
		kind, name, ok := strings.Cut(strings.TrimSpace(line), "|")
		if !ok || byHand[name] == "sql" {
			continue
		}
		r := e.SQL("postgres", `SELECT pg_catalog."`+name+`"('a')`)
		want := byHand[name]
		if want == "" {
			want = map[string]string{"i": "low", "s": "low", "v": "high"}[kind]
		}
		if got := verdict(r); got != want {
			t.Errorf("%s, which is %s in the server's catalogue, is %s, want %s", name, kind, got, want)
		}
		checked++
	}
	if checked < 2000 {
		t.Errorf("only %d functions", checked)
	}
}
