package conformance

import (
	"encoding/json"
	"fmt"
	"testing"

	"sallyport.dev/sallyport/test/stage"
)

// FO-60: a call of an open saga that waited for a human stays in its saga,
// however the agent comes back for it, so a rollback undoes it. Where the saga is
// over by then, the call no longer runs.
func TestFO60_CallsOfAnOpenSagaThatWaited(t *testing.T) {
	t.Parallel()
	g, l := ledgered(t, "approvals: {cooldown: 0s}\n")
	g.Stop()
	g.Write("tools/a_transfer.yaml", "server: a\ntool: transfer\nrisk: critical\ncompensate: {tool: a__pay, arguments: {undo: {$ref: arguments.to}}}\n")
	g.Start("a")
	c := newRaw(t, g)
	g.Login()
	begin := func() (id, meta string) {
		var out struct{ ID string }
		if err := json.Unmarshal(c.must(t, "saga_begin", `{"name":"mine"}`, "").Structured, &out); err != nil || out.ID == "" {
			t.Fatalf("saga_begin: %v", err)
		}
		return out.ID, `"dev.sallyport/saga":` + str(out.ID)
	}
	rollback := func(id string) { c.must(t, "saga_rollback", `{"id":`+str(id)+`}`, "") }
	ended := func(id string) {
		g.Eventually(stage.Patience, "the saga is over", func() error {
			var s struct{ State string }
			r := g.Must("", "saga", "status", id, "--json")
			if err := json.Unmarshal([]byte(r.Out), &s); err != nil || s.State != "compensated" && s.State != "cancelled" {
				return fmt.Errorf("%v %s", err, s.State)
			}
			return nil
		})
	}
	for i, meta := range []func(ticket, key, saga string) (tool, meta string){
		func(string, string, string) (string, string) { return "approval_result", "" },
		func(ticket, _, _ string) (string, string) { return "a__transfer", ticketed(ticket) },
		func(_, key, _ string) (string, string) { return "a__transfer", keyed(key) },
		func(_, key, saga string) (string, string) { return "a__transfer", keyed(key) + "," + saga },
	} {
		for _, over := range []bool{false, true} {
			id, in := begin()
			to, key := fmt.Sprintf("%d-%v", i, over), fmt.Sprintf("key-%d-%v", i, over)
			args := `{"to":` + str(to) + `}`
			ticket := ticketFor(t, c, "a__transfer", args, in+","+keyed(key))
			g.Must("", "approvals", "approve", ticket)
			if over {
				rollback(id)
				ended(id)
			}
			tool, m := meta(ticket, key, in)
			sent := args
			if tool == "approval_result" {
				sent = `{"ticket":` + str(ticket) + `}`
			}
			a := c.must(t, tool, sent, m)
			if over {
				if a.Text == "paid "+args || l.Count(args) != 0 {
					t.Errorf("%s: ran after its saga was over: %s", to, a)
				}
				continue
			}
			if a.Text != "paid "+args {
				t.Errorf("%s: %s", to, a)
			}
			rollback(id)
			ended(id)
			if n, undone := l.Count(args), l.Count(`{"undo":`+str(to)+`}`); n != 1 || undone != 1 {
				t.Errorf("%s: done %d times, undone %d times", to, n, undone)
			}
		}
	}
	// Another saga is not the one that was approved, and a plan cannot hide in one.
	_, in := begin()
	_, other := begin()
	ticket := ticketFor(t, c, "a__transfer", `{"to":"other"}`, in)
	g.Must("", "approvals", "approve", ticket)
	if a := c.must(t, "a__transfer", `{"to":"other"}`, ticketed(ticket)+","+other); a.Code != "conflict" || l.Count(`{"to":"other"}`) != 0 {
		t.Errorf("in another saga: %s", a)
	}
	if a := c.must(t, "a__transfer", `{"to":"other"}`, ticketed(ticket)); a.Text != `paid {"to":"other"}` {
		t.Errorf("the approval is spoiled: %s", a)
	}
	plan := `{"plan":{"name":"x","steps":[{"id":"s","tool":"a__pay","arguments":{"to":"hidden"},"compensate":"none"}]}}`
	if a := c.must(t, "saga_run", plan, other); a.Code != "invalid_arguments" || l.Count(`{"to":"hidden"}`) != 0 {
		t.Errorf("a plan in an open saga: %s", a)
	}
	if r := g.Run("", "audit", "verify"); r.Code != 0 {
		t.Errorf("%s", r)
	}
}

// A call of an open saga is no repetition of another, nor is another one of it:
// what was undone would count as done.
func TestFO60_UndoneCallIsNoTwin(t *testing.T) {
	t.Parallel()
	g, l := ledgered(t, "")
	g.Stop()
	g.Write("tools/a_pay.yaml", "server: a\ntool: pay\nidempotency: {dedupe: 1h}\ncompensate: {tool: a__honour, arguments: {undo: true}}\n")
	g.Start("a")
	c := newRaw(t, g)
	args := `{"to":"twin"}`
	for n := 1; n <= 2; n++ {
		var out struct{ ID string }
		if err := json.Unmarshal(c.must(t, "saga_begin", `{"name":"mine"}`, "").Structured, &out); err != nil {
			t.Fatal(err)
		}
		if a := c.must(t, "a__pay", args, `"dev.sallyport/saga":`+str(out.ID)); a.Text != "paid "+args || l.Count(args) != n {
			t.Errorf("in saga %d: %s, executed %d times", n, a, l.Count(args))
		}
		c.must(t, "saga_rollback", `{"id":`+str(out.ID)+`}`, "")
		g.Eventually(stage.Patience, "it is undone", func() error { return undone(l, n) })
	}
	for range 2 { // the control: outside of sagas the second is a repetition
		if a := c.must(t, "a__pay", args, ""); a.Text != "paid "+args || l.Count(args) != 3 {
			t.Errorf("outside: %s, executed %d times", a, l.Count(args))
		}
	}
}

func undone(l *stage.Ledger, n int) error {
	if got := l.Count(`{"undo":true}`); got != n {
		return fmt.Errorf("undone %d times of %d", got, n)
	}
	return nil
}
