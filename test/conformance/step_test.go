package conformance

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"sallyport.dev/sallyport/test/stage"
)

// TO-38, FO-59: an agent that asks for the result of a step of its saga, as it may
// for any ticket, neither carries the step out nor spoils its approval, before
// and after a human decides.
func TestTO38_AskingForAStepDoesNotSpoilIt(t *testing.T) {
	t.Parallel()
	g, l := ledgered(t, "approvals: {cooldown: 0s}\n")
	c := newRaw(t, g)
	g.Login()
	plan := `{"plan":{"name":"x","steps":[{"id":"a","tool":"a__say","arguments":{"text":"v"}},` +
		`{"id":"b","tool":"a__transfer","arguments":{"x":{"$ref":"steps.a.content.0.text"}},"compensate":"none"}]}}`
	ticketOfPlan := ticketFor(t, c, "saga_run", plan, keyed("plan"))
	g.Must("", "approvals", "approve", ticketOfPlan)
	var saga struct{ ID string }
	if a := c.must(t, "saga_run", plan, keyed("plan")); json.Unmarshal(a.Structured, &saga) != nil || saga.ID == "" {
		t.Fatalf("saga_run: %s", a)
	}
	var step string // what it is called with strayed from the plan, so it has a ticket of its own
	g.Eventually(stage.Patience, "the step waits", func() error {
		var out struct{ Tickets []struct{ ID, State string } }
		if err := json.Unmarshal([]byte(g.Must("", "approvals", "list", "--json").Out), &out); err != nil {
			return err
		}
		for _, tk := range out.Tickets {
			if tk.State == "pending" {
				step = tk.ID
				return nil
			}
		}
		return fmt.Errorf("%d tickets", len(out.Tickets))
	})
	const args = `{"x":"v"}`
	ask := func(i int) answer {
		if i%2 == 0 {
			return c.must(t, "a__transfer", args, ticketed(step))
		}
		return c.must(t, "approval_result", `{"ticket":`+str(step)+`}`, "")
	}
	for i := range 2 {
		if a := ask(i); a.Code != "approval_pending" || a.Ticket != step {
			t.Errorf("before: %s", a)
		}
	}
	var wg sync.WaitGroup
	done := make(chan struct{})
	for i := range 4 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if a := ask(i); a.Text != "paid "+args && a.Code != "approval_pending" && a.Code != "in_flight" {
					t.Errorf("while it is decided: %s", a)
					return
				}
			}
		})
	}
	g.Must("", "approvals", "approve", step)
	g.Eventually(stage.Patience, "the saga has succeeded", func() error {
		var s struct{ State, Reason string }
		if err := json.Unmarshal([]byte(g.Must("", "saga", "status", saga.ID, "--json").Out), &s); err != nil || s.State != "succeeded" {
			return fmt.Errorf("%v %s %s", err, s.State, s.Reason)
		}
		return nil
	})
	close(done)
	wg.Wait()
	if a := ask(0); a.Text != "paid "+args || l.Count(args) != 1 {
		t.Errorf("after: %s, executed %d times", a, l.Count(args))
	}
}
