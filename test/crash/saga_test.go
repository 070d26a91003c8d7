package crash

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite" // looks into the targets, and at how far the gateway has come

	"sallyport.dev/sallyport/test/stage"
)

// A trio is a gateway with three real upstreams, each with a state of its own:
// a folder, a knowledge graph and a SQL database, whose statements are told to a
// ledger besides.
type trio struct {
	*victim
	files, graph, orders string
	bea                  string         // password of a second admin
	idle                 map[string]int // by statement: lines of the ledger that had no effect
}

func newTrio(t *testing.T) *trio {
	t.Helper()
	modules, err := filepath.Abs("../node_modules")
	if err != nil {
		t.Fatal(err)
	}
	script := func(pkg string) string {
		return filepath.Join(modules, "@modelcontextprotocol", pkg, "dist", "index.js")
	}
	if _, err := os.Stat(script("server-memory")); err != nil {
		stage.Absent(t, "npm's packages are not installed: run `make npm`")
	}
	modules = reachable(t, modules)
	node, err := filepath.EvalSymlinks(filepath.Join(modules, ".bin", "node"))
	if err != nil {
		t.Fatal(err)
	}
	dir := stage.OpenDir(t)
	for _, d := range []string{dir, filepath.Join(dir, "files")} {
		if err := errors.Join(os.MkdirAll(d, 0o777), os.Chmod(d, 0o777)); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "sallyport")
	b, err := os.ReadFile(stage.Program(t, "sallyport"))
	if err = errors.Join(err, os.WriteFile(program, b, 0o755)); err != nil {
		t.Fatal(err)
	}
	g, l := stage.New(t), stage.NewLedger(t)
	v := &trio{victim: &victim{g, l}, files: filepath.Join(dir, "files"), graph: filepath.Join(dir, "graph.jsonl"), orders: filepath.Join(dir, "orders.db"), idle: map[string]int{}}
	g.Write("sallyport.yaml", g.Config(stage.Servers(map[string]stage.Server{
		"files":  {Command: node, Args: []string{script("server-filesystem"), v.files}},
		"memory": {Command: node, Args: []string{script("server-memory")}, Env: map[string]string{"MEMORY_FILE_PATH": v.graph}},
		"db":     {Command: program, Args: []string{"demo", "sql-server", "--db", v.orders, "--ledger", l.URL}},
	})))
	g.Write("tools/db.yaml", "server: db\ntool: run_sql\nfields: [{path: /sql, kind: sql, dialect: sqlite}]\n")
	g.Start("files", "memory", "db")
	return v
}

// reachable is the folder under a path that every user may walk.
func reachable(t *testing.T, dir string) string {
	t.Helper()
	for d := dir; d != "/"; d = filepath.Dir(d) {
		info, err := os.Stat(d)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o005 == 0o005 {
			continue
		}
		to := stage.OpenDir(t)
		if err := unix.Mount(dir, to, "", unix.MS_BIND, ""); err != nil {
			t.Fatalf("making %s reachable: %v", dir, err)
		}
		t.Cleanup(func() { _ = unix.Unmount(to, unix.MNT_DETACH) })
		return to
	}
	return dir
}

func (v *trio) draft(n int) string     { return filepath.Join(v.files, fmt.Sprintf("draft-%d", n)) }
func (v *trio) published(n int) string { return filepath.Join(v.files, fmt.Sprintf("published-%d", n)) }

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

func insert(n int) string { return fmt.Sprintf("INSERT INTO orders VALUES (%d, 1, 5)", n) }
func remove(n int) string { return fmt.Sprintf("DELETE FROM orders WHERE id = %d", n) }

// row reports whether the order is there.
func (v *trio) row(t *testing.T, n int) bool {
	t.Helper()
	return ask(t, v.orders, fmt.Sprintf("SELECT count(*) FROM orders WHERE id = %d", n)) == 1
}

// ask reads a number from a database behind everybody's back.
func ask(t *testing.T, file, query string) (n int) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file+"?mode=ro&_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow(query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// story is what is on record of the saga of plan n.
func (v *trio) story(t *testing.T, n int) string {
	s, ok := v.saga(t, n)
	if !ok {
		return "there is no saga"
	}
	return v.Must("", "saga", "status", s.ID).Out
}

func (v *trio) person(t *testing.T, n int) bool {
	t.Helper()
	b, err := os.ReadFile(v.graph)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Contains(string(b), fmt.Sprintf(`"person-%d"`, n))
}

type toolCall struct {
	Tool string         `json:"tool"`
	Args map[string]any `json:"arguments,omitempty"`
}

type planStep struct {
	ID         string         `json:"id"`
	Tool       string         `json:"tool"`
	Args       map[string]any `json:"arguments"`
	Compensate any            `json:"compensate"`
}

func (v *trio) fileStep(n int) planStep {
	return planStep{ID: "file", Tool: "files__move_file", Args: map[string]any{"source": v.draft(n), "destination": v.published(n)},
		Compensate: toolCall{"files__move_file", map[string]any{"source": v.published(n), "destination": v.draft(n)}}}
}

func orderStep(n int) planStep {
	return planStep{ID: "order", Tool: "db__run_sql", Args: map[string]any{"sql": insert(n)},
		Compensate: toolCall{"db__run_sql", map[string]any{"sql": remove(n)}}}
}

func personStep(n int) planStep {
	name := fmt.Sprintf("person-%d", n)
	return planStep{ID: "person", Tool: "memory__create_entities",
		Args:       map[string]any{"entities": []map[string]any{{"name": name, "entityType": "customer", "observations": []string{"new"}}}},
		Compensate: toolCall{"memory__delete_entities", map[string]any{"entityNames": []string{name}}}}
}

// start approves and starts a plan.
func (v *trio) start(t *testing.T, n int, steps ...planStep) {
	t.Helper()
	v.approved(t, n, steps...)()
}

// approved has a plan approved, and returns what starts it: a command that may
// die with the gateway.
func (v *trio) approved(t *testing.T, n int, steps ...planStep) (start func()) {
	t.Helper()
	if err := os.WriteFile(v.draft(n), []byte("text"), 0o666); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(map[string]any{"name": fmt.Sprintf("plan-%d", n), "steps": steps})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	v.Login()
	if v.bea == "" {
		v.bea = v.AddAdmin("bea")
	}
	v.LoginAs("bea", v.bea) // who asks does not decide
	var o outcome
	r := v.Run("", "saga", "run", file, "--json")
	if err := json.Unmarshal([]byte(r.Out), &o); err != nil || o.Error.Code != "approval_pending" {
		t.Fatalf("a plan that can delete rows must be approved: %v: %s", err, r)
	}
	v.Login()
	v.Must("", "approvals", "approve", o.Error.Ticket)
	return func() { v.begin(t, "saga", "run", file, "--ticket", o.Error.Ticket) }
}

// A told is a saga as far as these tests look at it.
type told struct {
	ID, Name, State, Reason string
	Steps                   []toldStep
}

// saga finds the one of plan n; ok is false if there is none.
func (v *trio) saga(t *testing.T, n int) (s told, ok bool) {
	t.Helper()
	var all struct{ Sagas []told }
	if err := json.Unmarshal([]byte(v.Must("", "saga", "list", "--json").Out), &all); err != nil {
		t.Fatal(err)
	}
	for _, one := range all.Sagas {
		if one.Name == fmt.Sprintf("plan-%d", n) {
			if err := json.Unmarshal([]byte(v.Must("", "saga", "status", one.ID, "--json").Out), &s); err != nil {
				t.Fatal(err)
			}
			return s, true
		}
	}
	return s, false
}

// settled waits for the saga to be undone. Where nobody knows how a call ended,
// it looks at the target and says so, as an operator would.
func (v *trio) settled(t *testing.T, n int) told {
	t.Helper()
	var s told
	v.Eventually(2*time.Minute, "the saga is undone", func() error {
		s, _ = v.saga(t, n)
		if s.State == "compensated" {
			return nil
		}
		for _, st := range s.Steps {
			if st.State == "unknown" || st.State == "undo_unknown" {
				v.look(t, n, s.ID, st)
			}
		}
		return fmt.Errorf("%+v", s)
	})
	return s
}

// look is the operator's, at a target of which nobody knows what was done there.
func (v *trio) look(t *testing.T, n int, saga string, st toldStep) {
	t.Helper()
	word := "failed"
	switch st.ID + " " + st.State {
	case "file unknown":
		word = wordOf(exists(v.published(n)))
	case "file undo_unknown":
		word = wordOf(exists(v.draft(n)))
	case "order unknown":
		word = v.statement(t, insert(n), v.row(t, n))
	case "order undo_unknown":
		word = v.statement(t, remove(n), !v.row(t, n))
	}
	r := v.Run("", "saga", "resolve", saga, st.ID, word, "--attempt", fmt.Sprint(st.attempt()), "--reason", "the target says so")
	t.Logf("plan %d: %s is %s: %s (%s)", n, st.ID, st.State, word, strings.TrimSpace(r.String()))
}

func wordOf(acted bool) string {
	if acted {
		return "done"
	}
	return "failed"
}

// statement is what to say of one. The ledger is told before the server acts: if
// the statement did not act, none of the lines that the ledger has of it did.
func (v *trio) statement(t *testing.T, sql string, acted bool) string {
	t.Helper()
	if !acted {
		v.idle[sql] = v.ledger.Count(sql)
		t.Logf("%q did not act, and the ledger has it %d times", sql, v.idle[sql])
	}
	return wordOf(acted)
}

// acted is how often a statement acted, for all that is known.
func (v *trio) acted(sql string) int { return v.ledger.Count(sql) - v.idle[sql] }

// Three real upstreams; the third step fails; the first two are undone.
func TestSagaOfThreeUpstreams(t *testing.T) {
	t.Parallel()
	v := newTrio(t)
	missing := v.fileStep(1)
	missing.Args["source"] = filepath.Join(v.files, "missing")
	v.start(t, 1, orderStep(1+100), personStep(1), missing)
	if s := v.settled(t, 1); s.Steps[0].State != "undone" || s.Steps[1].State != "undone" || s.Steps[2].State != "failed" {
		t.Errorf("%+v", s)
	}
	if v.row(t, 101) || v.person(t, 1) || exists(v.published(1)) || !exists(v.draft(1)) {
		t.Error("something is left")
	}
	if v.ledger.Count(insert(101)) != 1 || v.ledger.Count(remove(101)) != 1 {
		t.Errorf("the ledger has %q", v.ledger.Lines())
	}
	taken := orderStep(1) // an order with this id is there already
	v.start(t, 2, v.fileStep(2), personStep(2), taken)
	if s := v.settled(t, 2); s.Steps[2].State != "failed" {
		t.Errorf("%+v", s)
	}
	if v.person(t, 2) || exists(v.published(2)) || !exists(v.draft(2)) || !v.row(t, 1) || v.ledger.Count(remove(1)) != 0 {
		t.Error("something is left, or too much was undone")
	}
	v.start(t, 3, v.fileStep(3), personStep(3), orderStep(103)) // positive control: one that succeeds
	v.Eventually(stage.Patience, "it succeeds", func() error {
		if s, _ := v.saga(t, 3); s.State != "succeeded" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if !v.row(t, 103) || !v.person(t, 3) || !exists(v.published(3)) {
		t.Error("not all of it was done")
	}
	v.Must("", "audit", "verify")
}

// The same, with the gateway killed as soon as its record has grown by k entries,
// for each k: whatever was done is undone, each effect once.
func TestSagaKilledBetweenWrites(t *testing.T) {
	t.Parallel()
	v := newTrio(t)
	db := filepath.Join(v.Data, "sallyport.db")
	size := func() int { return ask(t, db, "SELECT sum(size) FROM audit_logs") }
	every := 4
	if os.Getenv("SALLYPORT_SOAK") != "" {
		every = 1
	}
	kills := 0
	for k := 1; ; k += every {
		n := 1000 + k
		fails := planStep{ID: "note", Tool: "memory__add_observations", Compensate: "none",
			Args: map[string]any{"observations": []map[string]any{{"entityName": "nobody", "contents": []string{"x"}}}}}
		start := v.approved(t, n, v.fileStep(n), orderStep(n), fails)
		base := size()
		start()
		over := false
		for deadline := time.Now().Add(stage.Patience); size() < base+k && !over; {
			over = ask(t, db, fmt.Sprintf("SELECT count(*) FROM sagas WHERE state = 'compensated' AND doc LIKE '%%plan-%d\"%%'", n)) == 1
			if time.Now().After(deadline) {
				t.Fatalf("the record does not grow: %s", v.Log())
			}
		}
		all := family(t, v.PID())
		v.Kill()
		kills++
		v.Eventually(stage.Patience, "nobody of before is left", func() error { return extinct(all) })
		v.Start("files", "memory", "db")
		if s, ok := v.saga(t, n); ok {
			s = v.settled(t, n)
			states := fmt.Sprint(s.Steps)
			if strings.Contains(states, "succeeded") || slices.ContainsFunc(s.Steps, func(st toldStep) bool { return st.State == "done" }) {
				t.Errorf("killed at %d: %s", k, states)
			}
		}
		did, undid := v.acted(insert(n)), v.acted(remove(n))
		if v.row(t, n) || exists(v.published(n)) || !exists(v.draft(n)) || did > 1 || undid != did {
			t.Errorf("killed at %d: inserted %d times, deleted %d times, row %t, draft %t, published %t\n%s", k, did, undid,
				v.row(t, n), exists(v.draft(n)), exists(v.published(n)), v.story(t, n))
		}
		if over {
			break
		}
	}
	t.Logf("%d kills", kills)
	if kills < 5 {
		t.Error("that was too few to show anything")
	}
	v.Must("", "audit", "verify")
}
