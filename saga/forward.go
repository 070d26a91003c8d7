package saga

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sallyport.dev/sallyport"
)

// forward takes the next step.
func (e *Engine) forward(ctx context.Context, s sallyport.Saga) (sallyport.Saga, bool, error) {
	i, _ := current(s)
	if i < 0 {
		return e.rest(ctx, s, sallyport.SagaSucceeded, "", time.Time{}, nil, note{})
	}
	if s.AdHoc {
		return e.settle(ctx, s, i)
	}
	s, o, done, more, err := e.tried(ctx, s, i, false)
	if !done || err != nil {
		return s, more, err
	}
	return e.stepped(ctx, s, i, o)
}

// stepped stores the end of an attempt, and what follows.
func (e *Engine) stepped(ctx context.Context, s sallyport.Saga, i int, o outcome) (sallyport.Saga, bool, error) {
	st := &s.Steps[i]
	n := note{from: s.State, step: i + 1}
	switch o.state {
	case sallyport.StepDone:
		st.State, s.WakeAt = sallyport.StepDone, e.Now()
		s.State, s.Reason = direction(s), ""
		return e.moved(ctx, s, []int{i}, n)
	case sallyport.StepUnknown:
		st.State = sallyport.StepUnknown
		return e.rest(ctx, s, sallyport.SagaParked, unknownReason(*st, keyOf(s, i, false)), e.Now(), []int{i}, n)
	default:
	}
	n.close = keysOf(s, i, false)
	if wait, ok := again(*st, false, o); ok && !s.AdHoc {
		st.State = sallyport.StepRunning
		s.State, s.WakeAt = direction(s), e.Now().Add(wait)
		s.Reason = fmt.Sprintf("step %s is tried again: %s", st.ID, o.message)
		n.reason = s.Reason
		next, err := e.move(ctx, s, []int{i}, n)
		return next, false, err
	}
	st.State = sallyport.StepFailed
	why := fmt.Sprintf("step %s failed: %s", st.ID, o.message)
	if past := noReturn(s); past != "" {
		return e.rest(ctx, s, sallyport.SagaParked, why+"; step "+past+" was the point of no return, so there is only forward: "+
			"see to it, then `sallyport saga retry` or `skip`", time.Time{}, []int{i}, n)
	}
	s.Undoing, s.Failure = true, why
	return e.rest(ctx, s, sallyport.SagaCompensating, why, e.Now(), []int{i}, n)
}

func unknownReason(st sallyport.SagaStep, key sallyport.ReservationKey) string {
	return fmt.Sprintf("step %s may have acted, and nobody knows: look at what %s did, then `sallyport saga resolve` (its key is %s)", st.ID, key.Tool, key.Key)
}

// settle learns from the reservation how a call ended that is on its way or
// that somebody else made. It makes none.
func (e *Engine) settle(ctx context.Context, s sallyport.Saga, i int) (sallyport.Saga, bool, error) {
	key := keyOf(s, i, false)
	r, err := e.Ledger.Find(ctx, key)
	if err != nil {
		return s, false, err
	}
	n := note{from: s.State, step: i + 1}
	var o outcome
	switch {
	case r != nil && r.State == sallyport.Executing:
		s.WakeAt = e.Now().Add(time.Second)
		n.reason = "waiting for the call of step " + s.Steps[i].ID
		s, err = e.move(ctx, s, nil, n)
		return s, false, err
	case r != nil && r.State == sallyport.Unknown:
		o = outcome{state: sallyport.StepUnknown, callID: r.CallID, code: sallyport.OutcomeUnknown}
	case r != nil && r.State == sallyport.Done && r.IsError:
		o = outcome{state: sallyport.StepFailed, callID: r.CallID, code: sallyport.Upstream, message: "the tool reports an error", final: true}
	case r != nil && r.State == sallyport.Done:
		// A repetition under the same key: the same result, cleaned once more.
		if o = e.call(s, i, false); o.state != sallyport.StepDone {
			o = outcome{}
		}
		o.state, o.callID = sallyport.StepDone, r.CallID
	default:
		o = outcome{state: sallyport.StepFailed, code: sallyport.Canceled, message: "it was never carried out", final: true}
		n.close = keysOf(s, i, false)
	}
	s = noted(s, i, false, o, e.Now())
	s.Steps[i].State = o.state
	if o.state == sallyport.StepUnknown && !s.Undoing {
		return e.rest(ctx, s, sallyport.SagaParked, unknownReason(s.Steps[i], key), e.Now(), []int{i}, n)
	}
	return e.moved(ctx, s, []int{i}, n)
}

// settled goes on with a saga whose unknown call was resolved meanwhile.
func (e *Engine) settled(ctx context.Context, s sallyport.Saga) (sallyport.Saga, bool, error) {
	i, undo := unknown(s)
	key := keyOf(s, i, undo)
	r, err := e.Ledger.Find(ctx, key)
	if err != nil {
		return s, false, err
	}
	o := outcome{state: sallyport.StepFailed, message: "an operator says that it did not act"}
	if r != nil && r.State == sallyport.Done {
		if o = e.call(s, i, undo); o.state != sallyport.StepDone {
			o = outcome{state: sallyport.StepDone}
		}
	}
	s.Steps = slices.Clone(s.Steps)
	s = noted(s, i, undo, o, e.Now())
	s.WakeAt = e.Now()
	switch {
	case undo && o.state == sallyport.StepFailed:
		s.Steps[i].State, s.Steps[i].Budget = sallyport.StepUndoing, s.Steps[i].Tries(true)
	case undo:
		s.Steps[i].State = sallyport.StepUndone
	case s.Undoing:
		s.Steps[i].State = o.state
	case s.AdHoc:
		s.Steps[i].State = o.state
	default:
		return e.stepped(ctx, s, i, o)
	}
	n := note{from: s.State, step: i + 1, undo: undo, reason: "its outcome was resolved"}
	s.State, s.Reason = direction(s), ""
	return e.moved(ctx, s, []int{i}, n)
}
