package conformance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.dev/sallyport/test/stage"
)

// TO-22: a file that changes behind an approved path makes the approval void;
// what is approved and unchanged runs.
func TestTO22_ChangedFileBehindAnApprovedPath(t *testing.T) {
	t.Parallel()
	g, l := stage.New(t), stage.NewLedger(t)
	g.Write("sallyport.yaml", g.Config(roomy+stage.Servers(map[string]stage.Server{"a": stage.Actor(stage.Self(t), "a", l.Env())})))
	g.Manifests("a")
	g.Write("tools/a_transfer.yaml", `server: a
tool: transfer
risk: critical
fields:
  - {path: /path, kind: path}
  - {path: /text, kind: reference}
witness:
  - {name: file, tool: a__who, arguments: {path: {$arg: /path}}, select: /content/0/text, binds: /path}
`)
	g.Start("a")
	file := filepath.Join(stage.OpenDir(t), "payments.csv")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("A,82000")
	c := newRaw(t, g)
	g.Login()
	args := `{"path":` + str(file) + `,"text":"doc-7"}`
	id := ticketFor(t, c, "a__transfer", args, "")
	shown := g.Must("", "approvals", "show", id).Out
	if !strings.Contains(shown, "seen now     file: ") || !strings.Contains(shown, "content not bound: /text") || strings.Contains(shown, "content not bound: /path") {
		t.Errorf("the ticket shows\n%s", shown)
	}
	g.Must("", "approvals", "approve", id)
	write("A,820000")
	for _, want := range []string{"conflict", "rejected"} { // void from then on
		if a := c.must(t, "a__transfer", args, ticketed(id)); a.Code != want || !strings.Contains(string(a.Result), "file has changed since the ticket was opened") {
			t.Errorf("want %s: %s", want, a)
		}
	}
	if tk := ticket(t, g, id); tk.State != "void" || l.Count(args) != 0 {
		t.Errorf("the ticket is %s, executed %d times", tk.State, l.Count(args))
	}
	id = ticketFor(t, c, "a__transfer", args, "") // the control
	g.Must("", "approvals", "approve", id)
	if a := c.must(t, "a__transfer", args, ticketed(id)); !strings.Contains(a.Text, "paid") || l.Count(args) != 1 {
		t.Errorf("unchanged: %s, executed %d times", a, l.Count(args))
	}
}
