package task

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/outcome"
	"sallyport.dev/sallyport/backend/upstream/asked"
	"sallyport.dev/sallyport/backend/upstream/line"
	"sallyport.dev/sallyport/backend/upstream/pace"
	"sallyport.dev/sallyport/pause"
	"sallyport.dev/sallyport/wire"
	"sallyport.dev/sallyport/wire/ask"
)

// Between two questions how a task is.
const (
	soonest = 50 * time.Millisecond  // whatever the server says
	longest = time.Minute            // whatever the server says
	first   = 100 * time.Millisecond // where it says nothing, half as much again each time up to
	slowest = 5 * time.Second

	patience = 30 * time.Second // with a server that answers no such question, from the first on
	maxAsked = 64               // questions of one task
	parting  = 10 * time.Second // to tell that nobody waits any more
)

// An Errand is a call whose server made a task of it.
type Errand struct {
	Server  string
	Legacy  bool // its words are those of 2025-11-25
	Cancels bool // the server takes cancellations
	Job     sallyport.Job

	// Send makes a request about the task. It may go over another connection than the
	// call did.
	Send func(ctx context.Context, method, id string, params json.RawMessage) (wire.Message, error)

	told  string // the last message of its status
	count int    // how many were told
	seen  map[string]bool
	asked chan error // of the questions that are out, nil if none are
}

// Follow waits for the end of the task and returns the result of the call. It ends
// with ctx, and then has the server cancel. No error wraps ErrNotExecuted.
func (e *Errand) Follow(ctx context.Context, st State) (json.RawMessage, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer e.settle(stop)
	e.seen = map[string]bool{}
	var lately outage
	for polls := 0; ; polls++ {
		e.tell(st)
		result, over, err := e.meet(ctx, st)
		if over {
			return asked.Plain(result), err
		}
		if err == nil {
			err = e.rest(ctx, st, polls)
		}
		var next State
		if err == nil {
			next, err = e.get(ctx, st.ID)
		}
		switch {
		case err == nil:
			st, lately = next, outage{}
		case ctx.Err() != nil || errors.Is(err, errForGood):
			e.cancel(st.ID)
			return nil, e.because(ctx, err)
		default:
			wait, over := lately.another()
			if over {
				e.cancel(st.ID)
				return nil, e.lost(err)
			}
			pause.For(ctx, wait)
		}
	}
}

// settle takes back what is asked, and waits for those who asked.
func (e *Errand) settle(stop context.CancelCauseFunc) {
	stop(nil)
	if e.asked != nil {
		<-e.asked //nolint:errcheck // nobody waits for the answers any more
	}
}

// errForGood marks what is no use to try again.
var errForGood = errors.New("for good")

func (e *Errand) because(ctx context.Context, err error) error {
	if ours, ok := errors.AsType[*sallyport.Error](err); ok {
		return ours
	}
	return cmp.Or(ctx.Err(), plainly(err))
}

// meet does what a status asks for. over is that there is no more to wait for.
func (e *Errand) meet(ctx context.Context, st State) (result json.RawMessage, over bool, err error) {
	switch {
	case st.Status == cancelled:
		return nil, true, e.error("cancelled the task that it made of the call"+said(st.Message), nil)
	case st.Status == completed && !e.Legacy:
		return st.Result, true, nil
	case st.Status == failed && !e.Legacy:
		return nil, true, e.refused(st.Error)
	case st.Status == asks && !e.Legacy:
		return nil, false, e.ask(ctx, st)
	case st.Status == working:
		return nil, false, nil
	}
	// A server with sessions has the result, or asks on the way to it.
	m, err := e.Send(ctx, "tasks/result", st.ID, append(params(st.ID), '}'))
	switch {
	case ctx.Err() != nil:
		return nil, false, ctx.Err()
	case err != nil:
		return nil, false, plainly(err)
	case m.Error != nil:
		return nil, true, e.error(fmt.Sprintf("answered for its task with error %d: %s", m.Error.Code, line.Printable(m.Error.Message, 1000)), m.Error)
	}
	return m.Result, true, nil
}

// get asks how the task is.
func (e *Errand) get(ctx context.Context, id string) (State, error) {
	m, err := e.Send(ctx, "tasks/get", id, append(params(id), '}'))
	if err != nil {
		return State{}, plainly(err)
	}
	if m.Error != nil {
		switch m.Error.Code {
		case wire.CodeInternal:
			return State{}, m.Error
		}
		return State{}, fmt.Errorf("%w: %w", errForGood, e.lost(m.Error))
	}
	st, err := read(m.Result, e.Legacy)
	if err == nil && st.ID != id {
		err = errors.New("it told of another task")
	}
	if err == nil && st.Status == completed && st.Result == nil && !e.Legacy {
		err = errors.New("a completed task has no result")
	}
	if err != nil {
		return State{}, fmt.Errorf("%w: %w", errForGood, e.lost(err))
	}
	return st, nil
}

// rest waits before the next question. What came of questions to the client ends it.
func (e *Errand) rest(ctx context.Context, st State, polls int) error {
	wait := first
	for i := 0; i < polls && wait < slowest; i++ {
		wait += wait / 2
	}
	wait = min(wait, slowest)
	if st.Poll > 0 {
		wait = max(st.Poll, soonest)
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case err := <-e.asked:
		e.asked = nil
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("%w: %w", errForGood, err)
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ask puts what is asked and was not put before to the client, while the task goes on.
func (e *Errand) ask(ctx context.Context, st State) error {
	if e.asked != nil {
		return nil
	}
	var fresh []sallyport.Question
	for _, q := range st.Questions {
		if !e.seen[q.Key] {
			e.seen[q.Key] = true
			fresh = append(fresh, q)
		}
	}
	switch {
	case len(fresh) == 0:
		return nil
	case e.Job.Ask == nil:
		return fmt.Errorf("%w: %w", errForGood, e.error(fmt.Sprintf("asks for %s in its task, though the call's client cannot be asked", fresh[0].Method), nil))
	case len(e.seen) > maxAsked:
		return fmt.Errorf("%w: %w", errForGood, e.error(fmt.Sprintf("asked more than %d questions in one task", maxAsked), nil))
	}
	done := make(chan error, 1)
	e.asked = done
	go func() { done <- e.answer(ctx, st.ID, fresh) }()
	return nil
}

// answer gets the answers and hands them in. The server takes each once, so that they
// can be sent again.
func (e *Errand) answer(ctx context.Context, id string, questions []sallyport.Question) error {
	answers, err := e.Job.Ask(ctx, questions)
	if err != nil {
		return err
	}
	for _, a := range answers {
		if a.Result == nil {
			return e.error("asked in its task, and got no answer"+said(a.Refusal), asked.Refused(a))
		}
	}
	body := append(ask.Required{Questions: questions}.AppendRetry(params(id), answers), '}')
	var lately outage
	for {
		m, err := e.Send(ctx, "tasks/update", id, body)
		if err == nil && m.Error != nil {
			return e.lost(m.Error)
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		wait, over := lately.another()
		if over {
			return e.lost(err)
		}
		if pause.For(ctx, wait); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// An outage is a server's failures in a row. How long it has lasted decides, not how
// many there were: the pauses between are left to chance.
type outage struct {
	since    time.Time
	failures int
}

// another counts one more, and says how long to wait before the next try, or that it
// has been enough.
func (o *outage) another() (wait time.Duration, over bool) {
	if o.failures++; o.failures == 1 {
		o.since = time.Now()
	}
	return pace.Before(o.failures, time.Second, slowest), time.Since(o.since) > patience
}

// tell passes a message of the status on, once.
func (e *Errand) tell(st State) {
	if st.Message == "" || st.Message == e.told || e.Job.Notify == nil {
		return
	}
	e.told = st.Message
	b := wire.AppendString(fmt.Appendf(nil, `{"progress":%d,"message":`, e.count), line.Printable(st.Message, 1000))
	e.count++
	e.Job.Notify(sallyport.Notice{Method: "notifications/progress", Params: append(b, '}')})
}

// cancel tells the server that nobody waits for the task any more.
func (e *Errand) cancel(id string) {
	if !e.Cancels {
		return
	}
	go func() {
		ctx, done := context.WithTimeout(context.Background(), parting)
		defer done()
		_, _ = e.Send(ctx, "tasks/cancel", id, append(params(id), '}'))
	}()
}

// error is one of a call that may have acted.
func (e *Errand) error(what string, cause error) error {
	return &sallyport.Error{
		Code: sallyport.Upstream, Step: sallyport.Execute, Message: fmt.Sprintf("server %q %s", e.Server, what),
		Hint: outcome.MayHaveActed, Err: plainly(cause),
	}
}

func (e *Errand) lost(cause error) error {
	return e.error("upstream_task_lost: it made a task of the call and cannot say any more what became of it: "+line.Printable(cause.Error(), 300), cause)
}

func (e *Errand) refused(raw json.RawMessage) error {
	message, _ := wire.String(wire.Member(raw, "message"))
	return e.error(fmt.Sprintf("says that the call's task failed with error %.20s: %s", wire.Member(raw, "code"), line.Printable(message, 1000)), nil)
}

func said(text string) string {
	if text == "" {
		return ""
	}
	return ": " + line.Printable(text, 300)
}

// plainly is an error of a request about a task. That it was not sent says nothing of
// the call, so no more than the text of it is kept.
func plainly(err error) error {
	if err == nil {
		return nil
	}
	if outcome.IsContext(err) && !errors.Is(err, sallyport.ErrNotExecuted) {
		return err
	}
	return errors.New(err.Error())
}
