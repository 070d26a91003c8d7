package risk_test

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

const mysqlSeed = `
DROP DATABASE IF EXISTS shop; CREATE DATABASE shop; USE shop;
CREATE TABLE customers (id INT PRIMARY KEY, name TEXT, email TEXT, password TEXT, api_key TEXT);
CREATE TABLE orders (id INT PRIMARY KEY AUTO_INCREMENT, customer_id INT, total DECIMAL(10,2), note VARCHAR(200), status VARCHAR(20) DEFAULT 'open', created_at DATETIME DEFAULT '2024-01-01', KEY i (total), FULLTEXT KEY ft (note));
CREATE TABLE ` + "`lines`" + ` (order_id INT, qty INT);
CREATE TABLE archive LIKE orders;
CREATE TABLE user_secrets (id INT, value TEXT);
CREATE TABLE bücher (id INT, größe INT);
CREATE TABLE parts (id INT) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20));
CREATE VIEW v AS SELECT id FROM orders;
CREATE SEQUENCE s;
CREATE PROCEDURE p() DELETE FROM orders;
CREATE FUNCTION my_function(a INT) RETURNS INT MODIFIES SQL DATA RETURN 1;
CREATE FUNCTION purge_orders() RETURNS INT MODIFIES SQL DATA BEGIN DELETE FROM orders; RETURN 1; END;
CREATE TRIGGER tr AFTER INSERT ON archive FOR EACH ROW SET @x = 1;
INSERT INTO customers VALUES (1, 'Ann', 'a@example.com', 'x', 'y'), (2, 'Bob', 'b@example.com', 'x', 'y'), (3, 'Cyd', 'c@example.com', 'x', 'y');
INSERT INTO orders (id, customer_id, total, note) VALUES (1, 1, 20, 'abcd'), (2, 2, 5, 'b'), (3, 2, 50, '{"a":1}');
INSERT INTO ` + "`lines`" + ` VALUES (1, 2), (2, 1), (3, 9);
INSERT INTO user_secrets VALUES (1, 's');
INSERT INTO parts VALUES (1), (11);`

// A mysqlLab is a MariaDB of the machine's own, in a temporary folder.
type mysqlLab struct {
	dir    string
	db     *sql.DB
	seed   string
	before state
	users  map[string]bool
	global map[string]string
}

// startMariaDB starts a server without network. There is none on many machines,
// and the analyser needs none: make mariadb installs it.
func startMariaDB(t *testing.T) *mysqlLab {
	t.Helper()
	for _, program := range []string{"mariadbd", "mariadb-install-db"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no %s: the labels of mysql.txt are not checked against a server (make mariadb installs it)", program)
		}
	}
	dir := t.TempDir()
	data, socket := filepath.Join(dir, "data"), filepath.Join(dir, "sock")
	run := func(name string, args ...string) *exec.Cmd {
		if os.Geteuid() == 0 {
			args = append(args, "--user=root")
		}
		cmd := exec.Command(name, append([]string{"--no-defaults"}, args...)...)
		cmd.Dir = dir
		return cmd
	}
	if out, err := run("mariadb-install-db", "--auth-root-authentication-method=normal", "--skip-test-db", "--datadir="+data).CombinedOutput(); err != nil {
		t.Skipf("mariadb-install-db does not run here: %v\n%s", err, out)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	server := run("mariadbd", "--datadir="+data, "--socket="+socket, "--pid-file="+filepath.Join(dir, "pid"), "--skip-networking",
		"--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync", "--skip-innodb-doublewrite", "--sync-binlog=0", "--innodb-buffer-pool-size=32M", "--character-set-server=utf8mb4", "--log-bin="+filepath.Join(data, "bin"), "--server-id=1", "--log-bin-trust-function-creators=1")
	server.Stdout, server.Stderr = log, log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	l := &mysqlLab{dir: dir, users: map[string]bool{}, global: map[string]string{}}
	t.Cleanup(func() {
		if l.db != nil {
			l.db.Close()
		}
		_ = server.Process.Kill()
		_ = server.Wait()
		log.Close()
	})
	l.db = l.open(t, "mysql")
	for deadline := time.Now().Add(time.Minute); l.db.Ping() != nil; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			out, _ := os.ReadFile(log.Name())
			t.Fatalf("MariaDB does not start:\n%s", out)
		}
	}
	for _, u := range l.ask(t, "SELECT concat(quote(user), '@', quote(host)) FROM mysql.user") {
		l.users[u] = true
	}
	for name, value := range l.variables(t, "GLOBAL") {
		l.global[name] = value
	}
	l.plant(t, mysqlSeed)
	return l
}

// plant makes a seed the one that every line finds from now on.
func (l *mysqlLab) plant(t *testing.T, seed string) {
	t.Helper()
	l.seed = seed
	l.renew(t)
}

func (l *mysqlLab) open(t *testing.T, database string) *sql.DB {
	t.Helper()
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName = "root", "unix", filepath.Join(l.dir, "sock"), database
	c.MultiStatements, c.AllowAllFiles, c.Logger = true, false, &mysql.NopLogger{}
	c.ReadTimeout = time.Minute
	c.Params = map[string]string{"lock_wait_timeout": "5", "innodb_lock_wait_timeout": "5"}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	return db
}

func (l *mysqlLab) ask(t *testing.T, query string) []string {
	t.Helper()
	rows, err := l.db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	return bytesOf(t, rows)
}

func bytesOf(t *testing.T, rows *sql.Rows) []string {
	t.Helper()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for rows.Next() {
		values, pointers := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range values {
			pointers[i] = &values[i]
		}
		if err := rows.Scan(pointers...); err != nil {
			t.Fatal(err)
		}
		line := make([]string, len(values))
		for i, v := range values {
			line[i] = v.String
		}
		out = append(out, strings.Join(line, "|"))
	}
	return out
}

// variables that a line could set; those that move by themselves are left out.
func (l *mysqlLab) variables(t *testing.T, scope string) map[string]string {
	t.Helper()
	return variables(l.ask(t, "SHOW "+scope+" VARIABLES"))
}

func variables(list []string) map[string]string {
	out := map[string]string{}
	for _, v := range list {
		name, value, _ := strings.Cut(v, "|")
		switch {
		case strings.HasPrefix(name, "gtid_"), strings.HasPrefix(name, "last_"), strings.HasPrefix(name, "rand_seed"),
			name == "timestamp", name == "identity", name == "insert_id", name == "pseudo_thread_id", name == "warning_count",
			name == "error_count", name == "in_transaction", name == "rowid_filter", strings.HasPrefix(name, "innodb_buffer_pool_load"):
		default:
			out[name] = value
		}
	}
	return out
}

// renew makes the database anew, and takes back what lies outside it.
func (l *mysqlLab) renew(t *testing.T) {
	t.Helper()
	for name, value := range l.variables(t, "GLOBAL") {
		if was := l.global[name]; was != value {
			if _, err := l.db.Exec("SET GLOBAL "+name+" = ?", was); err != nil {
				_, _ = l.db.Exec("SET GLOBAL " + name + " = " + was)
			}
		}
	}
	for _, u := range l.ask(t, "SELECT concat(quote(user), '@', quote(host)) FROM mysql.user") {
		if !l.users[u] {
			_, _ = l.db.Exec("DROP USER " + u)
			_, _ = l.db.Exec("DROP ROLE " + strings.Split(u, "@")[0])
		}
	}
	for _, d := range l.ask(t, "SHOW DATABASES") {
		if d != "mysql" && d != "sys" && !strings.HasSuffix(d, "_schema") {
			_, _ = l.db.Exec("DROP DATABASE `" + d + "`")
		}
	}
	for _, f := range l.files(t) {
		_ = os.Remove(filepath.Join(l.dir, f))
	}
	if _, err := l.db.ExecContext(t.Context(), l.seed); err != nil {
		t.Fatalf("the seed: %v", err)
	}
	l.before = nil
}

func (l *mysqlLab) files(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if n := e.Name(); n != "data" && n != "log" && n != "sock" && n != "pid" && n != "sock.lock" {
			out = append(out, n)
		}
	}
	return out
}

var mysqlCatalogue = []string{
	"SELECT concat('object:table ', table_schema, '.', table_name), concat_ws(' ', table_type, engine, table_collation, table_comment) FROM information_schema.tables WHERE table_schema NOT IN ('information_schema', 'performance_schema', 'sys', 'mysql')",
	"SELECT concat('object:column ', table_schema, '.', table_name, '.', column_name), concat_ws(' ', ordinal_position, column_type, is_nullable, column_default, collation_name) FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name) WHERE table_type <> 'VIEW' AND table_schema NOT IN ('information_schema', 'performance_schema', 'sys', 'mysql')",
	"SELECT concat('object:index ', table_schema, '.', table_name, '.', index_name, seq_in_index), column_name FROM information_schema.statistics WHERE table_schema NOT IN ('mysql', 'sys')",
	"SELECT concat('object:routine ', routine_schema, '.', routine_name), md5(routine_definition) FROM information_schema.routines WHERE routine_schema <> 'sys'",
	"SELECT concat('object:trigger ', trigger_schema, '.', trigger_name), action_statement FROM information_schema.triggers WHERE trigger_schema <> 'sys'",
	"SELECT concat('object:event ', event_schema, '.', event_name), event_definition FROM information_schema.events",
	"SELECT concat('object:view ', table_schema, '.', table_name), view_definition FROM information_schema.views WHERE table_schema <> 'sys'",
	"SELECT concat('object:partition ', table_schema, '.', table_name, '.', partition_name), '' FROM information_schema.partitions WHERE partition_name IS NOT NULL",
	"SELECT concat('object:schema ', schema_name), default_character_set_name FROM information_schema.schemata",
	"SELECT concat('object:user ', user, '@', host), md5(priv) FROM mysql.global_priv",
	"SELECT concat('object:grant ', user, '@', host, db), '' FROM mysql.db",
}

func (l *mysqlLab) state(t *testing.T) state {
	t.Helper()
	s := state{}
	for _, q := range mysqlCatalogue {
		for _, row := range l.ask(t, q) {
			key, value, _ := strings.Cut(row, "|")
			s.set(key, value)
		}
	}
	for _, table := range l.ask(t, "SELECT concat('`', table_schema, '`.`', table_name, '`') FROM information_schema.tables WHERE table_type IN ('BASE TABLE', 'SEQUENCE', 'SYSTEM VERSIONED') AND table_schema NOT IN ('information_schema', 'performance_schema', 'sys', 'mysql')") {
		s.set("rows:"+table, l.ask(t, "SELECT * FROM "+table)...)
	}
	for name, value := range l.variables(t, "GLOBAL") {
		s.set("object:variable "+name, value)
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

func (l *mysqlLab) observe(t *testing.T, text string) (effect, detail string) {
	t.Helper()
	if l.before == nil {
		l.before = l.state(t)
	}
	text = strings.ReplaceAll(text, "/tmp/", l.dir+"/")
	effect, detail = l.run(t, "DO 0", text)
	if effect == "none" { // what it locks shows only while its transaction lasts
		if inner, more := l.run(t, "BEGIN", text); inner == "held" {
			effect, detail = inner, more
		}
	}
	if effect != "none" && effect != "held" && effect != "refused" {
		l.renew(t)
	}
	return effect, detail
}

// run executes text in a session of its own.
func (l *mysqlLab) run(t *testing.T, begin, text string) (effect, detail string) {
	t.Helper()
	own := l.open(t, "shop")
	defer own.Close()
	c, err := own.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := l.session(t, c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.ExecContext(t.Context(), begin); err != nil {
		t.Fatal(err)
	}
	failed := runMySQL(t.Context(), c, text)
	if begin == "BEGIN" {
		time.Sleep(150 * time.Millisecond) // the server shows anew what is locked only where nobody asked for 0.1 s
	}
	left, err := l.session(t, c)
	_ = c.Close()
	_ = own.Close() // with its locks; what it did not commit shows as the open transaction
	if err != nil {
		return "refused", fmt.Sprint(failed, err)
	}
	if begin == "BEGIN" {
		left["session:transaction"] = fresh["session:transaction"]
	}
	before, after := maps.Clone(l.before), maps.Clone(l.before)
	if begin != "BEGIN" {
		after = l.state(t)
	}
	maps.Copy(before, fresh)
	maps.Copy(after, left)
	effect, detail = effectOf(before, after)
	if failed != nil && effect == "none" {
		return "refused", failed.Error()
	}
	return effect, detail
}

func runMySQL(ctx context.Context, c *sql.Conn, text string) error {
	rows, err := c.QueryContext(ctx, text)
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

// session is what a line left in the session that ran it.
func (l *mysqlLab) session(t *testing.T, c *sql.Conn) (state, error) {
	t.Helper()
	s := state{}
	for _, q := range []string{
		"SHOW SESSION VARIABLES",
		"SELECT 'database', database()",
		"SELECT 'lock', is_used_lock('a') = connection_id()",
		"SELECT 'transaction', @@in_transaction",
		"SELECT 'rows', count(*) FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = connection_id() AND trx_lock_structs > 0",
	} {
		rows, err := c.QueryContext(t.Context(), q)
		if err != nil {
			return nil, err
		}
		for name, value := range variables(bytesOf(t, rows)) {
			s.set("session:"+name, value)
		}
		rows.Close()
	}
	return s, nil
}

func TestEffectsInMariaDB(t *testing.T) {
	t.Parallel()
	checkEffects(t, "mysql", startMariaDB(t))
}
