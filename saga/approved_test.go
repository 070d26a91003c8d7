package saga_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/saga"
)

// An agent that is suspended, revoked or rotated: its sagas are parked, and
// nothing is undone in its name. An operator sends them on.
func TestRevokedAgentParks(t *testing.T) {
	for name, change := range map[string]func(*sallyport.Agent){
		"suspended": func(a *sallyport.Agent) { a.State = "suspended" },
		"revoked":   func(a *sallyport.Agent) { a.State = "revoked" },
		"rotated":   func(a *sallyport.Agent) { a.NotBefore = time.Now() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			b := w.block("do b")
			h := w.live(0, false)
			defer h.end()
			id := h.start(planOf("a", "b", "c"))
			<-b.reached
			w.mu.Lock()
			change(&w.agent)
			w.mu.Unlock()
			close(b.goOn)
			s := h.until(id, sallyport.SagaParked)
			w.want("do a", "do b")
			if s.Undoing {
				t.Errorf("%+v", s)
			}
			w.mu.Lock()
			w.agent.State, w.agent.NotBefore = "active", time.Now().Add(-time.Millisecond)
			w.mu.Unlock()
			h.change(id, "retry", "")
			h.until(id, sallyport.SagaSucceeded)
			w.want("do a", "do b", "do c")
		})
	}
}

// A ticket of its own for a step that needs a human where no plan was approved:
// nothing is in memory meanwhile, and the decision is acted upon.
func TestAwaitsApproval(t *testing.T) {
	for _, approve := range []bool{true, false} {
		w := newWorld(t)
		h := w.live(0, false)
		id := h.start(planOf("a", "b"))
		h.until(id, sallyport.SagaSucceeded)
		w.mu.Lock()
		w.effects, w.risk["do"] = nil, sallyport.Risk{Level: sallyport.High}
		w.mu.Unlock()
		b := w.block("do a")
		id = h.start(planOf("a", "b"))
		<-b.reached
		w.mu.Lock()
		w.risk["do"] = sallyport.Risk{Level: sallyport.Critical, Irreversible: true}
		w.mu.Unlock()
		close(b.goOn)
		s := h.until(id, sallyport.SagaAwaiting)
		w.want("do a")
		h.end() // nothing of it is in memory
		h = w.live(0, false)
		tk, err := h.db.Ticket(t.Context(), "t", h.waitsFor(s))
		if err != nil || tk.Binding.Plan != s.Digest || tk.Binding.Tool != "do" || string(tk.Binding.Args) != `{"what":"b"}` {
			t.Errorf("%+v, %v", tk, err)
		}
		h.decide(tk.ID, approve)
		if approve {
			h.until(id, sallyport.SagaSucceeded)
			w.want("do a", "do b")
		} else {
			h.until(id, sallyport.SagaCompensated)
			w.want("do a", "undo a")
		}
		h.end()
	}
}

// A plan that needs a human is approved as a whole: its steps then ask no more,
// as long as they are what was approved.
func TestApprovedAsAWhole(t *testing.T) {
	run := func(t *testing.T, change func(*world), plan string, want ...sallyport.SagaState) (*house, sallyport.Saga) {
		w := newWorld(t)
		w.risk["do"] = sallyport.Risk{Level: sallyport.Critical, Reasons: []string{"cannot be told"}}
		h := w.live(0, false)
		t.Cleanup(h.end)
		req := h.request(plan)
		_, err := h.front.Call(t.Context(), req)
		e, ours := errors.AsType[*sallyport.Error](err)
		if !ours || e.Code != sallyport.Pending {
			t.Fatalf("not asked: %v", err)
		}
		tk, err := h.db.Ticket(t.Context(), "t", e.Ticket)
		if err != nil {
			t.Fatal(err)
		}
		shown := fmt.Sprint(tk.Risk.Parts, tk.Risk.Reasons)
		for _, part := range []string{"step a", "undo of a", "step b", `do {"what":"a"}`, `undo {"what":"a"}`} {
			if !strings.Contains(shown, part) {
				t.Errorf("the ticket does not show %q: %s", part, shown)
			}
		}
		if tk.Binding.Plan == "" {
			t.Error("the ticket binds no plan")
		}
		h.decide(e.Ticket, true)
		if change != nil {
			w.mu.Lock()
			change(w)
			w.mu.Unlock()
		}
		req.Ticket = e.Ticket
		res, err := h.front.Call(t.Context(), req)
		if len(want) == 0 {
			if sallyport.CodeOf(err) != sallyport.Conflict && sallyport.CodeOf(err) != sallyport.Pending {
				t.Errorf("it was started, though it is not what was approved: %v", err)
			}
			w.want()
			return h, sallyport.Saga{}
		}
		if err != nil {
			t.Fatal(err)
		}
		return h, h.until(idIn(t, res), want...)
	}
	t.Run("covered", func(t *testing.T) {
		h, s := run(t, nil, planOf("a", "b"), sallyport.SagaSucceeded)
		h.want("do a", "do b")
		if s.Ticket == "" || s.Steps[0].Attempts[0].Ticket != "" {
			t.Errorf("%+v", s)
		}
	})
	t.Run("a tool changed before it began", func(t *testing.T) { run(t, func(w *world) { w.digest = "other" }, planOf("a", "b")) })
	t.Run("a tool changed on the way", func(t *testing.T) {
		h, _ := run(t, func(w *world) {
			w.plan["do a"] = func(int, sallyport.Job) (sallyport.Output, error) {
				w.effect("do a")
				w.mu.Lock()
				w.digest = "other"
				w.mu.Unlock()
				return ok()
			}
		}, planOf("a", "b"), sallyport.SagaAwaiting)
		h.want("do a")
	})
	t.Run("worse than judged", func(t *testing.T) {
		h, _ := run(t, func(w *world) {
			w.plan["do a"] = func(int, sallyport.Job) (sallyport.Output, error) {
				w.effect("do a")
				w.mu.Lock()
				w.risk["do"] = sallyport.Risk{Level: sallyport.Critical, Irreversible: true}
				w.mu.Unlock()
				return ok()
			}
		}, planOf("a", "b"), sallyport.SagaAwaiting)
		h.want("do a")
	})
}

// A saga's credential is good for its one call, at its own door, and nowhere else.
func TestSealedCredential(t *testing.T) {
	w := newWorld(t)
	got, goOn := make(chan sallyport.Request), make(chan struct{})
	h := w.live(0, false)
	defer h.end()
	h.engine.Gateway = stealing{h.steps, got, goOn}
	id := h.start(planOf("a"))
	req := <-got // a copy of the credential, while it is still good
	for what, tt := range map[string]struct {
		door interface {
			Call(context.Context, sallyport.Request) (sallyport.Result, error)
		}
		edit func(*sallyport.Request)
		code sallyport.Code
	}{
		"at the agents' door": {h.front, func(*sallyport.Request) {}, sallyport.Unauthenticated},
		"other arguments":     {h.steps, func(r *sallyport.Request) { r.Operation.Args = json.RawMessage(`{"what":"x"}`) }, sallyport.Denied},
		"another tool":        {h.steps, func(r *sallyport.Request) { r.Operation.Target = "undo" }, sallyport.NotFound},
		"another saga":        {h.steps, func(r *sallyport.Request) { r.Saga = "saga_x" }, sallyport.NotFound},
		"another profile":     {h.steps, func(r *sallyport.Request) { r.Profile = "p" }, sallyport.Unauthenticated},
		"altered":             {h.steps, func(r *sallyport.Request) { r.Credential = r.Credential[:len(r.Credential)-2] + "AA" }, sallyport.Unauthenticated},
		"an agent's token":    {h.steps, func(r *sallyport.Request) { r.Credential = "token-of-ann" }, sallyport.Unauthenticated},
	} {
		r := req
		r.Key = ""
		tt.edit(&r)
		if _, err := tt.door.Call(t.Context(), r); err == nil || sallyport.CodeOf(err) != tt.code {
			t.Errorf("%s: %v, want %s", what, err, tt.code)
		}
	}
	close(goOn) // positive control: the call itself is made now
	h.until(id, sallyport.SagaSucceeded)
	w.want("do a")
	if _, err := h.steps.Call(t.Context(), req); sallyport.CodeOf(err) != sallyport.Unauthenticated {
		t.Errorf("after its call: %v", err)
	}
}

// stealing hands out the request of the first step, and makes the call when it
// may.
type stealing struct {
	saga.Caller
	got  chan<- sallyport.Request
	goOn <-chan struct{}
}

func (s stealing) Call(ctx context.Context, req sallyport.Request) (sallyport.Result, error) {
	select {
	case s.got <- req:
		<-s.goOn
	case <-s.goOn:
	}
	return s.Caller.Call(ctx, req)
}
