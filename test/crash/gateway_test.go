package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"sallyport.dev/sallyport/test/stage"
)

// The real programs, killed with everything that they started.

// A process is one that was there once.
type process struct {
	pid, parent int
	name, start string // when it started tells it from a later one of its number
}

func readProc(pid int) (p process, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	name, rest, found := strings.Cut(string(b), ") ")
	words := strings.Fields(rest)
	if err != nil || !found || len(words) < 20 || words[0] == "Z" || words[0] == "X" {
		return p, false
	}
	_, p.name, _ = strings.Cut(name, "(")
	p.pid, p.start = pid, words[19]
	p.parent, err = strconv.Atoi(words[1])
	return p, err == nil
}

// family is a process and everything that descends from it.
func family(t *testing.T, root int) (all []process) {
	t.Helper()
	entries, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	children := map[int][]process{}
	for _, e := range entries {
		pid, err := strconv.Atoi(filepath.Base(e))
		if err != nil {
			t.Fatal(err)
		}
		if p, ok := readProc(pid); ok {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	p, ok := readProc(root)
	if !ok {
		t.Fatalf("there is no process %d", root)
	}
	all = []process{p}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i].pid]...)
	}
	return all
}

func (p process) lives() bool {
	now, ok := readProc(p.pid)
	return ok && now.start == p.start
}

// extinct is nil if none of a family lives.
func extinct(all []process) error {
	var left []string
	for _, p := range all {
		if p.lives() {
			left = append(left, fmt.Sprintf("%d %s", p.pid, p.name))
		}
	}
	if left != nil {
		return errors.New(strings.Join(left, ", "))
	}
	return nil
}

func member(t *testing.T, all []process, name string) process {
	t.Helper()
	for _, p := range all {
		if strings.HasPrefix(p.name, name) {
			return p
		}
	}
	t.Fatalf("no %s in %+v", name, all)
	return process{}
}

// A victim is a gateway that will be killed.
type victim struct {
	*stage.Gateway
	ledger *stage.Ledger
}

func newVictim(t *testing.T) *victim {
	g, l := stage.New(t), stage.NewLedger(t)
	g.Write("sallyport.yaml", g.Config(stage.Servers(map[string]stage.Server{"a": stage.Actor(stage.Self(t), "a", l.Env())})))
	g.Manifests("a")
	g.Start("a")
	return &victim{g, l}
}

// An outcome is what `call --json` prints, on success and on failure.
type outcome struct {
	Result struct {
		Content []struct{ Text string }
	}
	Error struct{ Code, Ticket string }
	Exit  int `json:"-"`
	all   string
}

func (o outcome) text() string {
	if len(o.Result.Content) == 0 {
		return ""
	}
	return o.Result.Content[0].Text
}

func (v *victim) call(t *testing.T, tool, args string, more ...string) (o outcome) {
	t.Helper()
	r := v.Run("", append([]string{"call", "--json", tool, args}, more...)...)
	if err := json.Unmarshal([]byte(r.Out), &o); err != nil {
		t.Fatalf("%s %s: %v: %s", tool, args, err, r)
	}
	o.Exit, o.all = r.Code, r.String()
	return o
}

// begin runs a command that dies with the gateway.
func (v *victim) begin(t *testing.T, args ...string) {
	t.Helper()
	cmd := v.Command(context.Background(), args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }()
}

// ticket makes a call that a human must approve, and approves it.
func (v *victim) ticket(t *testing.T, args string) string {
	t.Helper()
	o := v.call(t, "a__transfer", args)
	if o.Error.Code != "approval_pending" || o.Exit != 4 {
		t.Fatalf("it does not wait for a human: %s", o.all)
	}
	v.Login()
	v.Must("", "approvals", "approve", o.Error.Ticket)
	return o.Error.Ticket
}

// busy has a sandbox running and a server with a child that left its family.
func (v *victim) busy(t *testing.T) []process {
	t.Helper()
	child, err := strconv.Atoi(v.call(t, "a__spawn", `{}`).text())
	if err != nil {
		t.Fatal(err)
	}
	v.begin(t, "call", "run_python", `{"code":"import subprocess,time\nsubprocess.Popen(['sleep','25'])\ntime.sleep(25)"}`)
	var all []process
	v.Eventually(stage.Patience, "a sandbox runs", func() error {
		var out struct{ Sandboxes []struct{ CallID string } }
		if err := json.Unmarshal([]byte(v.Must("", "sandbox", "ps", "--json").Out), &out); err != nil {
			return err
		}
		if all = family(t, v.PID()); len(out.Sandboxes) == 0 || len(all) < 5 { // the program in it has started
			return fmt.Errorf("%d sandboxes, %+v", len(out.Sandboxes), all)
		}
		return nil
	})
	p, ok := readProc(child)
	if !ok {
		t.Fatalf("the server's child %d is not there", child)
	}
	if all = append(all, p); len(all) < 6 {
		t.Fatalf("too little runs for this to show anything: %+v", all)
	}
	return all
}

func kill(t *testing.T, p process) {
	t.Helper()
	if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil {
		t.Errorf("%+v: %v", p, err)
	}
}

// Approved, killed, restarted: it runs once, and nobody of before is left.
func TestApprovedThenKilled(t *testing.T) {
	t.Parallel()
	v := newVictim(t)
	for _, who := range []string{"both", "gateway", "sandboxd"} {
		t.Run(who, func(t *testing.T) {
			v.In(t)
			args := `{"to":"` + who + `"}`
			id := v.ticket(t, args)
			all := v.busy(t)
			host := member(t, all, "sallyport-sandb")
			switch who {
			case "both":
				kill(t, host)
				v.Kill()
			case "gateway":
				v.Kill()
			case "sandboxd":
				kill(t, host)
				v.Eventually(stage.Patience, "the gateway says that it cannot run code", func() error {
					if status, body := v.Get("/readyz"); status != 503 {
						return fmt.Errorf("%d %s", status, body)
					}
					return nil
				})
				if o := v.call(t, "run_python", `{"code":"print(1)"}`); o.Error.Code != "unavailable" {
					t.Errorf("without a sandbox host: %s", o.all)
				}
				v.Kill()
			}
			v.Start("a")
			v.Eventually(stage.Patience, "nobody of before is left", func() error { return extinct(all) })
			for range 2 {
				if o := v.call(t, "a__transfer", args, "--ticket", id); o.text() != "paid "+args {
					t.Errorf("resumed: %s", o.all)
				}
			}
			if n := v.ledger.Count(args); n != 1 {
				t.Errorf("executed %d times", n)
			}
			if o := v.call(t, "run_python", `{"code":"print(6*7)"}`); o.text() != "42\n" {
				t.Errorf("code afterwards: %s", o.all)
			}
		})
	}
	v.Must("", "audit", "verify")
	all := v.busy(t)
	v.Stop()
	if err := extinct(all); err != nil {
		t.Errorf("still there after SIGTERM: %v", err)
	}
}

func (v *victim) unknown(t *testing.T) (keys []string) {
	t.Helper()
	var out struct{ Reservations []struct{ Key string } }
	if err := json.Unmarshal([]byte(v.Must("", "reservations", "list", "--state", "unknown", "--json").Out), &out); err != nil {
		t.Fatal(err)
	}
	for _, r := range out.Reservations {
		keys = append(keys, r.Key)
	}
	return keys
}

// Killed while calls execute: their outcome is unknown, nothing is tried again,
// and an operator settles it.
func TestKilledWhileExecuting(t *testing.T) {
	t.Parallel()
	v := newVictim(t)
	calls := []string{`{"n":1}`, `{"n":2}`}
	for i, args := range calls {
		v.begin(t, "call", "a__hang", args, "--key", fmt.Sprint("hang-", i))
	}
	paid := `{"n":60000,"to":"killed"}`
	id := v.ticket(t, paid)
	v.begin(t, "call", "a__transfer", paid, "--ticket", id)
	v.Eventually(stage.Patience, "all are executing", func() error {
		if lines := v.ledger.Lines(); len(lines) != 3 {
			return fmt.Errorf("%q", lines)
		}
		return nil
	})
	all := family(t, v.PID())
	kill(t, member(t, all, "sallyport-sandb"))
	v.Kill()
	v.Start("a")
	v.Eventually(stage.Patience, "nobody of before is left", func() error { return extinct(all) })
	if keys := v.unknown(t); len(keys) != 3 {
		t.Errorf("unknown are %q, want 3", keys)
	}
	for i, args := range calls {
		if o := v.call(t, "a__hang", args, "--key", fmt.Sprint("hang-", i)); o.Error.Code != "outcome_unknown" || o.Exit != 1 {
			t.Errorf("asked again: %s", o.all)
		}
	}
	if o := v.call(t, "a__transfer", paid, "--ticket", id); o.Error.Code != "outcome_unknown" {
		t.Errorf("resumed: %s", o.all)
	}
	if lines := v.ledger.Lines(); len(lines) != 3 {
		t.Errorf("something was tried again: %q", lines)
	}
	v.settle(t, calls)
	v.Must("", "audit", "verify")
}

func (v *victim) settle(t *testing.T, calls []string) {
	t.Helper()
	if r := v.Run("", "reservations", "resolve", "agent", "a__hang", "hang-0", "done"); r.Code == 0 {
		t.Errorf("resolved without a reason: %s", r)
	}
	v.Must("", "reservations", "resolve", "agent", "a__hang", "hang-0", "done", "--reason", "the ledger has it")
	v.Must("", "reservations", "resolve", "agent", "a__hang", "hang-1", "failed", "--reason", "the ledger does not have it")
	if keys := v.unknown(t); len(keys) != 1 {
		t.Errorf("unknown are still %q", keys)
	}
	if o := v.call(t, "a__hang", calls[0], "--key", "hang-0"); o.Exit != 0 {
		t.Errorf("after it was resolved as done: %s", o.all)
	}
	if n := v.ledger.Count(calls[0]); n != 1 {
		t.Errorf("resolved as done, and executed %d times", n)
	}
	v.begin(t, "call", "a__hang", calls[1], "--key", "hang-1")
	v.Eventually(stage.Patience, "the one that failed acts again", func() error {
		if n := v.ledger.Count(calls[1]); n != 2 {
			return fmt.Errorf("%d times", n)
		}
		return nil
	})
}
