package saga

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/saga/plan"
)

// The defaults of retries.
const (
	doAttempts     = 1
	undoAttempts   = 3
	defaultBackoff = time.Second
	longestBackoff = 10 * time.Minute
)

func sha(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// current is the step at which the saga stands, and the direction; -1 if it has
// nothing more to do in that direction.
func current(s sallyport.Saga) (i int, undo bool) {
	if !s.Undoing {
		return slices.IndexFunc(s.Steps, func(st sallyport.SagaStep) bool {
			return st.State == sallyport.StepRunning || st.State == sallyport.StepPending
		}), false
	}
	for i := len(s.Steps) - 1; i >= 0; i-- {
		switch st := s.Steps[i]; st.State {
		case sallyport.StepUndoing, sallyport.StepUnknown, sallyport.StepUndoFailed, sallyport.StepUndoUnknown:
			return i, true
		case sallyport.StepDone:
			if st.Undo != nil || st.Do.Risk.Mutating() {
				return i, true
			}
		default:
		}
	}
	return -1, true
}

// unknown is the step whose outcome nobody knows, and the direction; -1 if
// there is none.
func unknown(s sallyport.Saga) (i int, undo bool) {
	for i := len(s.Steps) - 1; i >= 0; i-- {
		switch s.Steps[i].State {
		case sallyport.StepUnknown:
			return i, false
		case sallyport.StepUndoUnknown:
			return i, true
		default:
		}
	}
	return -1, false
}

// noReturn names the step after which there is only forward, if the saga has
// done it, or may have.
func noReturn(s sallyport.Saga) string {
	for _, st := range s.Steps {
		if st.NoReturn && (st.State == sallyport.StepDone || st.State == sallyport.StepUnknown || st.State == sallyport.StepRunning) {
			return st.ID
		}
	}
	return ""
}

func callOf(st sallyport.SagaStep, undo bool) sallyport.SagaCall {
	if undo {
		return *st.Undo
	}
	return st.Do
}

// keyOf is the reservation of the last attempt.
func keyOf(s sallyport.Saga, i int, undo bool) sallyport.ReservationKey {
	if undo {
		return reserved(s, i, undo, s.Steps[i].UndoKey)
	}
	return reserved(s, i, undo, s.Steps[i].Key)
}

// reserved is the reservation under which an attempt is made: its key, and for
// whom. A call that joined an ad-hoc saga brought the whole of it.
func reserved(s sallyport.Saga, i int, undo bool, key string) sallyport.ReservationKey {
	if s.OnBehalfOf != "" && key != "" && (!s.AdHoc || undo) {
		key += sallyport.Scope + s.OnBehalfOf
	}
	return sallyport.ReservationKey{Tenant: s.Tenant, Principal: s.Principal, Tool: callOf(s.Steps[i], undo).Tool, Key: key}
}

// keysOf are the reservations of every attempt of a step in one direction.
func keysOf(s sallyport.Saga, i int, undo bool) (keys []sallyport.ReservationKey) {
	last := keyOf(s, i, undo)
	for _, a := range s.Steps[i].Attempts {
		if k := reserved(s, i, undo, a.Key); a.Undo == undo && k != last {
			keys = append(keys, k)
		}
	}
	if last.Key != "" {
		keys = append(keys, last)
	}
	return keys
}

// begin puts a new attempt on record, before anything is called. The keys of
// earlier ones, and for an undo those of the step itself, are closed in the
// same transaction: a call that is late must not act any more.
func (e *Engine) begin(ctx context.Context, s sallyport.Saga, i int, undo bool) (sallyport.Saga, bool, error) {
	s.Steps = slices.Clone(s.Steps)
	st := &s.Steps[i]
	n := note{from: s.State, step: i + 1, undo: undo, close: keysOf(s, i, undo)}
	a := sallyport.SagaAttempt{N: st.Tries(undo) + 1, Undo: undo, StartedAt: e.Now()}
	a.Key = sallyport.SagaKey(s.ID, st.ID, undo, a.N)
	if undo {
		n.close = append(n.close, keysOf(s, i, false)...)
		st.State, st.UndoKey = sallyport.StepUndoing, a.Key
	} else {
		st.State, st.Key = sallyport.StepRunning, a.Key
	}
	st.Attempts = append(slices.Clone(st.Attempts), a)
	s.WakeAt, s.Reason = e.Now(), ""
	return e.moved(ctx, s, []int{i}, n)
}

// An outcome is what came of one call.
type outcome struct {
	state   sallyport.StepState // done, failed or unknown; "" if it has not ended
	result  json.RawMessage
	callID  string
	code    sallyport.Code
	message string

	final  bool          // failed, and another try would be no other
	ticket string        // a human must approve it first
	parked bool          // the agent may not act any more
	wait   time.Duration // ask again later, under the same key
}

// call makes the call of the attempt that is on record, through the whole path.
// Under the same key it acts once, however often it is made.
func (e *Engine) call(s sallyport.Saga, i int, undo bool) outcome {
	c := callOf(s.Steps[i], undo)
	fill := plan.Filling{Args: c.Args}
	if !s.AdHoc || undo {
		var err error
		if fill, err = plan.Fill(s, i, undo); err != nil {
			return outcome{state: sallyport.StepFailed, final: true, code: sallyport.Invalid, message: err.Error()}
		}
	}
	key := keyOf(s, i, undo)
	token, end := e.Seal.mint(s, c, key.Key, fill)
	defer end()
	ctx, cancel := e.calls, context.CancelFunc(func() {})
	if c.Timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, c.Timeout)
	}
	defer cancel()
	res, err := e.Gateway.Call(ctx, sallyport.Request{
		Credential: token, Door: "saga", Profile: s.Profile, Key: key.Key, Saga: s.ID, Trace: s.Trace, Size: len(fill.Args),
		Operation: sallyport.Operation{Kind: sallyport.CallTool, Target: c.Tool, Args: fill.Args},
	})
	if err == nil && !res.IsError {
		return outcome{state: sallyport.StepDone, result: res.Content, callID: res.CallID}
	}
	if err == nil {
		return e.complained(key, res)
	}
	return e.patient(s, i, undo, e.failed(key, err))
}

// complained is the outcome of a call whose tool reports an error: it failed, as
// the tool says, unless the reservation says that nobody can tell.
func (e *Engine) complained(key sallyport.ReservationKey, res sallyport.Result) outcome {
	o := outcome{result: res.Content, callID: res.CallID, code: sallyport.Upstream, message: cmp.Or(clip(plan.Text(res.Content), 300), "the tool reports an error")}
	switch r, err := e.Ledger.Find(context.WithoutCancel(e.calls), key); {
	case err != nil:
		o.wait = time.Second // look again, under the same key
	case r != nil && r.State == sallyport.Unknown:
		o.state, o.code = sallyport.StepUnknown, sallyport.OutcomeUnknown
	default:
		o.state = sallyport.StepFailed
	}
	return o
}

// patient turns a failure that says "not there" into a wait for a while: after
// a start of the gateway, servers take their time, and a saga must not be undone
// because of that.
func (e *Engine) patient(s sallyport.Saga, i int, undo bool, o outcome) outcome {
	gone := o.code == sallyport.NotFound || o.code == sallyport.Unavailable || o.code == sallyport.Quarantined
	if o.state != sallyport.StepFailed || !gone {
		return o
	}
	since := e.started
	if a := s.Steps[i].Last(undo); a != nil && a.StartedAt.After(since) {
		since = a.StartedAt
	}
	if e.Now().Before(since.Add(e.Patience)) {
		o.state, o.wait = "", time.Second
	}
	return o
}

// failed says what an error means. Whether the call may have acted is not a
// matter of the error: the reservation knows.
func (e *Engine) failed(key sallyport.ReservationKey, err error) outcome {
	o := outcome{code: sallyport.CodeOf(err), message: "it failed"}
	takenBack := false
	if ours, ok := errors.AsType[*sallyport.Error](err); ok {
		takenBack = ours.Code == sallyport.Canceled && ours.Step == sallyport.Approve
		o.message, o.callID, o.ticket, o.wait = ours.Message, ours.CallID, ours.Ticket, ours.RetryAfter
	}
	switch o.code {
	case sallyport.Pending:
		return o
	case sallyport.Unauthenticated:
		o.parked = true
		return o
	case sallyport.RateLimited, sallyport.InFlight:
		o.ticket, o.wait = "", cmp.Or(o.wait, 250*time.Millisecond)
		return o
	default:
	}
	o.ticket = ""
	r, lost := e.Ledger.Find(context.WithoutCancel(e.calls), key)
	switch {
	case lost == nil && r != nil && r.State == sallyport.Done && o.code == sallyport.Denied: // its effect stands, whoever may see it today
		o.state = sallyport.StepDone
		if r.IsError {
			o.state, o.final = sallyport.StepFailed, true
		}
		return o
	case lost != nil, r != nil && r.State == sallyport.Executing, r != nil && r.State == sallyport.Done:
		o.wait = time.Second // look again: it is running, or it is done and its result is there
		return o
	case r != nil && r.State == sallyport.Unknown:
		o.state = sallyport.StepUnknown
		return o
	case o.wait > 0:
		return o
	}
	o.state = sallyport.StepFailed
	switch o.code {
	case sallyport.Rejected, sallyport.Denied, sallyport.NotFound, sallyport.Invalid, sallyport.Conflict, sallyport.Quarantined, sallyport.TooLarge:
		o.final = true
	default:
		o.final = takenBack
	}
	return o
}

func clip(s string, n int) string {
	if len(s) > n {
		return string([]rune(s[:n])[:max(0, len([]rune(s[:n]))-1)]) + "…"
	}
	return s
}

// note writes an outcome into the ledger of the step.
func noted(s sallyport.Saga, i int, undo bool, o outcome, now time.Time) sallyport.Saga {
	s.Steps = slices.Clone(s.Steps)
	st := &s.Steps[i]
	st.Attempts = slices.Clone(st.Attempts)
	a := st.Last(undo)
	if a == nil { // of an ad-hoc saga
		st.Attempts = append(st.Attempts, sallyport.SagaAttempt{N: 1, Key: st.Key, CallID: st.ID, StartedAt: now})
		a = st.Last(undo)
	}
	a.CallID, a.Ticket = cmp.Or(o.callID, a.CallID), cmp.Or(o.ticket, a.Ticket)
	a.Code, a.Message = o.code, o.message
	if o.state == "" {
		return s
	}
	a.EndedAt, a.Outcome = now, o.state
	if len(o.result) > 0 {
		a.ResultHash = sha(o.result)
	}
	if o.state == sallyport.StepDone && !undo {
		st.Result = o.result
	}
	return s
}

// tried makes the call of the attempt on record, or a new one, and stores what
// came of it, unless it has not ended. done says that it has: o is in the saga,
// and the caller must store it with what follows from it.
func (e *Engine) tried(ctx context.Context, s sallyport.Saga, i int, undo bool) (next sallyport.Saga, o outcome, done, more bool, err error) {
	if a := s.Steps[i].Last(undo); a == nil || a.Outcome != "" {
		next, more, err = e.begin(ctx, s, i, undo)
		return next, o, false, more, err
	}
	o = e.call(s, i, undo)
	if e.calls.Err() != nil || ctx.Err() != nil && o.state == "" {
		return s, o, false, false, nil // stopping: the reservation says the rest, next time
	}
	next = noted(s, i, undo, o, e.Now())
	n := note{step: i + 1, undo: undo}
	switch {
	case o.parked:
		next, more, err = e.rest(ctx, next, sallyport.SagaParked, o.message+"; nothing is undone in its name", time.Time{}, []int{i}, n)
	case o.code == sallyport.Pending && o.state == "":
		next, more, err = e.rest(ctx, next, sallyport.SagaAwaiting, fmt.Sprintf("step %s waits for a human: ticket %s", s.Steps[i].ID, o.ticket), e.Now(), []int{i}, n)
	case o.state == "":
		s.WakeAt = e.Now().Add(o.wait)
		n.from, n.reason = s.State, o.message
		next, err = e.move(ctx, s, nil, n)
	default:
		return next, o, true, false, nil
	}
	return next, o, false, more, err
}

// again reports whether a failed attempt is followed by another, and when.
func again(st sallyport.SagaStep, undo bool, o outcome) (time.Duration, bool) {
	c := callOf(st, undo)
	allowed := cmp.Or(c.Attempts, doAttempts)
	if undo {
		allowed = cmp.Or(c.Attempts, undoAttempts)
	}
	n := st.Tries(undo) - st.Budget
	if o.final || n >= allowed {
		return 0, false
	}
	wait := cmp.Or(c.Backoff, defaultBackoff)
	for range n - 1 {
		wait = min(2*wait, longestBackoff)
	}
	return wait, true
}
