package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sallyport.dev/sallyport/store/postgres/postgrestest"
	"sallyport.dev/sallyport/test/stage"
)

// A pair is two gateways, each a process with a data folder of its own, on one
// PostgreSQL database. Their upstreams tell one ledger.
type pair struct {
	server *postgrestest.Server
	ledger *stage.Ledger
	g      [2]*stage.Gateway
	c      [2]raw
}

func newPair(t *testing.T) *pair { return newPairWith(t, "approvals: {cooldown: 0s}\n") }

// newPairWith is newPair with more in the configuration.
func newPairWith(t *testing.T, more string) *pair {
	t.Helper()
	p := &pair{server: postgrestest.New(t), ledger: stage.NewLedger(t)}
	p.g[0] = stage.NewOn(t, p.server.Database(t))
	p.g[1] = p.g[0].Join(t)
	self := stage.Self(t)
	for i, g := range p.g {
		g.Write("sallyport.yaml", g.Config(roomy+more+stage.Servers(map[string]stage.Server{"a": stage.Actor(self, "a", p.ledger.Env())})))
		g.Manifests("a")
		g.Start("a")
		p.c[i] = newRaw(t, g)
		g.Login()
	}
	p.trust(t)
	return p
}

// trust tells each gateway the other's audit key.
func (p *pair) trust(t *testing.T) {
	t.Helper()
	theirs, err := os.ReadFile(filepath.Join(p.g[1].Data, "keys", "audit.pub"))
	if err != nil {
		t.Fatal(err)
	}
	if r := p.g[0].Run("", "audit", "verify"); r.Code == 0 || !strings.Contains(r.Out, "not signed by a given key") {
		t.Errorf("a log with an unknown key verifies: %s", r)
	}
	if err := os.WriteFile(filepath.Join(p.g[0].Data, "keys", "audit-others.pub"), theirs, 0o644); err != nil {
		t.Fatal(err)
	}
}

func (p *pair) verify(t *testing.T) {
	t.Helper()
	for i, g := range p.g {
		var rep struct {
			Logs []struct {
				Entries   int
				KeptHeads int `json:"kept_heads"`
			}
			Problems []struct{ What string }
		}
		var heads []string
		for _, g := range p.g {
			heads = append(heads, "--head", filepath.Join(g.Data, "keys", "audit-heads"))
		}
		r := g.Run("", append([]string{"audit", "verify", "--json"}, heads...)...)
		if err := json.Unmarshal([]byte(r.Out), &rep); err != nil || r.Code != 0 || len(rep.Logs) != 2 {
			t.Errorf("audit verify at gateway %d: %v, %s", i, err, r)
			continue
		}
		for _, l := range rep.Logs {
			if l.Entries < 3 || l.KeptHeads == 0 {
				t.Errorf("gateway %d: a log with %d entries, %d kept heads", i, l.Entries, l.KeptHeads)
			}
		}
	}
}

func (p *pair) state(t *testing.T, key string) (state string) {
	t.Helper()
	var out struct{ Reservations []struct{ Key, State string } }
	if err := json.Unmarshal([]byte(p.g[1].Must("", "reservations", "list", "--json").Out), &out); err != nil {
		t.Fatal(err)
	}
	for _, r := range out.Reservations {
		if r.Key == key {
			state = r.State
		}
	}
	return state
}

// TO-24 with two gateway processes: fifty executions of one approved ticket at
// the same moment, 25 at each, half of them with another idempotency key. The
// upstreams' ledger has one effect.
func TestTO24_TwoGateways(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	args := `{"n":300,"to":"two gateways"}`
	id := ticketFor(t, p.c[0], "a__transfer", args, keyed("original"))
	p.g[1].Must("", "approvals", "approve", id)
	var orders []order
	for i, c := range p.c {
		o := order{URL: c.url, Token: c.token, Tool: "a__transfer", Args: args, Metas: repeat(ticketed(id), 25)}
		for j := i; j < len(o.Metas); j += 2 {
			o.Metas[j] += "," + keyed(fmt.Sprintf("other-%d-%d", i, j))
		}
		orders = append(orders, o)
	}
	all := together(t, orders...)
	if n := p.ledger.Count(args); n != 1 {
		t.Errorf("executed %d times", n)
	}
	if same(t, all, "paid "+args, "in_flight", "conflict", "rejected") == 0 {
		t.Error("nobody has the result")
	}
	for i, g := range p.g {
		if tk := ticket(t, g, id); tk.State != "consumed" {
			t.Errorf("at gateway %d the ticket is %s", i, tk.State)
		}
		if a := p.c[i].must(t, "a__transfer", args, ticketed(id)); a.Text != "paid "+args {
			t.Errorf("the result at gateway %d: %s", i, a)
		}
	}
	// The control: another approval is another effect.
	again := ticketFor(t, p.c[1], "a__transfer", args, keyed("again"))
	p.g[0].Must("", "approvals", "approve", again)
	if a := p.c[1].must(t, "a__transfer", args, ticketed(again)); a.Text != "paid "+args || p.ledger.Count(args) != 2 {
		t.Errorf("the control: %s, executed %d times", a, p.ledger.Count(args))
	}
	p.verify(t)
}

// FO-59 on two gateways with two approvers: of twenty decisions at once one
// takes effect, the losers are told the final state, and calls that look the
// same are questions of their own.
func TestFO59_TwoGateways(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.g[1].Stop()
	var bob struct{ Password string }
	if err := json.Unmarshal([]byte(p.g[1].Must("", "admins", "reset", "bob", "--json").Out), &bob); err != nil {
		t.Fatal(err)
	}
	p.g[1].Start("a")
	p.g[1].Must(bob.Password, "login", "--name", "bob", "--password-stdin")

	for _, verbs := range [][2]string{{"approve", "approve"}, {"approve", "reject"}} {
		args := fmt.Sprintf(`{"to":%q}`, strings.Join(verbs[:], " "))
		id := ticketFor(t, p.c[0], "a__transfer", args, keyed(args))
		won, by := p.decideAtOnce(t, id, verbs)
		if won != 1 {
			t.Errorf("%v: %d of 20 decisions took effect", verbs, won)
		}
		for i := range p.c { // what was decided runs once, at whichever gateway
			a := p.c[i].must(t, "a__transfer", args, ticketed(id))
			if approved := by == "approve"; approved && a.Text != "paid "+args || !approved && a.Code != "rejected" {
				t.Errorf("%v, decided %s: %s", verbs, by, a)
			}
		}
		if n, want := p.ledger.Count(args), map[string]int{"approve": 1}[by]; n != want {
			t.Errorf("%v: executed %d times, want %d", verbs, n, want)
		}
	}

	args := `{"to":"twins"}`
	ids := map[string]int{}
	for i := range 5 {
		ids[ticketFor(t, p.c[i%2], "a__transfer", args, keyed(fmt.Sprint("twin", i)))] = i
	}
	if len(ids) != 5 {
		t.Fatalf("%d tickets for five calls", len(ids))
	}
	decided := 0
	for id := range ids {
		if decided++; decided > 2 {
			break
		}
		p.g[decided%2].Must("", "approvals", "approve", id)
		for other, i := range ids {
			p.c[(i+1)%2].must(t, "a__transfer", args, ticketed(other))
		}
		if n := p.ledger.Count(args); n != decided {
			t.Errorf("after %d decisions, executed %d times", decided, n)
		}
	}
	p.verify(t)
}

// decideAtOnce has ten decisions at each gateway, and says how many took effect
// and which one did.
func (p *pair) decideAtOnce(t *testing.T, id string, verbs [2]string) (won int, by string) {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i := range 20 {
		wg.Go(func() {
			verb := verbs[i/2%2]
			r := p.g[i%2].Run("", "approvals", verb, id, "--reason", "because", "--json")
			mu.Lock()
			defer mu.Unlock()
			if r.Code == 0 {
				won, by = won+1, verb
			} else if !strings.Contains(r.String(), "conflict") || !strings.Contains(r.String(), "already ") {
				t.Errorf("a decision that came late: %s", r)
			}
		})
	}
	wg.Wait()
	return won, by
}

// A decision at one gateway wakes the call that waits at the other.
func TestDecisionWakesTheOtherGateway(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	args := `{"to":"waiting"}`
	done := make(chan stage.Said, 1)
	go func() { done <- p.g[0].Run("", "call", "a__transfer", args, "--wait", "60s", "--key", "waiting") }()
	var out struct{ Tickets []struct{ ID string } }
	p.g[1].Eventually(stage.Patience, "the other gateway shows the ticket", func() error {
		err := json.Unmarshal([]byte(p.g[1].Must("", "approvals", "list", "--json").Out), &out)
		if err == nil && len(out.Tickets) != 1 {
			err = fmt.Errorf("%d tickets", len(out.Tickets))
		}
		return err
	})
	p.g[1].LoginAs("bea", p.g[1].AddAdmin("bea")) // who called does not decide
	p.g[1].Must("", "approvals", "approve", out.Tickets[0].ID)
	if r := <-done; r.Code != 0 || !strings.Contains(r.Out, "paid") || p.ledger.Count(args) != 1 {
		t.Errorf("%s; executed %d times", r, p.ledger.Count(args))
	}
	p.verify(t)
}

// A gateway is killed in the middle of an execution. The other notices when its
// lease has run out: the outcome is unknown, and the call is never run again.
// What that other gateway itself executes is not touched.
func TestKilledGatewayIsMissed(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	over := filepath.Join(stage.OpenDir(t), "over")
	lost, kept := `{"path":"/nowhere","to":"lost"}`, `{"path":"`+over+`","to":"kept"}`
	id := ticketFor(t, p.c[0], "a__transfer", lost, keyed("lost"))
	p.g[1].Must("", "approvals", "approve", id)
	go func() { _, _ = p.c[0].call("1", "a__transfer", lost, ticketed(id)) }() // ends with the gateway
	done := make(chan answer, 1)
	go func() {
		a, err := p.c[1].call("1", "a__pay", kept, keyed("kept"))
		if err != nil {
			t.Error(err)
		}
		done <- a
	}()
	p.g[1].Eventually(stage.Patience, "both execute", func() error {
		if p.ledger.Count(lost) != 1 || p.ledger.Count(kept) != 1 {
			return fmt.Errorf("%q", p.ledger.Lines())
		}
		return nil
	})
	p.g[0].Kill()
	if s := p.state(t, "lost"); s != "executing" {
		t.Errorf("right after the kill it is %s", s)
	}
	p.g[1].Eventually(stage.Patience, "the other gateway misses it", func() error {
		if s := p.state(t, "lost"); s != "unknown" {
			return errors.New(s)
		}
		return nil
	})
	for range 2 {
		if a := p.c[1].must(t, "a__transfer", lost, ticketed(id)); a.Code != "outcome_unknown" {
			t.Errorf("asked again: %s", a)
		}
	}
	p.g[0].Start("a") // it comes back, and finds its call where the other put it
	if a := newRaw(t, p.g[0]).must(t, "a__transfer", lost, ticketed(id)); a.Code != "outcome_unknown" {
		t.Errorf("asked at the one that was killed: %s", a)
	}
	if err := os.WriteFile(over, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if a := <-done; a.Text != "paid "+kept {
		t.Errorf("the call of the gateway that lived: %s", a)
	}
	if p.ledger.Count(lost) != 1 || p.ledger.Count(kept) != 1 {
		t.Errorf("something was tried again: %q", p.ledger.Lines())
	}
	p.verify(t)
}
