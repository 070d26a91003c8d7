package risk_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const postgresSeed = `
CREATE TABLE customers (id int PRIMARY KEY, name text, password text, api_key text);
CREATE TABLE orders (id serial PRIMARY KEY, customer_id int, total numeric, note text, created_at timestamptz DEFAULT now());
CREATE TABLE lines (order_id int, qty int);
CREATE TABLE "delete" ("drop" int);
CREATE TABLE sessions (id int, "accessToken" text);
CREATE TABLE user_credentials (id int, v text);
CREATE TABLE usage (prompt_tokens int, max_tokens int);
CREATE TABLE archive (id int);
CREATE TABLE log (n int);
CREATE TYPE mood AS ENUM ('calm', 'busy');
CREATE VIEW v AS SELECT id FROM orders;
CREATE INDEX orders_idx ON orders (total);
CREATE MATERIALIZED VIEW totals AS SELECT sum(total) FROM orders;
CREATE FUNCTION my_function() RETURNS int LANGUAGE sql AS 'INSERT INTO archive VALUES (1) RETURNING id';
CREATE FUNCTION f(int) RETURNS int LANGUAGE sql AS 'SELECT $1';
CREATE FUNCTION drop_everything() RETURNS void LANGUAGE sql AS 'DELETE FROM orders';
CREATE FUNCTION purge(orders) RETURNS int LANGUAGE sql AS 'DELETE FROM lines RETURNING 1';
CREATE FUNCTION act() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE PROCEDURE do_things() LANGUAGE sql AS 'DELETE FROM lines';
CREATE FUNCTION to_mood(int) RETURNS mood LANGUAGE sql AS 'DELETE FROM lines; SELECT ''calm''::mood';
CREATE FUNCTION spring(text) RETURNS boolean LANGUAGE sql AS 'DELETE FROM lines; SELECT true';
CREATE DOMAIN trap AS text CHECK (spring(VALUE));
CREATE CAST (int AS mood) WITH FUNCTION to_mood(int);
INSERT INTO customers VALUES (1, 'Ann', 'x', 'y'), (2, 'Bob', 'x', 'y');
INSERT INTO orders (customer_id, total, note) VALUES (1, 20, 'a'), (2, 5, 'b');
INSERT INTO lines VALUES (1, 2), (2, 1);`

// A server is a PostgreSQL of the machine's own, in a temporary folder.
type server struct {
	bin, dir string
	as       *syscall.SysProcAttr
}

func (s server) command(stdin, program string, args ...string) (string, error) {
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
	if out, err := s.command("", "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N", "--no-instructions"); err != nil {
		t.Skipf("initdb does not run here: %v\n%s", err, out)
	}
	log := filepath.Join(s.dir, "log")
	options := fmt.Sprintf("-k %s -c listen_addresses= -c fsync=off -c synchronous_commit=off -c full_page_writes=off -c autovacuum=off -c max_wal_senders=0", s.dir)
	if out, err := s.command("", "pg_ctl", "-D", data, "-l", log, "-o", options, "-w", "start"); err != nil {
		t.Fatalf("PostgreSQL does not start: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := s.command("", "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop"); err != nil {
			t.Errorf("PostgreSQL does not stop: %v\n%s", err, out)
		}
	})
	return s
}

// A postgresLab executes lines in database lab, made anew from a template
// whenever one changed something.
type postgresLab struct {
	server
	roles  map[string]bool
	before state
	text   string         // the seed
	seed   map[string]int // how many things of each kind it has
}

func (s server) connect(t *testing.T, database string) *pgconn.PgConn {
	t.Helper()
	config := fmt.Sprintf("host=%s user=postgres dbname=%s options='-c statement_timeout=5000 -c lock_timeout=2000'", s.dir, database)
	c, err := pgconn.Connect(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// ask runs a query of the test's own and returns its rows, each as one string.
func ask(t *testing.T, c *pgconn.PgConn, query string) []string {
	t.Helper()
	results, err := c.Exec(t.Context(), query).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	out := []string{}
	for _, r := range results {
		for _, row := range r.Rows {
			out = append(out, string(bytes.Join(row, []byte("|"))))
		}
	}
	return out
}

func newPostgresLab(t *testing.T) *postgresLab {
	t.Helper()
	l := &postgresLab{server: startPostgres(t), roles: map[string]bool{}}
	c := l.connect(t, "template1")
	for _, r := range ask(t, c, "SELECT rolname FROM pg_roles") {
		l.roles[r] = true
	}
	_ = c.Close(t.Context())
	l.plant(t, postgresSeed)
	return l
}

// plant makes a seed the one that every line finds from now on.
func (l *postgresLab) plant(t *testing.T, seed string) {
	t.Helper()
	l.text = seed
	c := l.connect(t, "template1")
	ask(t, c, "DROP DATABASE IF EXISTS seed")
	ask(t, c, "CREATE DATABASE seed")
	_ = c.Close(t.Context())
	s := l.connect(t, "seed")
	ask(t, s, seed)
	_ = s.Close(t.Context())
	l.renew(t)
	l.before = l.state(t)
	l.seed = l.before.kinds()
}

// renew makes the database anew, and takes back what lies outside it.
func (l *postgresLab) renew(t *testing.T) {
	t.Helper()
	c := l.connect(t, "template1")
	defer c.Close(context.WithoutCancel(t.Context()))
	for _, d := range ask(t, c, "SELECT quote_ident(datname) FROM pg_database WHERE datname NOT IN ('postgres', 'template0', 'template1', 'seed')") {
		ask(t, c, "DROP DATABASE "+d+" WITH (FORCE)")
	}
	for _, r := range ask(t, c, "SELECT rolname FROM pg_roles") {
		if !l.roles[r] {
			ask(t, c, fmt.Sprintf("DROP ROLE %q", r))
		}
	}
	ask(t, c, "ALTER SYSTEM RESET ALL")
	ask(t, c, "ALTER ROLE postgres PASSWORD NULL")
	for _, f := range l.files(t) {
		if err := os.Remove(filepath.Join(l.dir, f)); err != nil {
			t.Fatal(err)
		}
	}
	ask(t, c, "CREATE DATABASE lab TEMPLATE seed")
	l.before = nil
}

// refill makes the schema anew, which is faster than a database. It reports
// false where something else than the schema differs from the seed.
func (l *postgresLab) refill(t *testing.T) bool {
	t.Helper()
	c := l.connect(t, "lab")
	_, err := c.Exec(t.Context(), "DROP SCHEMA public CASCADE; CREATE SCHEMA public; GRANT ALL ON SCHEMA public TO pg_database_owner; GRANT USAGE ON SCHEMA public TO PUBLIC;"+l.text).ReadAll()
	_ = c.Close(t.Context())
	if err != nil {
		return false
	}
	now := l.state(t)
	if !maps.Equal(now.kinds(), l.seed) {
		return false
	}
	l.before = now
	return true
}

// kinds counts the things of each kind.
func (s state) kinds() map[string]int {
	out := map[string]int{}
	for k := range s {
		kind, _, _ := strings.Cut(k, " ")
		out[strings.TrimRight(kind, "0123456789")]++
	}
	return out
}

// files are those that lines made; the seed has none.
func (l *postgresLab) files(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if n := e.Name(); n != "data" && n != "log" && !strings.HasPrefix(n, ".s.") {
			out = append(out, n)
		}
	}
	return out
}

// catalogue asks for all that a statement could change but the rows: key, then value.
var catalogue = []string{
	`SELECT 'object:relation ' || oid, concat_ws(' ', relname, relkind, relowner, relrowsecurity, relpersistence, coalesce(relacl::text, ''), coalesce(reloptions::text, '')) FROM pg_class WHERE oid >= 16384`,
	`SELECT 'object:column ' || attrelid || '.' || attnum, concat_ws(' ', attname, atttypid, attnotnull, coalesce(attacl::text, '')) FROM pg_attribute WHERE attrelid >= 16384 AND attnum > 0 AND NOT attisdropped`,
	`SELECT 'object:function ' || oid, concat_ws(' ', proname, prosrc, proowner, coalesce(proacl::text, '')) FROM pg_proc WHERE oid >= 16384`,
	`SELECT 'object:type ' || oid, concat_ws(' ', typname, typowner) FROM pg_type WHERE oid >= 16384`,
	`SELECT 'object:trigger ' || oid, concat_ws(' ', tgname, tgenabled) FROM pg_trigger WHERE oid >= 16384`,
	`SELECT 'object:constraint ' || oid, conname FROM pg_constraint WHERE oid >= 16384`,
	`SELECT 'object:policy ' || oid, polname FROM pg_policy`,
	`SELECT 'object:rule ' || oid, concat_ws(' ', rulename, ev_class) FROM pg_rewrite WHERE oid >= 16384`,
	`SELECT 'object:schema ' || oid, concat_ws(' ', nspname, coalesce(nspacl::text, '')) FROM pg_namespace WHERE nspname !~ '^pg_(toast|temp)'`,
	`SELECT 'object:cast ' || oid, castfunc::text FROM pg_cast WHERE oid >= 16384`,
	`SELECT 'object:operator ' || oid, oprname FROM pg_operator WHERE oid >= 16384`,
	`SELECT 'object:server ' || oid, srvname FROM pg_foreign_server`,
	`SELECT 'object:extension ' || oid, extname FROM pg_extension`,
	`SELECT 'object:publication ' || oid, pubname FROM pg_publication`,
	`SELECT 'object:statistics ' || oid, stxname FROM pg_statistic_ext`,
	`SELECT 'object:comment ' || objoid || '.' || objsubid, description FROM pg_description WHERE objoid >= 16384`,
	`SELECT 'object:enum ' || oid, enumlabel FROM pg_enum WHERE oid >= 16384`,
	`SELECT 'object:default ' || oid, concat_ws(' ', adrelid, '.', adnum) FROM pg_attrdef WHERE oid >= 16384`,
	`SELECT 'object:large object ' || loid || '.' || pageno, md5(data) FROM pg_largeobject`,
	`SELECT 'object:large ' || oid, lomowner::text FROM pg_largeobject_metadata`,
	`SELECT 'object:role ' || oid, concat_ws(' ', rolname, rolsuper, rolcanlogin, coalesce(rolpassword, '')) FROM pg_authid`,
	`SELECT 'object:member ' || roleid || '.' || member, admin_option::text FROM pg_auth_members`,
	`SELECT 'object:database ' || oid, concat_ws(' ', datname, coalesce(datacl::text, '')) FROM pg_database`,
	`SELECT 'object:setting ' || setdatabase || '.' || setrole, setconfig::text FROM pg_db_role_setting`,
	`SELECT 'object:default acl ' || oid, defaclacl::text FROM pg_default_acl`,
	`SELECT 'object:system ' || name, setting FROM pg_file_settings WHERE sourcefile LIKE '%auto.conf'`,
	`SELECT 'object:sequence ' || schemaname || '.' || sequencename, concat_ws(' ', coalesce(last_value, 0), '/', increment_by) FROM pg_sequences`,
	`SELECT 'object:prepared ' || gid, owner FROM pg_prepared_xacts`,
	`SELECT 'object:slot ' || slot_name, slot_type FROM pg_replication_slots`,
	`SELECT 'object:planner ' || starelid || '.' || staattnum, '' FROM pg_statistic WHERE starelid >= 16384`,
}

// session asks, in the session that ran a line, for what the line left in it.
var session = []string{
	`SELECT 'session:setting ' || name, setting FROM pg_settings WHERE source = 'session'`,
	`SELECT 'session:role', current_user`,
	`SELECT 'session:lock ' || locktype || mode || coalesce(relation::text, ''), granted FROM pg_locks WHERE pid = pg_backend_pid()
	  AND mode NOT IN ('AccessShareLock', 'RowExclusiveLock', 'ExclusiveLock') AND (relation >= 16384 OR locktype = 'advisory')
	  OR pid = pg_backend_pid() AND locktype = 'advisory'`,
	`SELECT 'session:temporary ' || relname, '' FROM pg_class WHERE relnamespace = pg_my_temp_schema()`,
	`SELECT 'session:statement ' || name, statement FROM pg_prepared_statements`,
	`SELECT 'session:cursor ' || name, statement FROM pg_cursors WHERE name <> ''`,
	`SELECT 'session:channel ' || c, '' FROM pg_listening_channels() c`,
}

func (l *postgresLab) gather(t *testing.T, c *pgconn.PgConn, queries []string) state {
	t.Helper()
	s := state{}
	for _, row := range ask(t, c, strings.Join(queries, ";")) {
		key, value, _ := strings.Cut(row, "|")
		s.set(key, value)
	}
	return s
}

func (l *postgresLab) state(t *testing.T) state {
	t.Helper()
	c := l.connect(t, "lab")
	defer c.Close(context.WithoutCancel(t.Context()))
	// A session that was closed takes its temporary tables with it a little later.
	for deadline := time.Now().Add(time.Minute); len(ask(t, c, "SELECT 1 FROM pg_stat_activity WHERE datname = 'lab' AND pid <> pg_backend_pid() AND backend_type = 'client backend'")) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("sessions of earlier lines do not end")
		}
	}
	s := l.gather(t, c, catalogue)
	for _, table := range ask(t, c, "SELECT oid || ' ' || oid::regclass FROM pg_class WHERE relkind IN ('r', 'm', 'p') AND relpersistence <> 't' AND oid >= 16384") {
		oid, name, _ := strings.Cut(table, " ")
		s.set("rows:"+oid, ask(t, c, "SELECT to_jsonb(x) FROM "+name+" x")...)
	}
	for _, f := range l.files(t) {
		data, err := os.ReadFile(filepath.Join(l.dir, f))
		if err != nil {
			t.Fatal(err)
		}
		s.set("file:"+f, string(data))
	}
	return s
}

func (l *postgresLab) observe(t *testing.T, text string) (effect, detail string) {
	t.Helper()
	if l.before == nil {
		l.before = l.state(t)
	}
	text = strings.ReplaceAll(text, "/tmp/", l.dir+"/")
	effect, detail = l.run(t, "", text)
	if effect == "none" { // what it locks shows only while its transaction lasts
		if inner, more := l.run(t, "BEGIN", text); inner == "held" {
			effect, detail = inner, more
		}
	}
	if effect != "none" && effect != "held" && effect != "refused" && !l.refill(t) {
		l.renew(t)
	}
	return effect, detail
}

// run executes text in a session of its own.
func (l *postgresLab) run(t *testing.T, begin, text string) (effect, detail string) {
	t.Helper()
	c := l.connect(t, "lab")
	defer c.Close(context.WithoutCancel(t.Context()))
	fresh := l.gather(t, c, session)
	if begin != "" {
		ask(t, c, begin)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, failed := c.Exec(ctx, text).ReadAll()
	open := c.TxStatus() == 'T' && begin == ""
	if c.TxStatus() == 'E' {
		ask(t, c, "ROLLBACK")
	}
	if c.IsClosed() {
		return "refused", failed.Error()
	}
	left := l.gather(t, c, session)
	_ = c.Close(t.Context()) // with its locks; what it did not commit shows as the open transaction
	before, after := maps.Clone(l.before), maps.Clone(l.before)
	if begin == "" {
		after = l.state(t)
	}
	maps.Copy(before, fresh)
	maps.Copy(after, left)
	if open {
		after.set("session:transaction", "open")
	}
	effect, detail = effectOf(before, after)
	if failed != nil && effect == "none" {
		return "refused", failed.Error()
	}
	return effect, detail
}

func TestEffectsInPostgres(t *testing.T) {
	t.Parallel()
	checkEffects(t, "postgres", newPostgresLab(t))
}
