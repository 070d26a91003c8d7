package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"sallyport.dev/sallyport/test/stage"
)

// FO-33: with a call at each of two servers, one in a sandbox and one that
// waits for a human, each cancellation ends its own call and no other.
func TestFO33_CancelEndsItsOwnCall(t *testing.T) {
	t.Parallel()
	g, l := stage.New(t), stage.NewLedger(t)
	servers := map[string]stage.Server{"a": stage.Actor(stage.Self(t), "a", l.Env()), "b": stage.Actor(stage.Self(t), "b", l.Env())}
	g.Write("sallyport.yaml", g.Config(roomy+stage.Servers(servers)))
	g.Manifests("a")
	g.Manifests("b")
	g.Start("a", "b")
	c := newRaw(t, g).legacy(t)
	g.Login()
	done := map[string]chan answer{}
	begin := func(id, tool, args, meta string) {
		done[id] = make(chan answer, 1)
		go func() {
			a, err := c.call(str(id), tool, args, meta)
			if err != nil {
				a.Text = "failed: " + err.Error()
			}
			done[id] <- a
		}()
	}
	begin("one", "a__hang", `{"text":"one"}`, "")
	begin("two", "b__wait", `{"n":8000,"text":"two"}`, "")
	begin("box", "run_python", `{"code":"import time\ntime.sleep(600)"}`, "")
	begin("human", "a__transfer", `{"text":"human"}`, `"progressToken":1`)
	ticket := waitingTicket(t, g, "human")
	g.Eventually(stage.Patience, "all are on their way", func() error {
		if n := strings.Count(g.Must("", "sandbox", "ps", "--json").Out, `"sandbox_id"`); n != 1 || l.Count(`{"text":"one"}`) != 1 {
			return fmt.Errorf("%d sandboxes, ledger %q", n, l.Lines())
		}
		return nil
	})
	cancel := func(id string) {
		h, body, err := c.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+str(id)+`,"reason":"enough"}}`, nil)
		if err != nil || h.Get("Status") != "202" {
			t.Fatalf("cancelling %s: %s %s, %v", id, h.Get("Status"), body, err)
		}
	}
	cancel("nobody's")
	cancel("one")
	g.Eventually(stage.Patience, "the server is told, by its own id", func() error { return told(l, `cancelled a {"text":"one"}`) })
	cancel("box")
	g.Eventually(stage.Patience, "the sandbox is gone", func() error {
		if out := g.Must("", "sandbox", "ps", "--json").Out; strings.Contains(out, "sandbox_id") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	cancel("human")
	g.Eventually(stage.Patience, "the ticket is taken back", func() error { return inState(t, g, ticket, "withdrawn") })
	if r := g.Run("", "approvals", "approve", ticket); r.Code != 3 || !strings.Contains(r.Err, "already withdrawn") {
		t.Errorf("a later approval: %s", r)
	}
	if a := <-done["two"]; a.Text != "waited" {
		t.Errorf("the call of another server: %s", a)
	}
	cancel("two") // is over
	if n := len(l.Lines()); n != 2 {
		t.Errorf("the servers were told %q, want one call and one cancellation", l.Lines())
	}
	for call, tool := range map[string]string{"one": "a__hang", "box": "run_python", "human": "a__transfer"} {
		g.Eventually(stage.Patience, call+" is on record", func() error { return cancelledBy(g, tool, "client") })
	}
	droppedConnection(t, g, l, raw{url: c.url, token: c.token})
}

// A connection that drops takes back a question that nobody can come back for.
func droppedConnection(t *testing.T, g *stage.Gateway, l *stage.Ledger, c raw) {
	for name, tt := range map[string]struct{ meta, state string }{
		"dropped":            {`"progressToken":1`, "withdrawn"},
		"dropped with a key": {`"progressToken":1,` + keyed("back"), "pending"},
	} {
		ctx, drop := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url,
			strings.NewReader(callBody("1", "a__transfer", `{"text":`+str(name)+`}`, modernMeta+","+tt.meta)))
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range modernHeader("a__transfer") {
			req.Header.Set(k, v)
		}
		req.Header.Set("Authorization", "Bearer "+c.token)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		resp, err := http.DefaultClient.Do(req) // returns with the first event: the call waits
		if err != nil {
			t.Fatal(err)
		}
		id := waitingTicket(t, g, name)
		drop()
		resp.Body.Close()
		if tt.state == "pending" { // it stays: whoever comes back gets its result
			g.Must("", "approvals", "approve", id)
			if a := c.must(t, "a__transfer", `{"text":`+str(name)+`}`, keyed("back")); !strings.Contains(a.Text, "paid") {
				t.Errorf("%s: whoever comes back gets %s", name, a)
			}
			continue
		}
		g.Eventually(stage.Patience, name, func() error { return inState(t, g, id, tt.state) })
		g.Eventually(stage.Patience, "it is on record", func() error { return cancelledBy(g, "a__transfer", "disconnect") })
	}
	if l.Count(`{"text":"dropped"}`) != 0 || l.Count(`{"text":"human"}`) != 0 {
		t.Errorf("a call that was taken back was executed: %q", l.Lines())
	}
}

// waitingTicket is the one whose arguments hold text.
func waitingTicket(t *testing.T, g *stage.Gateway, text string) (id string) {
	t.Helper()
	g.Eventually(stage.Patience, "the ticket of "+text, func() error {
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
			if strings.Contains(string(tk.Binding.Args), str(text)) {
				id = tk.ID
				return nil
			}
		}
		return fmt.Errorf("not among %d", len(out.Tickets))
	})
	return id
}

// cancelledBy checks that the record says once who cancelled a call of a tool.
func cancelledBy(g *stage.Gateway, tool, by string) error {
	out := g.Must("", "audit", "search", "--tool", tool, "--json").Out
	if n := strings.Count(out, `"cancelled_by": `+str(by)); n != 1 {
		return fmt.Errorf("%d records of %s say it: %s", n, tool, out)
	}
	return nil
}

func inState(t *testing.T, g *stage.Gateway, id, want string) error {
	if tk := ticket(t, g, id); tk.State != want {
		return fmt.Errorf("ticket %s is %s", id, tk.State)
	}
	return nil
}

func told(l *stage.Ledger, line string) error {
	if l.Count(line) != 1 {
		return fmt.Errorf("the ledger has %q", l.Lines())
	}
	return nil
}
