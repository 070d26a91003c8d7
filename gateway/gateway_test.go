package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
)

func call(args string) sallyport.Request {
	return sallyport.Request{
		Credential: "token-of-ann", Door: "test",
		Operation: sallyport.Operation{Kind: sallyport.CallTool, Target: "echo", Args: json.RawMessage(args)},
	}
}

// The happy path visits every step, once, in the order that Steps declares.
func TestPathIsSteps(t *testing.T) {
	for _, level := range []sallyport.Level{sallyport.Low, sallyport.High} {
		w := newWorld(t)
		w.risk.Level = level
		if _, err := w.Call(t.Context(), call(`{"a":1}`)); err != nil {
			t.Fatal(err)
		}
		if got := w.last(t).Path; !slices.Equal(got, sallyport.Steps) {
			t.Errorf("risk %v: path = %v\nwant %v", level, got, sallyport.Steps)
		}
		if w.slots != 0 {
			t.Errorf("%d slots are still held", w.slots)
		}
	}
}

func TestStopsAt(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*world)
		req  func(*sallyport.Request)
		last sallyport.Step
		code sallyport.Code
		ran  bool
	}{
		{name: "bad credential", req: func(r *sallyport.Request) { r.Credential = "x" }, last: sallyport.Authenticate, code: sallyport.Unauthenticated},
		{name: "too large", req: func(r *sallyport.Request) { r.Size = 5000 }, last: sallyport.Admit, code: sallyport.TooLarge},
		{name: "unknown tool", req: func(r *sallyport.Request) { r.Operation.Target = "nope" }, last: sallyport.Resolve, code: sallyport.NotFound},
		{name: "not yours", req: func(r *sallyport.Request) { r.Operation.Target = "hidden" },
			edit: func(w *world) { w.tools["hidden"] = sallyport.Tool{Name: "hidden", Status: sallyport.ToolActive} },
			last: sallyport.Resolve, code: sallyport.NotFound},
		{name: "quarantined", edit: func(w *world) {
			tool := w.tools["echo"]
			tool.Status = sallyport.ToolQuarantined
			w.tools["echo"] = tool
		},
			last: sallyport.Resolve, code: sallyport.Quarantined},
		{name: "unknown kind", req: func(r *sallyport.Request) { r.Operation.Kind = "fly" }, last: sallyport.Resolve, code: sallyport.Invalid},
		{name: "bad JSON", req: func(r *sallyport.Request) { r.Operation.Args = json.RawMessage(`{`) }, last: sallyport.Validate, code: sallyport.Invalid},
		{name: "bad by schema", req: func(r *sallyport.Request) { r.Operation.Args = json.RawMessage(`{"bad":1}`) }, last: sallyport.Validate, code: sallyport.Invalid},
		{name: "denied", edit: func(w *world) { w.verdict = Verdict{} }, last: sallyport.Authorize, code: sallyport.Denied},
		{name: "unknown ticket", req: func(r *sallyport.Request) { r.Ticket = "tkt_x" }, last: sallyport.Reserve, code: sallyport.NotFound},
		{name: "critical", edit: func(w *world) { w.risk.Level = sallyport.Critical }, last: sallyport.Approve, code: sallyport.Pending},
		{name: "irreversible", edit: func(w *world) { w.risk.Irreversible = true }, last: sallyport.Approve, code: sallyport.Pending},
		{name: "policy wants a human", edit: func(w *world) { w.verdict.Demands = []sallyport.Demand{{Policy: "p2"}} }, last: sallyport.Approve, code: sallyport.Pending},
		{name: "no backend", edit: func(w *world) { w.Backends = nil }, last: sallyport.Execute, code: sallyport.Unavailable},
		{name: "backend fails, read-only", last: sallyport.Execute, code: sallyport.Upstream, ran: true,
			edit: func(w *world) { w.run = fails(errors.New("boom")) }},
		{name: "backend fails, mutating", last: sallyport.Execute, code: sallyport.OutcomeUnknown, ran: true,
			edit: func(w *world) { w.risk.Level = sallyport.High; w.run = fails(errors.New("boom")) }},
		{name: "backend panics", last: sallyport.Execute, code: sallyport.Internal, ran: true,
			edit: func(w *world) {
				w.run = func(context.Context, sallyport.Job) (sallyport.Output, error) { panic("nil map") }
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			if tt.edit != nil {
				tt.edit(w)
			}
			req := call(`{"a":1}`)
			if tt.req != nil {
				tt.req(&req)
			}
			res, err := w.Call(t.Context(), req)
			if got := sallyport.CodeOf(err); err == nil || got != tt.code {
				t.Fatalf("code = %v (%v), want %v", got, err, tt.code)
			}
			path := w.last(t).Path
			if got := path[len(path)-2]; got != tt.last {
				t.Errorf("stopped at %v, want %v", got, tt.last)
			}
			if ran := len(w.ran) > 0; ran != tt.ran {
				t.Errorf("backend ran: %v, want %v", ran, tt.ran)
			}
			if res.Content != nil {
				t.Errorf("a refused call has content %s", res.Content)
			}
			if e, ok := errors.AsType[*sallyport.Error](err); !ok || e.CallID == "" {
				t.Errorf("the error carries no call id: %v", err)
			}
			if w.slots != 0 {
				t.Errorf("%d slots are still held", w.slots)
			}
		})
	}
}

func fails(err error) func(context.Context, sallyport.Job) (sallyport.Output, error) {
	return func(context.Context, sallyport.Job) (sallyport.Output, error) { return sallyport.Output{}, err }
}

// No record, no call; an outcome that cannot be stored is not shown.
func TestRecordsDecide(t *testing.T) {
	w := newWorld(t)
	w.sick = errors.New("disk full")
	if _, err := w.Call(t.Context(), call(`{}`)); sallyport.CodeOf(err) != sallyport.Unavailable || len(w.ran) != 0 {
		t.Errorf("with a sick journal: %v, ran %d", err, len(w.ran))
	}
	w = newWorld(t)
	w.risk.Level, w.ledger.refuse = sallyport.High, errors.New("disk full")
	res, err := w.Call(t.Context(), call(`{}`))
	if sallyport.CodeOf(err) != sallyport.OutcomeUnknown || res.Content != nil {
		t.Errorf("with a ledger that cannot finish: %s, %v", res.Content, err)
	}
}

// Intent is on record before the backend runs, for calls that may change something.
func TestIntentBeforeExecute(t *testing.T) {
	w := newWorld(t)
	w.risk.Level = sallyport.High
	w.run = func(context.Context, sallyport.Job) (sallyport.Output, error) {
		if n := len(w.entries); n != 1 || w.entries[0].Kind != sallyport.EntryIntent {
			t.Errorf("the backend runs with %d entries on record, want the intent", n)
		}
		return sallyport.Output{Content: json.RawMessage(`{}`)}, nil
	}
	if _, err := w.Call(t.Context(), call(`{}`)); err != nil {
		t.Fatal(err)
	}
}

// Who has no good token cannot fill the record, and is not forgotten either.
func TestStrangersDoNotFloodTheRecord(t *testing.T) {
	w := newWorld(t)
	bad := call(`{}`)
	bad.Credential = "x"
	for range 1000 {
		if _, err := w.Call(t.Context(), bad); sallyport.CodeOf(err) != sallyport.Unauthenticated {
			t.Fatal(err)
		}
	}
	if len(w.entries) != 1 {
		t.Fatalf("1,000 refusals in one second made %d entries", len(w.entries))
	}
	if _, err := w.Call(t.Context(), call(`{}`)); err != nil || len(w.entries) != 2 {
		t.Fatalf("a good call: %v, %d entries", err, len(w.entries))
	}
	w.now = w.now.Add(time.Second)
	if _, err := w.Call(t.Context(), bad); err == nil || w.last(t).Unrecorded != 999 {
		t.Errorf("%v; the next entry stands for %d, want 999", err, w.last(t).Unrecorded)
	}
	w.now = w.now.Add(-time.Hour)
	before := len(w.entries)
	if _, err := w.Call(t.Context(), bad); err == nil || len(w.entries) != before+1 {
		t.Errorf("%v; a clock that was set back silences the record", err)
	}
}

func TestKeys(t *testing.T) {
	w := newWorld(t)
	w.risk.Level = sallyport.High
	req := call(`{"n":1}`)
	req.Key = "k1"
	first, err := w.Call(t.Context(), req)
	if err != nil || first.Replay {
		t.Fatalf("first: %+v, %v", first, err)
	}
	again, err := w.Call(t.Context(), req)
	if err != nil || !again.Replay || string(again.Content) != string(first.Content) {
		t.Errorf("again: %+v, %v", again, err)
	}
	req.Operation.Args = json.RawMessage(`{"n":1.0}`)
	if _, err := w.Call(t.Context(), req); sallyport.CodeOf(err) != sallyport.Conflict {
		t.Errorf("other bytes under the same key: %v, want a conflict", err)
	}
	other := call(`{"n":1}`)
	other.Key, other.Credential = "k1", "token-of-bob"
	if res, err := w.Call(t.Context(), other); err != nil || res.Replay {
		t.Errorf("another principal's same key: %+v, %v", res, err)
	}
	if len(w.ran) != 2 {
		t.Errorf("ran %d times, want 2", len(w.ran))
	}
}

func TestUnknownIsNeverRetried(t *testing.T) {
	w := newWorld(t)
	w.risk.Level = sallyport.High
	ok := w.run
	w.run = fails(errors.New("connection reset"))
	req := call(`{}`)
	req.Key = "k"
	for range 3 {
		if _, err := w.Call(t.Context(), req); sallyport.CodeOf(err) != sallyport.OutcomeUnknown {
			t.Fatalf("%v, want outcome_unknown", err)
		}
	}
	if len(w.ran) != 1 {
		t.Errorf("ran %d times, want 1", len(w.ran))
	}
	w.run = fails(sallyport.ErrNotExecuted)
	req.Key = "k2"
	if _, err := w.Call(t.Context(), req); sallyport.CodeOf(err) == sallyport.OutcomeUnknown {
		t.Errorf("certainly not executed, but %v", err)
	}
	w.run = ok
	if _, err := w.Call(t.Context(), req); err != nil {
		t.Errorf("a key whose call had no effect can be used again: %v", err)
	}
}

// pend makes a critical call and returns the ticket that it waits for.
func pend(t *testing.T, w *world, req sallyport.Request) string {
	t.Helper()
	_, err := w.Call(t.Context(), req)
	e, ok := errors.AsType[*sallyport.Error](err)
	if !ok || e.Code != sallyport.Pending || e.Ticket == "" {
		t.Fatalf("%v, want approval_pending with a ticket", err)
	}
	return e.Ticket
}

func TestApproval(t *testing.T) {
	w := newWorld(t)
	w.risk.Irreversible = true
	req := call(`{"to":"A","amount":82000}`)
	ticket := pend(t, w, req)
	resume := req
	resume.Ticket = ticket
	if got := pend(t, w, resume); got != ticket {
		t.Fatalf("asking again opened %s beside %s", got, ticket)
	}
	w.ledger.decide(ticket, sallyport.TicketApproved)
	for _, other := range []string{`{"to":"A","amount":820000}`, `{"to":"A","amount":82000.0}`, `{"to":"A","amount":8.2e4}`, `{"to":"A ","amount":82000}`, `{"to":"A","amount":82000,"x":1}`, `{"to":"A"}`} {
		altered := resume
		altered.Operation.Args = json.RawMessage(other)
		if _, err := w.Call(t.Context(), altered); sallyport.CodeOf(err) != sallyport.Conflict {
			t.Errorf("altered to %s: %v, want a conflict", other, err)
		}
	}
	thief := resume
	thief.Credential = "token-of-eve"
	if _, err := w.Call(t.Context(), thief); sallyport.CodeOf(err) != sallyport.NotFound {
		t.Errorf("somebody else's ticket: %v, want not_found", err)
	}
	if len(w.ran) != 0 {
		t.Fatalf("ran before it was resumed")
	}
	resume.Operation.Args = json.RawMessage(` {"amount":82000, "to":"\u0041"}`) // the same canonical bytes
	first, err := w.Call(t.Context(), resume)
	if err != nil {
		t.Fatal(err)
	}
	again, err := w.Call(t.Context(), resume)
	if err != nil || !again.Replay || string(again.Content) != string(first.Content) {
		t.Errorf("again: %+v, %v", again, err)
	}
	if len(w.ran) != 1 {
		t.Errorf("ran %d times, want 1", len(w.ran))
	}
}

func TestApprovalResult(t *testing.T) {
	w := newWorld(t)
	w.tools[ApprovalResult] = sallyport.Tool{Name: ApprovalResult, Status: sallyport.ToolActive}
	w.risk.Irreversible = true
	ticket := pend(t, w, call(`{"n":9007199254740993}`))
	ask := call(`{"ticket":"` + ticket + `"}`)
	ask.Operation.Target = ApprovalResult
	if got := pend(t, w, ask); got != ticket {
		t.Fatalf("ticket %s, want %s", got, ticket)
	}
	w.ledger.decide(ticket, sallyport.TicketApproved)
	for range 2 {
		res, err := w.Call(t.Context(), ask)
		if err != nil || !strings.Contains(string(res.Content), "9007199254740993") {
			t.Fatalf("%s, %v", res.Content, err)
		}
	}
	if len(w.ran) != 1 || string(w.ran[0].Args) != `{"n":9007199254740993}` {
		t.Errorf("ran %d times with %s", len(w.ran), w.ran[0].Args)
	}
	ask.Credential = "token-of-eve"
	if _, err := w.Call(t.Context(), ask); sallyport.CodeOf(err) != sallyport.NotFound {
		t.Errorf("somebody else's ticket: %v", err)
	}
}

func TestTicketStates(t *testing.T) {
	for state, want := range map[sallyport.TicketState]sallyport.Code{
		sallyport.TicketRejected: sallyport.Rejected, sallyport.TicketExpired: sallyport.Rejected,
		sallyport.TicketVoid: sallyport.Rejected, sallyport.TicketWithdrawn: sallyport.Canceled,
	} {
		w := newWorld(t)
		w.risk.Irreversible = true
		req := call(`{}`)
		req.Key = "k"
		w.ledger.decide(pend(t, w, req), state)
		if _, err := w.Call(t.Context(), req); sallyport.CodeOf(err) != want || len(w.ran) != 0 {
			t.Errorf("%s: %v, ran %d; want %s", state, err, len(w.ran), want)
		}
	}
}

// What was approved is one concrete thing: a tool that changed since, or a
// policy that no longer allows it, is not it.
func TestApprovedButChanged(t *testing.T) {
	for name, change := range map[string]func(*world){
		"tool":     func(w *world) { tool := w.tools["echo"]; tool.Digest = "d2"; w.tools["echo"] = tool },
		"endpoint": func(w *world) { tool := w.tools["echo"]; tool.Origin.Endpoint = "elsewhere"; w.tools["echo"] = tool },
		"policy":   func(w *world) { w.verdict = Verdict{} },
	} {
		w := newWorld(t)
		w.risk.Irreversible = true
		req := call(`{}`)
		req.Ticket = pend(t, w, req)
		w.ledger.decide(req.Ticket, sallyport.TicketApproved)
		change(w)
		if _, err := w.Call(t.Context(), req); err == nil || len(w.ran) != 0 {
			t.Errorf("%s changed after approval: %v, ran %d", name, err, len(w.ran))
		}
	}
}

// A policy that changes between authorize and execute stops the call.
func TestPolicyChangesOnTheWay(t *testing.T) {
	w := newWorld(t)
	w.risk.Level = sallyport.High
	w.Ledger = changing{w.ledger, func() { w.gen++; w.verdict = Verdict{} }}
	if _, err := w.Call(t.Context(), call(`{}`)); sallyport.CodeOf(err) != sallyport.Denied || len(w.ran) != 0 {
		t.Errorf("%v, ran %d; want denied", err, len(w.ran))
	}
	w = newWorld(t)
	w.risk.Level = sallyport.High
	w.Ledger = changing{w.ledger, func() { w.gen++ }}
	if _, err := w.Call(t.Context(), call(`{}`)); err != nil {
		t.Errorf("a change that does not concern the call stops it: %v", err)
	}
}

type changing struct {
	*memory
	change func()
}

func (c changing) Begin(ctx context.Context, b Begin) (int64, error) {
	c.change()
	return c.memory.Begin(ctx, b)
}

func TestAwait(t *testing.T) {
	w := newWorld(t)
	w.risk.Irreversible = true
	var told sync.Once
	ids := map[string]bool{}
	res, err := w.Await(t.Context(), call(`{}`), 5*time.Second, func(e *sallyport.Error) {
		told.Do(func() { go w.ledger.decide(e.Ticket, sallyport.TicketApproved) })
		ids[e.CallID] = true
		if w.slots != 0 {
			t.Error("a call that waits for a human holds a slot")
		}
	})
	if err != nil || len(w.ran) != 1 || len(ids) != 1 || !ids[res.CallID] {
		t.Errorf("%+v, %v; ran %d; ids %v", res, err, len(w.ran), ids)
	}
	if _, err := w.Await(t.Context(), call(`{"x":1}`), 0, nil); sallyport.CodeOf(err) != sallyport.Pending {
		t.Errorf("who cannot wait gets %v, want approval_pending", err)
	}
}

func TestListShowsOnlyYours(t *testing.T) {
	w := newWorld(t)
	w.tools["hidden_x"] = sallyport.Tool{Name: "hidden_x", Status: sallyport.ToolActive}
	w.tools["q"] = sallyport.Tool{Name: "q", Status: sallyport.ToolQuarantined}
	sight, err := w.List(t.Context(), "token-of-ann", "", "", 0)
	if err != nil || len(sight.List) != 1 || sight.List[0].Name != "echo" || sight.Incomplete {
		t.Errorf("%v, %v", sight, err)
	}
}
