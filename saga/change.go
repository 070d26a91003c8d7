package saga

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/store"
)

// A Change is somebody's word on a saga.
type Change struct {
	Verb string // pause, resume, cancel, retry, skip, resolve, commit
	Step string // of skip and resolve
	Done bool   // of resolve: it acted

	// Attempt is the one that resolve speaks of, 1, 2, … in its direction. 0 will do
	// where there was one only.
	Attempt int

	By     string // admin, or the agent
	Reason string
	Human  bool // an operator, not the agent itself
}

func refuse(s sallyport.Saga, why, hint string) error {
	return &sallyport.Error{Code: sallyport.Conflict, Step: sallyport.Execute,
		Message: fmt.Sprintf("saga %s is %s: %s", s.ID, s.State, why), Hint: hint}
}

// Change carries out a change, whoever drives the saga. The driver notices at
// its next write, which is then refused.
func (e *Engine) Change(ctx context.Context, tenant, id string, c Change) (sallyport.Saga, error) {
	for range 20 {
		s, err := e.Store.Saga(ctx, tenant, id)
		if err != nil {
			return s, err
		}
		if c.Verb == "resolve" {
			if err = e.resolve(ctx, s, c); err == nil {
				e.kick()
			}
			return s, err
		}
		steps, n, err := e.changed(&s, c)
		if err != nil || s.ID == "" {
			return s, err
		}
		n.by, n.anybody, n.reason = c.By, true, strings.TrimSuffix(c.Verb+": "+c.Reason, ": ")
		s, err = e.move(ctx, s, steps, n)
		if err == nil {
			e.kick()
		}
		if err == nil || sallyport.CodeOf(err) != sallyport.Conflict {
			return s, err
		}
	}
	return sallyport.Saga{}, &sallyport.Error{Code: sallyport.Unavailable, Message: "the saga moves too fast to change it now", Hint: "try again", RetryAfter: time.Second}
}

// changed makes the change in s and names the steps that it touched.
func (e *Engine) changed(s *sallyport.Saga, c Change) ([]int, note, error) {
	n := note{from: s.State}
	if s.State.Final() {
		return nil, n, refuse(*s, "it is over", "nothing changes it any more; start another")
	}
	s.Steps = slices.Clone(s.Steps)
	switch c.Verb {
	case "pause":
		return nil, n, e.pause(s, c)
	case "resume":
		if s.State != sallyport.SagaPaused {
			return nil, n, refuse(*s, "only a paused one can be resumed", "")
		}
		s.State, s.Reason, s.WakeAt = direction(*s), "", e.Now()
		return nil, n, nil
	case "cancel":
		return nil, n, e.cancel(s, c)
	case "commit":
		if s.State != sallyport.SagaOpen {
			return nil, n, refuse(*s, "only an open one can be committed", "")
		}
		s.State, s.Reason, s.WakeAt = sallyport.SagaRunning, "", e.Now()
		return nil, n, nil
	case "retry":
		return e.retry(s, n)
	case "skip":
		return e.skip(s, c, n)
	}
	return nil, n, &sallyport.Error{Code: sallyport.NotFound, Message: fmt.Sprintf("no such change: %.40q", c.Verb),
		Hint: "pause, resume, cancel, retry, skip or resolve"}
}

func (e *Engine) pause(s *sallyport.Saga, c Change) error {
	switch s.State {
	case sallyport.SagaRunning, sallyport.SagaCompensating, sallyport.SagaAwaiting:
		s.State, s.WakeAt = sallyport.SagaPaused, time.Time{}
		s.Reason = "paused by " + c.By
		return nil
	default:
		return refuse(*s, "only one that goes on can be paused", "")
	}
}

func (e *Engine) cancel(s *sallyport.Saga, c Change) error {
	past := noReturn(*s)
	switch {
	case s.Undoing && s.State != sallyport.SagaParked:
		return refuse(*s, "it is being undone already", "see `sallyport saga status`")
	case past != "":
		return refuse(*s, "step "+past+" was the point of no return", "there is only forward: retry or skip")
	}
	s.Undoing, s.State, s.WakeAt = true, sallyport.SagaCompensating, e.Now()
	s.Reason = "cancelled by " + c.By
	if slices.ContainsFunc(s.Steps, func(st sallyport.SagaStep) bool { return st.State == sallyport.StepFailed }) {
		s.Failure = cmp.Or(s.Failure, s.Reason)
	}
	return nil
}

// retry sends on what waits for a human. It is the operator's word that the
// saga may act in the agent's name as that is now.
func (e *Engine) retry(s *sallyport.Saga, n note) ([]int, note, error) {
	if s.State != sallyport.SagaParked && s.State != sallyport.SagaUndoFailed {
		return nil, n, refuse(*s, "only what is parked or compensation_failed can be retried", "resume goes on with a paused one")
	}
	if i, _ := unknown(*s); i >= 0 {
		return nil, n, refuse(*s, "the outcome of step "+s.Steps[i].ID+" is unknown", "look at the target, then `sallyport saga resolve`: a retry on a guess may act twice")
	}
	if s.AdHoc && !s.Undoing {
		return nil, n, refuse(*s, "an ad-hoc saga is not retried", "its agent makes its calls itself; cancel undoes them")
	}
	var changed []int
	for i := range s.Steps {
		switch st := &s.Steps[i]; {
		case st.State == sallyport.StepUndoFailed:
			st.State, st.Budget = sallyport.StepUndoing, st.Tries(true)
		case st.State == sallyport.StepFailed && !s.Undoing:
			st.State, st.Budget = sallyport.StepRunning, st.Tries(false)
		case st.State == sallyport.StepUndoing, st.State == sallyport.StepRunning:
			e.reopen(st, s.Undoing)
		default:
			continue
		}
		n.step, n.undo = i+1, s.Undoing
		changed = append(changed, i)
	}
	s.State, s.Reason, s.WakeAt, s.Authorized = direction(*s), "", e.Now(), e.Now()
	return changed, n, nil
}

// reopen keeps the attempt of a step whose agent was not let in: its call never
// began.
func (e *Engine) reopen(st *sallyport.SagaStep, undo bool) {
	st.Attempts = slices.Clone(st.Attempts)
	if a := st.Last(undo); a != nil && a.Outcome == "" {
		a.Code, a.Message = "", ""
	}
}

// skip leaves a step out that stands in the way, forward or back.
func (e *Engine) skip(s *sallyport.Saga, c Change, n note) ([]int, note, error) {
	i := slices.IndexFunc(s.Steps, func(st sallyport.SagaStep) bool { return st.ID == c.Step })
	if i < 0 {
		return nil, n, &sallyport.Error{Code: sallyport.NotFound, Message: fmt.Sprintf("saga %s has no step %.64q", s.ID, c.Step), Hint: "see `sallyport saga status`"}
	}
	if s.State != sallyport.SagaParked && s.State != sallyport.SagaUndoFailed && s.State != sallyport.SagaPaused {
		return nil, n, refuse(*s, "a step is skipped only while the saga is parked, paused or compensation_failed", "pause it first")
	}
	st := &s.Steps[i]
	n.step, n.undo, n.close = i+1, s.Undoing, keysOf(*s, i, s.Undoing)
	switch {
	case !s.Undoing && (st.State == sallyport.StepPending || st.State == sallyport.StepRunning || st.State == sallyport.StepFailed || st.State == sallyport.StepUnknown):
		st.State = sallyport.StepSkipped
	case s.Undoing && st.State.Done():
		st.State = sallyport.StepUndoSkipped
	default:
		return nil, n, refuse(*s, fmt.Sprintf("step %s is %s, there is nothing to skip", st.ID, st.State), "")
	}
	if s.State != sallyport.SagaPaused {
		s.State, s.WakeAt, s.Reason = direction(*s), e.Now(), ""
	}
	return []int{i}, n, nil
}

// resolve settles the reservation of the call whose outcome is unknown; the
// saga goes on by that, as it does after `reservations resolve`. A word on an
// earlier attempt is refused: it may be a repetition of one that was heard, and
// nobody has looked at what the later attempt did.
func (e *Engine) resolve(ctx context.Context, s sallyport.Saga, c Change) error {
	if c.Reason == "" {
		return &sallyport.Error{Code: sallyport.Invalid, Message: "a reason is needed: how do you know?", Hint: "give --reason"}
	}
	i, undo := unknown(s)
	if i < 0 || c.Step != s.Steps[i].ID {
		return refuse(s, fmt.Sprintf("the outcome of step %.64q is not unknown", c.Step), "see `sallyport saga status`")
	}
	if n := s.Steps[i].Tries(undo); c.Attempt != n && (c.Attempt != 0 || n > 1) {
		return refuse(s, fmt.Sprintf("the outcome of step %s that nobody knows is that of %s %d", c.Step, way(undo), n),
			fmt.Sprintf("look at the target again, for that attempt, and give --attempt %d", n))
	}
	key := keyOf(s, i, undo)
	r, err := e.Ledger.Find(ctx, key)
	if err != nil {
		return err
	}
	res := store.Resolution{Key: key, State: sallyport.Failed, By: c.By, Reason: c.Reason}
	if c.Done {
		res.State = sallyport.Done
	}
	if r != nil {
		res.Call = r.CallID
	}
	return e.Ledger.Resolve(ctx, res)
}

// way names a direction as `saga status` does.
func way(undo bool) string {
	if undo {
		return "undo"
	}
	return "do"
}
