package saga_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
)

// Five steps, of which the fourth fails: the first three are undone, the last
// first, and the fifth never runs.
func TestFO60_ReverseOrder(t *testing.T) {
	w := newWorld(t)
	w.plan["do d"] = fails
	h := w.live(0, false)
	defer h.end()
	s := h.until(h.start(planOf("a", "b", "c", "d", "e")), sallyport.SagaCompensated)
	w.want("do a", "do b", "do c", "undo c", "undo b", "undo a")
	if !strings.Contains(s.Failure, "step d failed: out of stock") || stateOf(s, "d") != sallyport.StepFailed || stateOf(s, "e") != sallyport.StepSkipped {
		t.Errorf("%+v", s)
	}
	for _, st := range s.Steps[:3] {
		if len(st.Attempts) != 2 || st.Attempts[0].CallID == "" || st.Attempts[0].ResultHash == "" || st.Attempts[1].Outcome != sallyport.StepDone {
			t.Errorf("the ledger of step %s: %+v", st.ID, st.Attempts)
		}
	}
}

// The undo of b fails: always, twice, or it hangs.
func TestFO60_UndoFails(t *testing.T) {
	five := planOf("a", "b", "c", "d", "e")
	t.Run("always", func(t *testing.T) {
		w := newWorld(t)
		w.plan["do d"], w.plan["undo b"] = fails, fails
		h := w.live(0, false)
		defer h.end()
		id := h.start(five)
		s := h.until(id, sallyport.SagaUndoFailed)
		w.want("do a", "do b", "do c", "undo c")
		if w.tries["undo b"] != 3 || stateOf(s, "b") != sallyport.StepUndoFailed || stateOf(s, "a") != sallyport.StepDone {
			t.Errorf("%d tries; %+v", w.tries["undo b"], s.Steps)
		}
		if !strings.Contains(s.Reason, "step b could not be undone (3 tries): out of stock") || !strings.Contains(s.Reason, "saga retry") {
			t.Errorf("nobody is told what to do: %s", s.Reason)
		}
		h.change(id, "retry", "") // once more, bounded as before
		h.until(id, sallyport.SagaCompensating, sallyport.SagaUndoFailed)
		h.until(id, sallyport.SagaUndoFailed)
		if w.tries["undo b"] != 6 {
			t.Errorf("%d tries after a retry, want 6", w.tries["undo b"])
		}
		h.change(id, "skip", "b")
		s = h.until(id, sallyport.SagaCompensated)
		w.want("do a", "do b", "do c", "undo c", "undo a")
		if stateOf(s, "b") != sallyport.StepUndoSkipped || !strings.Contains(s.Reason, "the effects of 1 steps stay") {
			t.Errorf("%s %+v", s.Reason, s.Steps)
		}
	})
	t.Run("twice", func(t *testing.T) {
		w := newWorld(t)
		w.plan["do d"] = fails
		w.plan["undo b"] = func(n int, job sallyport.Job) (sallyport.Output, error) {
			if n < 3 {
				return fails(n, job)
			}
			w.effect("undo b")
			return ok()
		}
		h := w.live(0, false)
		defer h.end()
		s := h.until(h.start(five), sallyport.SagaCompensated)
		w.want("do a", "do b", "do c", "undo c", "undo b", "undo a")
		if n := s.Steps[1].Tries(true); n != 3 {
			t.Errorf("the ledger has %d tries: %+v", n, s.Steps[1].Attempts)
		}
	})
	for _, idempotent := range []bool{false, true} {
		t.Run(fmt.Sprintf("hangs, idempotent %t", idempotent), func(t *testing.T) {
			w := newWorld(t)
			w.plan["do d"] = fails
			w.plan["undo b"] = func(n int, _ sallyport.Job) (sallyport.Output, error) {
				w.effect("undo b") // it acts, and the answer never comes
				if n == 1 {
					return sallyport.Output{}, errors.New("no answer")
				}
				return ok()
			}
			h := w.live(0, false)
			defer h.end()
			if idempotent {
				id := h.start(planOf("a", "b idem", "c", "d", "e"))
				h.until(id, sallyport.SagaCompensated)
				w.want("do a", "do b", "do c", "undo c", "undo b", "undo b", "undo a")
				return
			}
			id := h.start(five)
			s := h.until(id, sallyport.SagaUndoFailed)
			w.want("do a", "do b", "do c", "undo c", "undo b")
			if stateOf(s, "b") != sallyport.StepUndoUnknown {
				t.Errorf("%+v", s.Steps[1])
			}
			if err := h.try(id, "retry", ""); sallyport.CodeOf(err) != sallyport.Conflict {
				t.Errorf("a retry on a guess: %v", err)
			}
			h.resolve(id, "b", true)
			h.until(id, sallyport.SagaCompensated)
			w.want("do a", "do b", "do c", "undo c", "undo b", "undo a")
		})
	}
}

// The outcome of c is unknown: the saga is parked. Its undo runs on a cancel if
// it is declared idempotent, and else only when a human has said how c ended.
func TestFO60_UnknownStep(t *testing.T) {
	lost := func(w *world) func(int, sallyport.Job) (sallyport.Output, error) {
		return func(int, sallyport.Job) (sallyport.Output, error) {
			w.effect("do c")
			return sallyport.Output{}, errors.New("no answer")
		}
	}
	for _, tt := range []struct {
		name, c string
		do      func(h *house, id string)
		want    sallyport.SagaState
		effects []string
	}{
		{"resolved as done", "c", func(h *house, id string) { h.resolve(id, "c", true) }, sallyport.SagaSucceeded,
			[]string{"do a", "do b", "do c", "do d", "do e"}},
		{"resolved as failed", "c", func(h *house, id string) { h.resolve(id, "c", false) }, sallyport.SagaCompensated,
			[]string{"do a", "do b", "do c", "undo b", "undo a"}},
		{"cancelled, idempotent", "c idem", func(h *house, id string) { h.change(id, "cancel", "") }, sallyport.SagaCompensated,
			[]string{"do a", "do b", "do c", "undo c", "undo b", "undo a"}},
		{"cancelled, not idempotent", "c", func(h *house, id string) { h.change(id, "cancel", "") }, sallyport.SagaParked,
			[]string{"do a", "do b", "do c"}},
		{"cancelled, then resolved", "c", func(h *house, id string) {
			h.change(id, "cancel", "")
			h.until(id, sallyport.SagaParked)
			h.resolve(id, "c", true)
		}, sallyport.SagaCompensated, []string{"do a", "do b", "do c", "undo c", "undo b", "undo a"}},
		{"skipped", "c", func(h *house, id string) { h.change(id, "skip", "c") }, sallyport.SagaSucceeded,
			[]string{"do a", "do b", "do c", "do d", "do e"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.plan["do c"] = lost(w)
			h := w.live(0, false)
			defer h.end()
			id := h.start(planOf("a", "b", tt.c, "d", "e"))
			s := h.until(id, sallyport.SagaParked)
			if stateOf(s, "c") != sallyport.StepUnknown || !strings.Contains(s.Reason, "saga resolve") {
				t.Fatalf("%s %+v", s.Reason, s.Steps)
			}
			w.want("do a", "do b", "do c")
			tt.do(h, id)
			h.until(id, tt.want)
			w.want(tt.effects...)
		})
	}
}

// A step that nothing undoes stays, and is shown.
func TestFO60_WithoutCompensation(t *testing.T) {
	w := newWorld(t)
	w.plan["do d"] = fails
	h := w.live(0, false)
	defer h.end()
	plan := strings.Replace(planOf("a", "b -", "c", "d"), "  compensate: none\n", "", 1) // forgotten
	s := h.until(h.start(plan), sallyport.SagaCompensated)
	w.want("do a", "do b", "do c", "undo c", "undo a")
	if stateOf(s, "b") != sallyport.StepKept || !strings.Contains(s.Reason, "the effects of 1 steps stay") ||
		!slices.ContainsFunc(s.Warnings, func(s string) bool { return strings.Contains(s, "step b has no compensation") }) {
		t.Errorf("%s %q %+v", s.Reason, s.Warnings, s.Steps)
	}
}

// Killed before and after each write of every life, with d failing: whatever was
// done is undone once, in reverse, and the saga never succeeds; also where the
// agent works on behalf of a user, for whom its keys are.
func TestFO60_KilledAtEveryWrite(t *testing.T) {
	for _, behalf := range []string{"", "+carol"} {
		for _, after := range []bool{false, true} {
			for n := 1; ; n++ {
				if n > 200 {
					t.Fatal("it never lives long enough")
				}
				if killedAt(t, n, after, behalf) {
					t.Logf("after=%t %s: %d points", after, behalf, n-1)
					break
				}
			}
		}
	}
}

// killedAt plays one saga that is killed at the nth write of its first life, and
// reports whether it survived.
func killedAt(t *testing.T, n int, after bool, behalf string) (survived bool) {
	t.Helper()
	w := newWorld(t)
	w.plan["do d"], w.behalf = fails, behalf
	h := w.live(n, after)
	plan := planOf("a", "b", "c", "d", "e")
	req := h.request(plan)
	res, err := h.front.Call(t.Context(), req)
	id := ""
	if err == nil {
		id = idIn(t, res)
	} else if all, _ := h.db.Store.Sagas(t.Context(), ownedByAnn); len(all) == 1 {
		id = all[0].ID
	}
	survived = id != "" && lasts(h, id)
	h.end()
	if id == "" { // it died before there was a saga
		w.want()
		return false
	}
	h = w.live(0, false)
	defer h.end()
	for { // the operator looks at the target where nobody knows
		s := h.until(id, sallyport.SagaCompensated, sallyport.SagaParked, sallyport.SagaUndoFailed, sallyport.SagaSucceeded)
		i := slices.IndexFunc(s.Steps, func(st sallyport.SagaStep) bool {
			return st.State == sallyport.StepUnknown || st.State == sallyport.StepUndoUnknown
		})
		switch {
		case s.State == sallyport.SagaCompensated && i < 0:
			checkUndone(t, w, fmt.Sprintf("killed at %d, after=%t", n, after))
			return survived
		case i < 0:
			t.Fatalf("killed at %d: %s: %s", n, s.State, s.Reason)
		}
		verb := "do "
		if s.Steps[i].State == sallyport.StepUndoUnknown {
			verb = "undo "
		}
		err := h.tryResolve(id, s.Steps[i].ID, slices.Contains(w.done(), verb+s.Steps[i].ID))
		if err != nil && sallyport.CodeOf(err) != sallyport.Conflict {
			t.Fatal(err)
		}
	}
}

// lasts waits until the life is over or the saga is.
func lasts(h *house, id string) bool {
	for {
		select {
		case <-h.db.Died:
			return false
		default:
		}
		if s, err := h.db.Saga(h.t.Context(), "t", id); err == nil && s.State.Final() {
			return true
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// checkUndone: each effect once, each undone once, the undos in reverse order.
func checkUndone(t *testing.T, w *world, what string) {
	t.Helper()
	var did, undid []string
	for _, e := range w.done() {
		if name, ok := strings.CutPrefix(e, "undo "); ok {
			undid = append(undid, name)
		} else {
			did = append(did, strings.TrimPrefix(e, "do "))
		}
	}
	slices.Reverse(undid)
	if !slices.Equal(did, undid) || !slices.IsSorted(did) || len(slices.Compact(slices.Clone(did))) != len(did) {
		t.Errorf("%s: %q", what, w.done())
	}
}
