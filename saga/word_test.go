package saga_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/fake"
	"sallyport.dev/sallyport/saga"
	"sallyport.dev/sallyport/saga/plan"
)

// An operator says that an undo did not act, and hears no answer. It is tried
// again, acts, and is unknown once more. The word, said again, is about the first
// attempt: it must not have the second repeated.
func TestFO60_WordSaidTwice(t *testing.T) {
	w := newWorld(t)
	w.plan["do d"] = fails
	w.plan["undo b"] = func(n int, _ sallyport.Job) (sallyport.Output, error) {
		if n > 1 {
			w.effect("undo b")
		}
		return sallyport.Output{}, errors.New("no answer")
	}
	h := w.live(0, false)
	defer h.end()
	id := h.start(planOf("a", "b", "c", "d"))
	say := func(attempt int, done bool) error {
		h.until(id, sallyport.SagaUndoFailed)
		_, err := h.engine.Change(t.Context(), "t", id, saga.Change{Verb: "resolve", Step: "b", Attempt: attempt, Done: done, By: "ada", Reason: "looked", Human: true})
		return err
	}
	if err := say(2, false); sallyport.CodeOf(err) != sallyport.Conflict {
		t.Errorf("a word on an attempt that was never made: %v", err)
	}
	if err := say(0, false); err != nil { // there was only one
		t.Fatal(err)
	}
	for h.get(id).Steps[1].Tries(true) < 2 {
		h.until(id, sallyport.SagaCompensating, sallyport.SagaUndoFailed)
	}
	for _, attempt := range []int{0, 1} {
		if err := say(attempt, false); sallyport.CodeOf(err) != sallyport.Conflict {
			t.Errorf("the word is taken for one on the second attempt: %v", err)
		}
	}
	w.want("do a", "do b", "do c", "undo c", "undo b")
	if err := say(2, true); err != nil {
		t.Fatal(err)
	}
	h.until(id, sallyport.SagaCompensated)
	w.want("do a", "do b", "do c", "undo c", "undo b", "undo a")
}

// A step, or an undo, that acted and whose answer cannot be used, is unknown: not
// repeated, and not taken for one that did nothing.
func TestFO60_AnswerThatCannotBeUsed(t *testing.T) {
	broken := func(w *world, name string) func(int, sallyport.Job) (sallyport.Output, error) {
		return func(int, sallyport.Job) (sallyport.Output, error) {
			w.effect(name)
			out := fake.Failure("gibberish")
			out.Unclear = true
			return out, nil
		}
	}
	t.Run("of an undo", func(t *testing.T) {
		w := newWorld(t)
		w.plan["do c"], w.plan["undo b"] = fails, broken(w, "undo b")
		h := w.live(0, false)
		defer h.end()
		id := h.start(planOf("a", "b", "c"))
		if s := h.until(id, sallyport.SagaUndoFailed); stateOf(s, "b") != sallyport.StepUndoUnknown {
			t.Errorf("%s: %+v", s.Reason, s.Steps)
		}
		w.want("do a", "do b", "undo b")
		h.resolve(id, "b", true)
		h.until(id, sallyport.SagaCompensated)
		w.want("do a", "do b", "undo b", "undo a")
	})
	t.Run("of a step", func(t *testing.T) {
		w := newWorld(t)
		w.plan["do b"] = broken(w, "do b")
		h := w.live(0, false)
		defer h.end()
		id := h.start(planOf("a", "b|retry: {attempts: 3, backoff: 1ms}"))
		if s := h.until(id, sallyport.SagaParked); stateOf(s, "b") != sallyport.StepUnknown {
			t.Errorf("%s: %+v", s.Reason, s.Steps)
		}
		w.want("do a", "do b")
		h.resolve(id, "b", true)
		h.until(id, sallyport.SagaSucceeded)
		w.want("do a", "do b")
	})
}

// On behalf of a user, too, a saga knows its calls: what is unknown parks, what
// is late is closed, what is over is not made again.
func TestFO60_OnBehalfOfAUser(t *testing.T) {
	t.Run("an undo of unknown outcome", func(t *testing.T) {
		w := newWorld(t)
		w.behalf, w.plan["do c"] = "+carol", fails
		w.plan["undo b"] = func(int, sallyport.Job) (sallyport.Output, error) {
			w.effect("undo b")
			return sallyport.Output{}, errors.New("no answer")
		}
		h := w.live(0, false)
		defer h.end()
		id := h.start(planOf("a", "b", "c"))
		if s := h.until(id, sallyport.SagaUndoFailed); stateOf(s, "b") != sallyport.StepUndoUnknown || s.OnBehalfOf != "carol" {
			t.Errorf("%+v", s)
		}
		w.want("do a", "do b", "undo b")
		h.resolve(id, "b", true)
		h.until(id, sallyport.SagaCompensated)
		w.want("do a", "do b", "undo b", "undo a")
	})
	t.Run("a step of unknown outcome", func(t *testing.T) {
		w := newWorld(t)
		w.behalf = "+carol"
		w.plan["do b"] = func(int, sallyport.Job) (sallyport.Output, error) {
			w.effect("do b")
			return sallyport.Output{}, errors.New("no answer")
		}
		h := w.live(0, false)
		defer h.end()
		id := h.start(planOf("a", "b"))
		h.until(id, sallyport.SagaParked)
		h.resolve(id, "b", true)
		h.until(id, sallyport.SagaSucceeded)
		w.want("do a", "do b")
	})
	for _, tool := range []string{plan.ToolCommit, plan.ToolRollback} {
		for _, key := range []string{"", "k"} {
			t.Run("ad hoc, "+tool+" "+key, func(t *testing.T) {
				w := newWorld(t)
				w.manif["do"] = sallyport.Manifest{Compensate: &sallyport.Compensation{Tool: "undo", Args: json.RawMessage(`{"what":{"$ref":"arguments.what"}}`)}}
				h := w.live(0, false)
				defer h.end()
				call := func(r sallyport.Request) sallyport.Result {
					r.Credential += "+carol"
					res, err := h.front.Call(t.Context(), r)
					if err != nil {
						t.Fatal(err)
					}
					return res
				}
				id := idIn(t, call(request(plan.ToolBegin, map[string]any{})))
				r := request("do", map[string]any{"what": "x"})
				r.Saga, r.Key = id, key
				call(r)
				call(request(tool, map[string]any{"id": id}))
				if h.until(id, sallyport.SagaSucceeded, sallyport.SagaCompensated); tool == plan.ToolCommit {
					w.want("do x")
				} else {
					w.want("do x", "undo x")
				}
			})
		}
	}
}

// A call through another profile does not join a saga: what undoes it may not be
// there in the saga's own.
func TestFO60_OtherProfile(t *testing.T) {
	w := newWorld(t)
	w.manif["do"] = sallyport.Manifest{Compensate: &sallyport.Compensation{Tool: "undo", Args: json.RawMessage(`{"what":{"$ref":"arguments.what"}}`)}}
	h := w.live(0, false)
	defer h.end()
	begin := request(plan.ToolBegin, map[string]any{})
	begin.Profile = "sales"
	res, err := h.front.Call(t.Context(), begin)
	if err != nil {
		t.Fatal(err)
	}
	id := idIn(t, res)
	for _, profile := range []string{"", "stock", "sales"} {
		r := request("do", map[string]any{"what": "x" + profile})
		r.Saga, r.Profile = id, profile
		if _, err := h.front.Call(t.Context(), r); (profile == "sales") != (err == nil) || err != nil && sallyport.CodeOf(err) != sallyport.Conflict {
			t.Errorf("through %q: %v", profile, err)
		}
	}
	h.change(id, "cancel", "")
	h.until(id, sallyport.SagaCompensated)
	w.want("do xsales", "undo xsales")
}

// FO-33: who cancels a saga whose step waits for a human takes that question back:
// a later approval does nothing.
func TestFO33_SagaCancelledWhileAStepWaits(t *testing.T) {
	for _, decided := range []bool{false, true} {
		w := newWorld(t)
		h := w.live(0, false)
		b := w.block("do a")
		id := h.start(planOf("a", "b"))
		<-b.reached
		w.mu.Lock()
		w.perm.Demands = []sallyport.Demand{{Policy: "ask"}} // of the second step
		w.mu.Unlock()
		close(b.goOn)
		ticket := h.waitsFor(h.until(id, sallyport.SagaAwaiting))
		if decided {
			h.change(id, "pause", "") // so that the approval is not used at once
			h.decide(ticket, true)
		}
		h.change(id, "cancel", "")
		h.until(id, sallyport.SagaCompensated)
		w.want("do a", "undo a")
		tk, err := h.db.Ticket(t.Context(), "t", ticket)
		if want := map[bool]sallyport.TicketState{false: sallyport.TicketWithdrawn, true: sallyport.TicketVoid}[decided]; err != nil || tk.State != want {
			t.Errorf("decided %t: the ticket is %s, %v", decided, tk.State, err)
		}
		if _, err := h.db.Decide(t.Context(), "t", sallyport.Decision{Ticket: ticket, Approve: true, By: "ada", At: time.Now()}, time.Hour); sallyport.CodeOf(err) != sallyport.Conflict {
			t.Errorf("approved afterwards: %v", err)
		}
		w.want("do a", "undo a")
		h.end()
	}
}

// Whose question was taken back is not asked again, however many attempts its step has.
func TestFO33_StepThatWasTakenBack(t *testing.T) {
	w := newWorld(t)
	h := w.live(0, false)
	defer h.end()
	b := w.block("do a")
	id := h.start(planOf("a", "b|retry: {attempts: 3, backoff: 1ms}"))
	<-b.reached
	w.mu.Lock()
	w.perm.Demands = []sallyport.Demand{{Policy: "ask"}} // of the second step
	w.mu.Unlock()
	close(b.goOn)
	ticket := h.waitsFor(h.until(id, sallyport.SagaAwaiting))
	if err := h.front.Withdraw(t.Context(), sallyport.Request{Credential: "token-of-ann", Ticket: ticket}); err != nil {
		t.Fatal(err)
	}
	s := h.until(id, sallyport.SagaCompensated)
	w.want("do a", "undo a")
	if n := len(s.Steps[1].Attempts); n != 1 || s.Steps[1].Attempts[0].Code != sallyport.Canceled {
		t.Errorf("%d attempts: %+v", n, s.Steps[1].Attempts)
	}
}
