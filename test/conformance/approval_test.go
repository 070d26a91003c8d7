package conformance

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sallyport.dev/sallyport/test/stage"
)

func TestApprovals(t *testing.T) {
	t.Parallel()
	g, ledger := ledgered(t, "approvals: {cooldown: 0s, per_agent: 100}\n")
	c := newRaw(t, g)
	g.Login()
	second := g.AddAdmin("second")
	run := func(name string, f func(*testing.T)) {
		t.Run(name, func(t *testing.T) {
			g.In(t)
			f(t)
		})
	}
	run("FiftyCallsOneKey", func(t *testing.T) { fiftyCallsOneKey(t, c, ledger) })
	run("TO24_FiftyResumesOneTicket", func(t *testing.T) { fiftyResumesOneTicket(t, g, c, ledger) })
	run("TO22_AlteredArguments", func(t *testing.T) { alteredArguments(t, g, c, ledger) })
	run("Rejected", func(t *testing.T) { rejected(t, g, c, ledger) })
	run("ApprovalResult", func(t *testing.T) { approvalResult(t, g, c, ledger) })
	run("Task", func(t *testing.T) { taskOfApproval(t, g, c, ledger) })
	run("TaskThatRuns", func(t *testing.T) { taskThatRuns(t, g, c, ledger) })
	run("WaitingClient", func(t *testing.T) { waitingClient(t, g, ledger, second) })
	if r := g.Run("", "audit", "verify"); r.Code != 0 {
		t.Errorf("audit verify: %s", r)
	}
}

// Two programs, 25 calls each at the same moment with one idempotency key: the
// upstream sees one.
func fiftyCallsOneKey(t *testing.T, c raw, ledger *stage.Ledger) {
	args := `{"n":300,"to":"fifty"}`
	o := order{URL: c.url, Token: c.token, Tool: "a__pay", Args: args, Metas: repeat(keyed("fifty"), 25)}
	all := together(t, o, o)
	if n := ledger.Count(args); n != 1 {
		t.Errorf("executed %d times", n)
	}
	done := same(t, all, "paid "+args, "in_flight")
	if done == 0 || done == len(all) {
		t.Errorf("%d of %d calls have the result: they did not overlap, so this shows little", done, len(all))
	}
	// Later, everybody gets the result; under another key it acts again.
	if a := c.must(t, "a__pay", args, keyed("fifty")); a.Text != "paid "+args || ledger.Count(args) != 1 {
		t.Errorf("replay: %s, executed %d times", a, ledger.Count(args))
	}
	if a := c.must(t, "a__pay", args, keyed("another")); a.Text != "paid "+args || ledger.Count(args) != 2 {
		t.Errorf("the control, another key: %s, executed %d times", a, ledger.Count(args))
	}
}

// same checks that every answer is the result or a refusal with one of codes,
// and counts the results.
func same(t *testing.T, all []answer, text string, codes ...string) (done int) {
	t.Helper()
	if len(all) != 50 {
		t.Errorf("%d answers to 50 calls", len(all))
	}
	for _, a := range all {
		switch {
		case !a.IsError && a.Text == text:
			done++
		case !slices.Contains(codes, a.Code):
			t.Errorf("neither the result nor %v: %s", codes, a)
		}
	}
	return done
}

// TO-24: one approval is one execution, whatever keys it is resumed with.
func fiftyResumesOneTicket(t *testing.T, g *stage.Gateway, c raw, ledger *stage.Ledger) {
	args := `{"n":300,"to":"to24"}`
	id := ticketFor(t, c, "a__transfer", args, keyed("original"))
	if a := c.must(t, "a__transfer", args, ticketed(id)); a.Code != "approval_pending" {
		t.Errorf("before the decision: %s", a)
	}
	g.Must("", "approvals", "approve", id)
	o := order{URL: c.url, Token: c.token, Tool: "a__transfer", Args: args, Metas: repeat(ticketed(id), 25)}
	for i := 0; i < len(o.Metas); i += 2 {
		o.Metas[i] += "," + keyed(fmt.Sprint("other-", i))
	}
	all := together(t, o, o)
	if n := ledger.Count(args); n != 1 {
		t.Errorf("executed %d times", n)
	}
	if same(t, all, "paid "+args, "in_flight", "conflict", "rejected") == 0 {
		t.Error("nobody has the result")
	}
	if tk := ticket(t, g, id); tk.State != "consumed" {
		t.Errorf("the ticket is %s", tk.State)
	}
}

type shownTicket struct {
	State, Hash, Text string
	Binding           struct{ Args json.RawMessage }
}

func ticket(t *testing.T, g *stage.Gateway, id string) (tk shownTicket) {
	t.Helper()
	if err := json.Unmarshal([]byte(g.Must("", "approvals", "show", id, "--json").Out), &tk); err != nil {
		t.Fatal(err)
	}
	return tk
}

func alteredArguments(t *testing.T, g *stage.Gateway, c raw, ledger *stage.Ledger) {
	args := `{"amount":82000,"memo":{"a":[1,2]},"to":"A"}`
	id := ticketFor(t, c, "a__transfer", args, keyed("to22"))
	g.Must("", "approvals", "approve", id)
	before := len(ledger.Lines())
	for name, altered := range map[string]string{
		"ten times":         `{"amount":820000,"memo":{"a":[1,2]},"to":"A"}`,
		"a fraction":        `{"amount":82000.0,"memo":{"a":[1,2]},"to":"A"}`,
		"a string":          `{"amount":"82000","memo":{"a":[1,2]},"to":"A"}`,
		"an exponent":       `{"amount":8.2e4,"memo":{"a":[1,2]},"to":"A"}`,
		"trailing space":    `{"amount":82000,"memo":{"a":[1,2]},"to":"A "}`,
		"another recipient": `{"amount":82000,"memo":{"a":[1,2]},"to":"B"}`,
		"a homoglyph":       `{"amount":82000,"memo":{"a":[1,2]},"to":"А"}`,
		"an extra field":    `{"amount":82000,"currency":"JPY","memo":{"a":[1,2]},"to":"A"}`,
		"a missing field":   `{"amount":82000,"to":"A"}`,
		"a null":            `{"amount":82000,"memo":null,"to":"A"}`,
		"a nested change":   `{"amount":82000,"memo":{"a":[1,3]},"to":"A"}`,
		"another order":     `{"amount":82000,"memo":{"a":[2,1]},"to":"A"}`,
		"another case":      `{"Amount":82000,"memo":{"a":[1,2]},"to":"A"}`,
	} {
		if a := c.must(t, "a__transfer", altered, ticketed(id)); a.Code != "conflict" {
			t.Errorf("%s, with the ticket: %s", name, a)
		}
		if a := c.must(t, "a__transfer", altered, keyed("to22")); a.Code != "conflict" {
			t.Errorf("%s, with the key: %s", name, a)
		}
		if a := c.must(t, "a__transfer", altered, ""); a.Code != "approval_pending" || a.Ticket == id {
			t.Errorf("%s, as a call of its own: %s", name, a)
		}
	}
	if a := c.must(t, "a__pay", args, ticketed(id)); a.Code != "conflict" {
		t.Errorf("another tool: %s", a)
	}
	g.Must("", "agents", "add", "eve")
	eve := raw{url: c.url, token: g.Token("eve")}
	if a := eve.must(t, "a__transfer", args, ticketed(id)); !a.IsError && a.Error == nil || strings.Contains(a.Text, "paid") {
		t.Errorf("another agent: %s", a)
	}
	if lines := ledger.Lines(); len(lines) != before {
		t.Errorf("an altered call was executed: %q", lines[before:])
	}
	// The same bytes in canonical form, written in another way, are the same call.
	a := c.must(t, "a__transfer", `{ "to":"\u0041", "memo":{"a":[1, 2]}, "amount":82000 }`, ticketed(id))
	if a.Text != "paid "+args || ledger.Count(args) != 1 {
		t.Errorf("the approved call: %s; executed %d times", a, ledger.Count(args))
	}
}

func rejected(t *testing.T, g *stage.Gateway, c raw, ledger *stage.Ledger) {
	args := `{"to":"rejected"}`
	id := ticketFor(t, c, "a__transfer", args, keyed("rejected"))
	g.Must("", "approvals", "reject", id, "--reason", "not this quarter")
	for _, meta := range []string{ticketed(id), keyed("rejected")} {
		if a := c.must(t, "a__transfer", args, meta); a.Code != "rejected" || !strings.Contains(string(a.Result), "not this quarter") {
			t.Errorf("%s: %s", meta, a)
		}
	}
	if r := g.Run("", "call", "a__transfer", args, "--ticket", id); r.Code != 3 {
		t.Errorf("by the command line: %s", r)
	}
	if r := g.Run("", "approvals", "approve", id); r.Code != 3 {
		t.Errorf("approving a rejected ticket: %s", r)
	}
	if ledger.Count(args) != 0 {
		t.Error("a rejected call was executed")
	}
}

// An agent that cannot repeat its arguments comes back with approval_result.
func approvalResult(t *testing.T, g *stage.Gateway, c raw, ledger *stage.Ledger) {
	args := `{"to":"result"}`
	id := ticketFor(t, c, "a__transfer", args, "")
	ask := `{"ticket":` + str(id) + `}`
	if a := c.must(t, "approval_result", ask, ""); a.Code != "approval_pending" {
		t.Errorf("before the decision: %s", a)
	}
	g.Must("", "approvals", "approve", id)
	for range 2 {
		if a := c.must(t, "approval_result", ask, ""); a.Text != "paid "+args {
			t.Errorf("after the decision: %s", a)
		}
	}
	if n := ledger.Count(args); n != 1 {
		t.Errorf("executed %d times", n)
	}
}

// A client that hears progress waits for the human, and its one call runs. Who
// made the call with a login cannot be that human.
func waitingClient(t *testing.T, g *stage.Gateway, ledger *stage.Ledger, second string) {
	args := `{"to":"waiting"}`
	done := make(chan stage.Said)
	go func() { done <- g.Run("", "call", "a__transfer", args, "--wait", "60s") }()
	var id string
	g.Eventually(stage.Patience, "the ticket is there", func() error {
		var out struct {
			Tickets []struct {
				ID      string
				Binding struct{ Args json.RawMessage }
			}
		}
		if err := json.Unmarshal([]byte(g.Must("", "approvals", "list", "--json").Out), &out); err != nil {
			return err
		}
		for _, tk := range out.Tickets {
			if strings.Contains(string(tk.Binding.Args), "waiting") {
				id = tk.ID
				return nil
			}
		}
		return fmt.Errorf("it is not among %d tickets", len(out.Tickets))
	})
	if r := g.Run("", "approvals", "approve", id); r.Code != 3 || !strings.Contains(r.Err, "admin stands behind this call") {
		t.Errorf("by who made the call: %s", r)
	}
	g.LoginAs("second", second)
	g.Must("", "approvals", "approve", id)
	if r := <-done; r.Code != 0 || !strings.Contains(r.Out, "paid") || ledger.Count(args) != 1 {
		t.Errorf("%s; executed %d times", r, ledger.Count(args))
	}
}
