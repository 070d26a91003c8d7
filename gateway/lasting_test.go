package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/held"
	"sallyport.dev/sallyport/test/await"
)

var heldKey = []byte("0123456789abcdef0123456789abcdef")

// lasting is a world whose tool goes on until it is released, and what releases it. One
// that can ask asks before.
func lasting(t *testing.T) (w *world, calls *held.Calls, release chan error) {
	w, calls = asking(t)
	w.Limits.Task = time.Millisecond
	release = make(chan error, 1)
	w.run = func(ctx context.Context, j sallyport.Job) (sallyport.Output, error) {
		said := `"none"`
		if j.Ask != nil {
			for range 2 {
				a, err := j.Ask(ctx, []sallyport.Question{{Key: "who", Method: sallyport.AskRoots}})
				if err != nil {
					return sallyport.Output{}, err
				}
				said = string(a[0].Result)
			}
		}
		select {
		case err := <-release:
			return sallyport.Output{Content: json.RawMessage(`{"content":[],"structuredContent":{"said":` + said + `}}`)}, err
		case <-ctx.Done():
			return sallyport.Output{}, ctx.Err()
		}
	}
	return w, calls, release
}

func takes(req sallyport.Request) sallyport.Request {
	req.Tasks = true
	return req
}

// become makes a call that becomes a task.
func become(t *testing.T, w *world, calls *held.Calls, req sallyport.Request) string {
	t.Helper()
	res, err := calls.Begin(t.Context(), takes(req), w.Call)
	if err != nil || res.Task == "" || res.Content != nil || res.CallID == "" {
		t.Fatalf("%+v, %v", res, err)
	}
	return res.Task
}

func ask(req sallyport.Request, g *Gateway, task string) (sallyport.Result, error) {
	return g.Later(context.Background(), req, sallyport.Visit{Task: task})
}

// A call that takes long becomes a task: it runs once, on its own, and its result is
// found by who made it, and by nobody else.
func TestACallThatTakesLongBecomesATask(t *testing.T) {
	for _, level := range []sallyport.Level{sallyport.Low, sallyport.High} {
		w, calls, release := lasting(t)
		w.risk.Level = level
		req := call(`{"n":1}`)
		task := become(t, w, calls, req)
		await.That(t, "no slot is held while nobody waits", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.slots == 0 })
		if _, err := ask(req, w.Gateway, task); sallyport.CodeOf(err) != sallyport.InFlight {
			t.Errorf("while it runs: %v", err)
		}
		release <- nil
		await.That(t, "it ends", func() bool { _, err := ask(req, w.Gateway, task); return sallyport.CodeOf(err) != sallyport.InFlight })
		for range 2 {
			if res, err := ask(req, w.Gateway, task); err != nil || !strings.Contains(string(res.Content), `"said":"none"`) || res.CallID == "" {
				t.Errorf("%s, %v", res.Content, err)
			}
		}
		if r := w.last(t); !r.Replay || !r.Continues || r.Target != "echo" || r.Principal != "ann" || len(w.ran) != 1 {
			t.Errorf("%+v, ran %d", r, len(w.ran))
		}
		_, unknown := ask(req, w.Gateway, "nonsense")
		for what, change := range map[string]func(*sallyport.Request, *string){
			"another agent":    func(r *sallyport.Request, _ *string) { r.Credential = "token-of-bob" },
			"another tenant":   func(r *sallyport.Request, _ *string) { r.Credential = "token-of-ann@t2" },
			"for another user": func(r *sallyport.Request, _ *string) { r.Credential = "token-of-ann+cy" },
			"another profile":  func(r *sallyport.Request, _ *string) { r.Profile = "p" },
			"a changed name":   func(_ *sallyport.Request, name *string) { *name = task[:30] + "A" + task[31:] },
			"a cut name":       func(_ *sallyport.Request, name *string) { *name = task[:len(task)-2] },
			"no name":          func(_ *sallyport.Request, name *string) { *name = "" },
		} {
			other, name := req, task
			change(&other, &name)
			if _, err := ask(other, w.Gateway, name); name != task[:30]+"A"+task[31:] || task[30] != 'A' {
				if sallyport.CodeOf(err) != sallyport.NotFound || err.Error() != unknown.Error() {
					t.Errorf("%s: %v, not %v", what, err, unknown)
				}
			}
		}
		if _, err := ask(sallyport.Request{Credential: "x"}, w.Gateway, task); sallyport.CodeOf(err) != sallyport.Unauthenticated {
			t.Errorf("a stranger: %v", err)
		}
		tool := w.tools["echo"]
		tool.Status = sallyport.ToolQuarantined
		w.tools["echo"] = tool
		if _, err := ask(req, w.Gateway, task); sallyport.CodeOf(err) != sallyport.Quarantined {
			t.Errorf("of a quarantined tool: %v", err)
		}
		tool.Status = sallyport.ToolActive
		w.tools["echo"], w.blind = tool, true
		if _, err := ask(req, w.Gateway, task); sallyport.CodeOf(err) != sallyport.NotFound {
			t.Errorf("of a tool that it may not know any more: %v", err)
		}
	}
}

// What becomes no task is waited for: calls that end soon, of clients that take none, and
// where too many run already.
func TestCallsThatAreWaitedFor(t *testing.T) {
	w, calls, release := lasting(t)
	release <- nil
	if res, err := calls.Begin(t.Context(), able(call(`{}`)), func(ctx context.Context, r sallyport.Request) (sallyport.Result, error) {
		r.Ask = nil
		return w.Call(ctx, r)
	}); err != nil || res.Task != "" || res.Content == nil {
		t.Errorf("a client without tasks: %+v, %v", res, err)
	}
	w.Limits.Task = time.Hour
	release <- nil
	if res, err := calls.Begin(t.Context(), takes(call(`{}`)), w.Call); err != nil || res.Task != "" || res.Content == nil || len(w.ledger.res) != 0 {
		t.Errorf("soon over: %+v, %v; %d reservations", res, err, len(w.ledger.res))
	}
	w.Limits.Task = time.Millisecond
	few, err := held.New(held.Options{Key: heldKey, Replica: "r", PerOwner: 1, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	w.Held = few
	t.Cleanup(func() { _ = few.Close() })
	become(t, w, few, call(`{"n":1}`))
	ended := make(chan sallyport.Result, 1)
	go func() {
		res, _ := few.Begin(context.Background(), takes(call(`{"n":2}`)), w.Call)
		ended <- res
	}()
	await.That(t, "both run", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return len(w.ran) == 4 })
	release <- nil // one of them
	release <- nil
	if res := <-ended; res.Task != "" || res.Content == nil {
		t.Errorf("one too many: %+v", res)
	}
}

// What a call came to that failed is told, by whichever gateway is asked; and that it
// was cancelled.
func TestTasksThatFail(t *testing.T) {
	w, calls, release := lasting(t)
	req := call(`{}`)
	task := become(t, w, calls, req)
	release <- &sallyport.Error{Code: sallyport.Upstream, Message: "it broke: CANARY"}
	await.That(t, "it ends", func() bool { _, err := ask(req, w.Gateway, task); return sallyport.CodeOf(err) == sallyport.Upstream })
	if _, err := ask(req, w.Gateway, task); !strings.Contains(err.Error(), "it broke: CANARY") {
		t.Errorf("%v", err)
	}
	other := another(t, w, "elsewhere", nil)
	if _, err := ask(req, other, task); sallyport.CodeOf(err) != sallyport.Upstream || !strings.Contains(err.Error(), "it broke: CANARY") {
		t.Errorf("where it did not run: %v", err)
	}
	w.ledger.mu.Lock()
	for _, r := range w.ledger.res { // of before reasons were kept
		r.Reason = nil
	}
	w.ledger.mu.Unlock()
	if _, err := ask(req, other, task); sallyport.CodeOf(err) != sallyport.Upstream || !strings.Contains(err.Error(), "changed nothing; why is not kept") {
		t.Errorf("where nobody knows why: %v", err)
	}
	task = become(t, w, calls, req)
	if _, err := w.Later(t.Context(), req, sallyport.Visit{Task: task, Cancel: true}); sallyport.CodeOf(err) != sallyport.InFlight && sallyport.CodeOf(err) != sallyport.Canceled {
		t.Errorf("%v", err)
	}
	await.That(t, "it is cancelled", func() bool { _, err := ask(req, w.Gateway, task); return sallyport.CodeOf(err) == sallyport.Canceled })
	task = become(t, w, calls, req)
	tool := w.tools["echo"]
	for _, status := range []sallyport.ToolStatus{sallyport.ToolQuarantined, sallyport.ToolActive} { // it can be stopped all the same
		tool.Status = status
		w.tools["echo"] = tool
		_, _ = w.Later(t.Context(), req, sallyport.Visit{Task: task, Cancel: status == sallyport.ToolQuarantined})
	}
	await.That(t, "it is cancelled", func() bool { _, err := ask(req, w.Gateway, task); return sallyport.CodeOf(err) == sallyport.Canceled })
	w.risk.Level = sallyport.High
	task = become(t, w, calls, req)
	_, _ = w.Later(t.Context(), req, sallyport.Visit{Task: task, Cancel: true})
	await.That(t, "nobody knows", func() bool {
		_, err := ask(req, w.Gateway, task)
		return sallyport.CodeOf(err) == sallyport.OutcomeUnknown
	})
}

// another is another gateway with the same engines.
func another(t *testing.T, w *world, replica string, peers *held.Peers) *Gateway {
	t.Helper()
	calls, err := held.New(held.Options{Key: heldKey, Replica: replica, Peers: peers, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = calls.Close() })
	g := w.Gateway
	return &Gateway{
		Authenticator: g.Authenticator, Limiter: g.Limiter, Catalog: g.Catalog, Assessor: g.Assessor, Authorizer: g.Authorizer, Ledger: g.Ledger,
		Tickets: g.Tickets, Sanitiser: g.Sanitiser, Journal: g.Journal, Backends: g.Backends, Now: g.Now, Log: g.Log, Held: calls,
	}
}

// two are w, which holds its calls in first, and another gateway of its database, which
// finds it where it is reachable; at first it is not.
func two(t *testing.T, w *world) (first *held.Calls, second *Gateway, reachable func(bool)) {
	t.Helper()
	address := ""
	peers := held.NewPeers(heldKey, func(context.Context, string) (string, error) { return address, nil })
	first, err := held.New(held.Options{Key: heldKey, Replica: "first", Peers: peers, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = first.Close() })
	srv := httptest.NewServer(first)
	t.Cleanup(srv.Close)
	w.Held = first
	return first, another(t, w, "second", peers), func(is bool) {
		if address = ""; is {
			address = srv.Listener.Addr().String()
		}
	}
}

// A pair is two gateways of one database, and a call that became a task of the first and
// whose server is about to ask.
type pair struct {
	*world
	first     *held.Calls
	second    *Gateway
	reachable func(bool) // the first, for the second; at first it is
	release   chan<- error
	req       sallyport.Request
	task      string
}

func taskThatAsks(t *testing.T) pair {
	t.Helper()
	w, _, release := lasting(t)
	p := pair{world: w, release: release, req: able(call(`{"n":1}`))}
	p.first, p.second, p.reachable = two(t, w)
	p.reachable(true)
	begin, run := make(chan struct{}), w.run
	w.run = func(ctx context.Context, j sallyport.Job) (sallyport.Output, error) {
		<-begin
		return run(ctx, j)
	}
	p.task = become(t, w, p.first, p.req)
	close(begin)
	return p
}

// An answer is only taken where the call would still be let go on: by today's policies,
// for its caller as known today, at whichever gateway the client comes to.
func TestAnswersAreJudgedByWhatHoldsNow(t *testing.T) {
	p := taskThatAsks(t)
	w, second, req, name := p.world, p.second, p.req, p.task
	answers := map[string]json.RawMessage{}
	await.That(t, "it asks", func() bool {
		got, err := ask(req, w.Gateway, name)
		for _, q := range got.Questions {
			answers[q.Key] = json.RawMessage(`{"roots":[{"uri":"file:///x"}]}`)
		}
		return err == nil && len(answers) > 0
	})
	set := func(v Verdict) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.verdict = v
	}
	allowed := w.verdict
	for what, v := range map[string]Verdict{
		"denied":                {},
		"a human must be asked": {Allow: true, Demands: []sallyport.Demand{{}}},
	} {
		set(v)
		for _, g := range []*Gateway{w.Gateway, second} {
			if _, err := g.Later(t.Context(), req, sallyport.Visit{Task: name, Answers: answers}); sallyport.CodeOf(err) != sallyport.Denied {
				t.Errorf("%s: %v", what, err)
			}
			if got, err := ask(req, g, name); err != nil || len(got.Questions) != 1 {
				t.Errorf("%s: it asks no more: %+v, %v", what, got, err)
			}
		}
	}
	set(allowed)
	if got, err := second.Later(t.Context(), req, sallyport.Visit{Task: name, Answers: answers}); err != nil && sallyport.CodeOf(err) != sallyport.InFlight {
		t.Errorf("control: %+v, %v", got, err)
	}
	await.That(t, "it asks something else", func() bool {
		got, err := ask(req, w.Gateway, name)
		return err == nil && len(got.Questions) == 1 && answers[got.Questions[0].Key] == nil
	})
	p.release <- nil
}

// What a task asks is answered by whichever gateway its client comes to, each question
// under a key of its own. When the gateway that runs it has ended, nobody knows.
func TestTasksThatAsk(t *testing.T) {
	p := taskThatAsks(t)
	w, second, req, name := p.world, p.second, p.req, p.task
	answers := map[string]json.RawMessage{}
	keys := map[string]bool{}
	await.That(t, "it has asked everything", func() bool {
		got, err := second.Later(t.Context(), req, sallyport.Visit{Task: name, Answers: answers})
		if err != nil && sallyport.CodeOf(err) != sallyport.InFlight {
			t.Fatal(err)
		}
		for _, q := range got.Questions {
			if answers[q.Key] == nil && keys[q.Key] {
				t.Errorf("the key %q was used twice", q.Key)
			}
			keys[q.Key] = true
			answers[q.Key] = json.RawMessage(`{"roots":[{"uri":"file:///x"}]}`)
		}
		return len(keys) == 2 && len(got.Questions) == 0
	})
	p.release <- nil
	await.That(t, "it ends", func() bool { got, err := ask(req, second, name); return err == nil && got.Content != nil })
	if got, err := ask(req, second, name); err != nil || !strings.Contains(string(got.Content), "file:///x") || len(w.ran) != 1 {
		t.Errorf("%s, %v, ran %d", got.Content, err, len(w.ran))
	}
	task := become(t, w, p.first, call(`{"n":2}`))
	p.reachable(false)
	if _, err := ask(req, second, task); sallyport.CodeOf(err) != sallyport.InFlight {
		t.Errorf("while its lease goes on: %v", err)
	}
	w.mu.Lock()
	w.now = w.now.Add(time.Hour)
	w.mu.Unlock()
	if _, err := ask(req, second, task); sallyport.CodeOf(err) != sallyport.OutcomeUnknown {
		t.Errorf("after its lease: %v", err)
	}
	_ = p.first.Close()
	if _, err := p.first.Begin(t.Context(), takes(req), w.Call); !errors.Is(err, sallyport.ErrNotExecuted) {
		t.Errorf("after the end: %v", err)
	}
}
