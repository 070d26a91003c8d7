package saga_test

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
	"sallyport.dev/sallyport/backend/fake"
	"sallyport.dev/sallyport/saga"
	"sallyport.dev/sallyport/saga/plan"
	"sallyport.dev/sallyport/store"
	"sallyport.dev/sallyport/test/await"
)

var ownedByAnn = store.SagaFilter{Tenant: "t", Principal: "ann"}

func ok() (sallyport.Output, error) { return fake.Text("ok"), nil }

func (h *house) tryResolve(id, step string, done bool) error {
	_, err := h.engine.Change(h.t.Context(), "t", id, saga.Change{Verb: "resolve", Step: step, Done: done, By: "ada", Reason: "looked", Human: true})
	return err
}

// ticket is the one that an error or a saga waits for; the test decides it.
func (h *house) decide(id string, approve bool) {
	h.t.Helper()
	_, err := h.db.Decide(context.Background(), "t", sallyport.Decision{Ticket: id, Approve: approve, By: "ada", At: time.Now()}, time.Hour)
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) waitsFor(s sallyport.Saga) string {
	h.t.Helper()
	for _, st := range s.Steps {
		for _, a := range st.Attempts {
			if a.Outcome == "" && a.Ticket != "" {
				return a.Ticket
			}
		}
	}
	h.t.Fatalf("it waits for no ticket: %+v", s)
	return ""
}

// blocks is a step that tells when it is reached and goes on when it may.
type blocks struct {
	reached, goOn chan struct{}
}

func (w *world) block(name string) blocks {
	b := blocks{make(chan struct{}, 10), make(chan struct{})}
	w.plan[name] = func(int, sallyport.Job) (sallyport.Output, error) {
		b.reached <- struct{}{}
		<-b.goOn
		w.effect(name)
		return ok()
	}
	return b
}

func TestSucceeds(t *testing.T) {
	w := newWorld(t)
	h := w.live(0, false)
	defer h.end()
	req := h.request(planOf("a", "b"))
	req.Key = "once"
	res, err := h.front.Call(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	s := h.until(idIn(t, res), sallyport.SagaSucceeded)
	w.want("do a", "do b")
	if s.Undoing || s.Failure != "" || s.Digest == "" {
		t.Errorf("%+v", s)
	}
	again, err := h.front.Call(t.Context(), req)
	if err != nil || !again.Replay || idIn(t, again) != s.ID {
		t.Errorf("the same key: %v %+v", err, again)
	}
	w.want("do a", "do b")
	for _, verb := range []string{"pause", "resume", "cancel", "retry"} {
		if err := h.try(s.ID, verb, ""); sallyport.CodeOf(err) != sallyport.Conflict {
			t.Errorf("%s of a saga that is over: %v", verb, err)
		}
	}
}

func TestRetriesForward(t *testing.T) {
	w := newWorld(t)
	w.plan["do b"] = func(n int, job sallyport.Job) (sallyport.Output, error) {
		if n < 3 {
			return fails(n, job)
		}
		w.effect("do b")
		return ok()
	}
	h := w.live(0, false)
	defer h.end()
	s := h.until(h.start(planOf("a", "b|retry: {attempts: 3, backoff: 1ms}")), sallyport.SagaSucceeded)
	w.want("do a", "do b")
	keys := map[string]bool{}
	for _, a := range s.Steps[1].Attempts {
		keys[a.Key] = true
	}
	if len(keys) != 3 {
		t.Errorf("each try has a key of its own: %+v", s.Steps[1].Attempts)
	}
}

func TestPointOfNoReturn(t *testing.T) {
	w := newWorld(t)
	w.plan["do c"] = fails
	h := w.live(0, false)
	defer h.end()
	id := h.start(planOf("a", "b|point_of_no_return: true", "c"))
	s := h.until(id, sallyport.SagaParked)
	w.want("do a", "do b")
	if !strings.Contains(s.Reason, "point of no return") || s.Undoing {
		t.Errorf("%+v", s)
	}
	if err := h.try(id, "cancel", ""); sallyport.CodeOf(err) != sallyport.Conflict {
		t.Errorf("cancelled after the point of no return: %v", err)
	}
	w.mu.Lock()
	delete(w.plan, "do c")
	w.mu.Unlock()
	h.change(id, "retry", "")
	h.until(id, sallyport.SagaSucceeded)
	w.want("do a", "do b", "do c")
}

func TestPauseResumeCancel(t *testing.T) {
	w := newWorld(t)
	b := w.block("do b")
	h := w.live(0, false)
	defer h.end()
	id := h.start(planOf("a", "b", "c"))
	<-b.reached
	h.change(id, "pause", "")
	close(b.goOn)
	await.That(t, "the step ends", func() bool { return len(w.done()) == 2 })
	time.Sleep(50 * time.Millisecond) // the next would begin
	if s := h.get(id); s.State != sallyport.SagaPaused {
		t.Fatalf("%+v", s)
	}
	w.want("do a", "do b")
	h.change(id, "resume", "")
	h.until(id, sallyport.SagaSucceeded)
	w.want("do a", "do b", "do c")
	if w.tries["do b"] != 1 {
		t.Errorf("b was called %d times", w.tries["do b"])
	}
}

// Cancelled while a step is on its way: it is waited for, and then undone too.
func TestCancelInMidStep(t *testing.T) {
	w := newWorld(t)
	b := w.block("do b")
	h := w.live(0, false)
	defer h.end()
	id := h.start(planOf("a", "b", "c"))
	<-b.reached
	h.change(id, "cancel", "")
	time.Sleep(50 * time.Millisecond)
	w.want("do a")
	close(b.goOn)
	h.until(id, sallyport.SagaCompensated)
	w.want("do a", "do b", "undo b", "undo a")
}

func TestCancelBeforeAnything(t *testing.T) {
	w := newWorld(t)
	w.perm.Demands = []sallyport.Demand{{Policy: "ask"}}
	h := w.live(0, false)
	defer h.end()
	res, err := h.front.Call(t.Context(), request(plan.ToolBegin, map[string]any{"name": "nothing"}))
	if err != nil {
		t.Fatal(err)
	}
	id := idIn(t, res)
	if _, err := h.front.Call(t.Context(), request(plan.ToolRollback, map[string]any{"id": id})); err != nil {
		t.Fatal(err)
	}
	h.until(id, sallyport.SagaCancelled)
}

// A gateway that stops in mid-saga undoes nothing; the next one goes on.
func TestGracefulStopNeverUndoes(t *testing.T) {
	w := newWorld(t)
	b := w.block("do b")
	h := w.live(0, false)
	id := h.start(planOf("a", "b", "c"))
	<-b.reached
	h.stop()
	time.Sleep(20 * time.Millisecond)
	close(b.goOn)
	h.end()
	w.want("do a", "do b")
	h = w.live(0, false)
	defer h.end()
	h.until(id, sallyport.SagaSucceeded)
	w.want("do a", "do b", "do c")
}

// Two gateways over one database: exactly one drives a saga, and when it falls
// silent the other takes it over.
func TestTwoGateways(t *testing.T) {
	w := newWorld(t)
	one, two := w.live(0, false), w.live(0, false)
	defer two.end()
	var ids []string
	for range 8 {
		ids = append(ids, one.start(planOf("a", "b", "c")))
	}
	for _, id := range ids {
		two.until(id, sallyport.SagaSucceeded)
	}
	one.end()
	if n := len(w.done()); n != 8*3 {
		t.Errorf("%d effects, want 24: %q", n, w.done())
	}
}

// A driver that lost its saga is late with a forward call: the step was undone
// meanwhile, and the call does not act any more.
func TestLateForwardCall(t *testing.T) {
	w := newWorld(t)
	h := w.live(0, false)
	defer h.end()
	key := func(id string) sallyport.Request {
		r := request("do", map[string]any{"what": "a"})
		r.Key, r.Door = sallyport.SagaKey(id, "a", false, 1), "saga"
		return r
	}
	// Its attempt is on record, and the driver falls silent before the call.
	w.plan["do b"] = fails
	id := h.start(planOf("a", "b"))
	h.until(id, sallyport.SagaCompensated)
	w.want("do a", "undo a")
	late, err := h.front.Call(t.Context(), key(id))
	if err != nil || !late.Replay {
		t.Errorf("the same key once more: %+v, %v", late, err)
	}
	w.want("do a", "undo a")

	// And where it never began, the key is used up all the same.
	w.plan["do a"] = func(int, sallyport.Job) (sallyport.Output, error) {
		return sallyport.Output{}, &sallyport.Error{Code: sallyport.Upstream, Message: "not reached", Err: sallyport.ErrNotExecuted}
	}
	id = h.start(planOf("a", "b"))
	h.until(id, sallyport.SagaCompensated)
	delete(w.plan, "do a")
	if late, err = h.front.Call(t.Context(), key(id)); err == nil && !late.IsError {
		t.Errorf("a late call acted: %+v", late)
	}
	w.want("do a", "undo a")
}

// An agent's own calls under a saga: committed they stay, rolled back they are
// undone by what their tools' manifests say.
func TestAdHoc(t *testing.T) {
	w := newWorld(t)
	w.manif["do"] = sallyport.Manifest{Compensate: &sallyport.Compensation{Tool: "undo", Args: json.RawMessage(`{"what":{"$ref":"arguments.what"}}`)}}
	h := w.live(0, false)
	defer h.end()
	begin := func() string {
		res, err := h.front.Call(t.Context(), request(plan.ToolBegin, map[string]any{}))
		if err != nil {
			t.Fatal(err)
		}
		return idIn(t, res)
	}
	call := func(id, what, who string) error {
		r := request("do", map[string]any{"what": what})
		r.Saga, r.Credential = id, "token-of-"+who
		_, err := h.front.Call(t.Context(), r)
		return err
	}
	end := func(tool, id string) error {
		_, err := h.front.Call(t.Context(), request(tool, map[string]any{"id": id}))
		return err
	}
	id := begin()
	for _, what := range []string{"x", "y"} {
		if err := call(id, what, "ann"); err != nil {
			t.Fatal(err)
		}
	}
	if err := call(id, "z", "bob"); sallyport.CodeOf(err) != sallyport.NotFound {
		t.Errorf("another principal's saga: %v", err)
	}
	if err := call("saga_none", "z", "ann"); sallyport.CodeOf(err) != sallyport.NotFound {
		t.Errorf("no such saga: %v", err)
	}
	if err := end(plan.ToolRollback, id); err != nil {
		t.Fatal(err)
	}
	h.until(id, sallyport.SagaCompensated)
	w.want("do x", "do y", "undo y", "undo x")
	if err := call(id, "late", "ann"); sallyport.CodeOf(err) != sallyport.NotFound {
		t.Errorf("after the rollback: %v", err)
	}

	id = begin()
	if err := errors.Join(call(id, "k", "ann"), end(plan.ToolCommit, id)); err != nil {
		t.Fatal(err)
	}
	h.until(id, sallyport.SagaSucceeded)
	w.want("do x", "do y", "undo y", "undo x", "do k")
	if err := end(plan.ToolRollback, id); sallyport.CodeOf(err) != sallyport.Conflict {
		t.Errorf("rolled back after the commit: %v", err)
	}
}

func TestAdHocTimesOut(t *testing.T) {
	for _, park := range []bool{false, true} {
		w := newWorld(t)
		w.manif["do"] = sallyport.Manifest{Compensate: &sallyport.Compensation{Tool: "undo", Args: json.RawMessage(`{"what":{"$ref":"arguments.what"}}`)}}
		h := w.live(0, false)
		h.engine.Park = park
		res, err := h.front.Call(t.Context(), request(plan.ToolBegin, map[string]any{"timeout_seconds": 0.3}))
		if err != nil {
			t.Fatal(err)
		}
		id := idIn(t, res)
		r := request("do", map[string]any{"what": "x"})
		r.Saga = id
		if _, err := h.front.Call(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if park {
			h.until(id, sallyport.SagaParked)
			w.want("do x")
			h.change(id, "cancel", "")
		}
		h.until(id, sallyport.SagaCompensated)
		w.want("do x", "undo x")
		h.end()
	}
}

// Many at once, from many goroutines: each saga's effects are its own.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t)
	w.plan["do c"] = fails
	h := w.live(0, false)
	defer h.end()
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() { h.until(h.start(planOf("a", "b", "c")), sallyport.SagaCompensated) })
	}
	wg.Wait()
	count := map[string]int{}
	for _, e := range w.done() {
		count[e]++
	}
	if !slices.Equal([]int{count["do a"], count["do b"], count["undo b"], count["undo a"]}, []int{10, 10, 10, 10}) {
		t.Errorf("%v", count)
	}
}
