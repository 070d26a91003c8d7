package saga

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sallyport.dev/sallyport"
)

// backward undoes the last step that acted. What is still on its way is settled
// first: nothing is undone before it is known that nothing more will be done.
func (e *Engine) backward(ctx context.Context, s sallyport.Saga) (sallyport.Saga, bool, error) {
	for i := range s.Steps {
		if s.Steps[i].State != sallyport.StepRunning {
			continue
		}
		if a := s.Steps[i].Last(false); a != nil && a.Outcome != "" { // between two tries
			s.Steps = slices.Clone(s.Steps)
			s.Steps[i].State = sallyport.StepFailed
			return e.moved(ctx, s, []int{i}, note{from: s.State, step: i + 1})
		}
		return e.settle(ctx, s, i)
	}
	i, _ := current(s)
	if i < 0 {
		return e.undone(ctx, s)
	}
	st := s.Steps[i]
	n := note{from: s.State, step: i + 1, undo: true}
	switch {
	case st.State == sallyport.StepUnknown && (st.Undo == nil || !st.Undo.Idempotent):
		return e.rest(ctx, s, sallyport.SagaParked, unknownReason(st, keyOf(s, i, false))+
			"; its compensation is not declared idempotent, so it does not run on a guess", e.Now(), nil, n)
	case st.Undo == nil:
		s.Steps = slices.Clone(s.Steps)
		s.Steps[i].State = sallyport.StepKept
		n.reason = "step " + st.ID + " has no compensation: its effect stays"
		return e.moved(ctx, s, []int{i}, n)
	case st.State == sallyport.StepUndoFailed, st.State == sallyport.StepUndoUnknown:
		return e.rest(ctx, s, sallyport.SagaUndoFailed, s.Reason, time.Time{}, nil, n)
	}
	s, o, done, more, err := e.tried(ctx, s, i, true)
	if !done || err != nil {
		return s, more, err
	}
	return e.back(ctx, s, i, o)
}

// back stores the end of an attempt to undo, and what follows.
func (e *Engine) back(ctx context.Context, s sallyport.Saga, i int, o outcome) (sallyport.Saga, bool, error) {
	st := &s.Steps[i]
	n := note{from: s.State, step: i + 1, undo: true}
	if o.state == sallyport.StepDone {
		st.State, s.WakeAt = sallyport.StepUndone, e.Now()
		return e.moved(ctx, s, []int{i}, n)
	}
	if o.state == sallyport.StepUnknown && !st.Undo.Idempotent {
		st.State = sallyport.StepUndoUnknown
		return e.rest(ctx, s, sallyport.SagaUndoFailed, fmt.Sprintf("whether step %s was undone is unknown: look at what %s did, then `sallyport saga resolve`", st.ID, st.Undo.Tool),
			e.Now(), []int{i}, n)
	}
	n.close = keysOf(s, i, true)
	if wait, ok := again(*st, true, o); ok {
		s.WakeAt = e.Now().Add(wait)
		s.Reason = fmt.Sprintf("step %s could not be undone, it is tried again: %s", st.ID, o.message)
		n.reason = s.Reason
		next, err := e.move(ctx, s, []int{i}, n)
		return next, false, err
	}
	st.State = sallyport.StepUndoFailed
	return e.rest(ctx, s, sallyport.SagaUndoFailed, fmt.Sprintf("step %s could not be undone (%d tries): %s; what came before it is not undone yet: "+
		"see to it, then `sallyport saga retry`, or `skip` if it is taken care of", st.ID, st.Tries(true), o.message), time.Time{}, []int{i}, n)
}

// undone ends a saga of which nothing is left to undo.
func (e *Engine) undone(ctx context.Context, s sallyport.Saga) (sallyport.Saga, bool, error) {
	to, why, left := sallyport.SagaCancelled, s.Failure, 0
	var changed []int
	s.Steps = slices.Clone(s.Steps)
	for i := range s.Steps {
		switch st := &s.Steps[i]; st.State {
		case sallyport.StepPending:
			st.State = sallyport.StepSkipped
			changed = append(changed, i)
		case sallyport.StepKept, sallyport.StepUndoSkipped:
			to, left = sallyport.SagaCompensated, left+1
		case sallyport.StepUndone, sallyport.StepDone:
			to = sallyport.SagaCompensated
		default:
		}
	}
	if s.Failure != "" {
		to = sallyport.SagaCompensated
	}
	if left > 0 {
		why = fmt.Sprintf("%s; the effects of %d steps stay: see which are kept or undo_skipped", why, left)
	}
	return e.rest(ctx, s, to, why, time.Time{}, changed, note{})
}

// timedOut ends an ad-hoc saga that nobody ended.
func (e *Engine) timedOut(ctx context.Context, s sallyport.Saga) (sallyport.Saga, bool, error) {
	const why = "nobody committed it or rolled it back in time"
	s.Undoing = true
	if e.Park {
		return e.rest(ctx, s, sallyport.SagaParked, why+": `sallyport saga cancel` undoes it", time.Time{}, nil, note{})
	}
	s.Failure = why
	return e.rest(ctx, s, sallyport.SagaCompensating, why, e.Now(), nil, note{})
}
