// Package saga carries out sagas: sequences of calls that end done or undone. It
// reads and judges plans (package plan), lets their steps through the whole path with
// credentials of their own (Seal), and drives them (Engine).
//
// Nothing of a saga is in memory alone. Each attempt of a step is on record before
// its call is made, under an idempotency key of its own, so that a call acts once
// whoever makes it, before a crash or after one. See docs/design/0015-sagas.md.
package saga

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/saga/plan"
	"sallyport.dev/sallyport/store"
)

// A Store keeps sagas. Each change is one transaction with its audit entry.
type Store interface {
	Reader

	// CreateSaga stores a saga. If there is one with its id, that is returned.
	CreateSaga(ctx context.Context, s sallyport.Saga, e sallyport.Entry) (sallyport.Saga, error)

	// Sagas lists without steps.
	Sagas(ctx context.Context, f store.SagaFilter) ([]sallyport.Saga, error)

	// MoveSaga stores a change by compare-and-set; see store.SagaMove.
	MoveSaga(ctx context.Context, m store.SagaMove) (sallyport.Saga, error)

	// LeaseSaga takes a saga that nobody drives (fence 0), or prolongs the
	// driver's own lease; a zero until gives it back. Code InFlight if another
	// drives it.
	LeaseSaga(ctx context.Context, tenant, id, owner string, fence int64, until time.Time) (sallyport.Saga, error)
}

// A Ledger is what the engine reads and settles of calls.
type Ledger interface {
	Find(ctx context.Context, key sallyport.ReservationKey) (*sallyport.Reservation, error)
	Ticket(ctx context.Context, tenant, id string) (sallyport.Ticket, error)
	Resolve(ctx context.Context, r store.Resolution) error
}

// A Caller is the gateway of the steps: the whole path, with a Seal at its door.
type Caller interface {
	Call(ctx context.Context, req sallyport.Request) (sallyport.Result, error)
}

// Options say how sagas are driven. Zero durations and numbers mean the defaults.
type Options struct {
	Store   Store
	Ledger  Ledger
	Gateway Caller
	Seal    *Seal
	Book    *plan.Book
	Owner   string // this process, in leases
	Log     *slog.Logger
	Now     func() time.Time

	Lease       time.Duration // a driver that is silent for so long is taken to be dead: 30 s
	Poll        time.Duration // between looks at what is due: 500 ms
	Concurrency int           // sagas driven at once: 16
	Grace       time.Duration // for calls on their way when the gateway stops: 10 s
	Patience    time.Duration // for a tool or server that is not there (yet) before the step has failed: 2 m
	OpenFor     time.Duration // an ad-hoc saga that nobody ends: 15 m
	Park        bool          // such a saga is parked, not rolled back
}

// An Engine drives sagas. Several gateways may have one on one database.
type Engine struct {
	Options

	started time.Time
	kicked  chan struct{}
	running chan struct{} // a slot of each saga that is driven

	mu      sync.Mutex
	driving map[string]bool
	idle    sync.WaitGroup

	calls context.Context //nolint:containedctx // ends when calls on their way must; the engine's life, not a call's
	stop  context.CancelFunc
}

// New makes an engine. It drives nothing before Run.
func New(o Options) *Engine {
	or := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	or(&o.Lease, 30*time.Second)
	or(&o.Poll, 500*time.Millisecond)
	or(&o.Grace, 10*time.Second)
	or(&o.OpenFor, 15*time.Minute)
	or(&o.Patience, 2*time.Minute)
	if o.Concurrency <= 0 {
		o.Concurrency = 16
	}
	e := &Engine{Options: o, started: o.Now(), kicked: make(chan struct{}, 1), running: make(chan struct{}, o.Concurrency), driving: map[string]bool{}}
	e.calls, e.stop = context.WithCancel(context.Background())
	return e
}

// Run drives what is due until ctx ends. Then no further step begins; calls on
// their way have the grace to finish. Nothing is ever undone because a gateway
// stops: what is left goes on when one starts.
func (e *Engine) Run(ctx context.Context) {
	defer e.stop()
	t := time.NewTicker(e.Poll)
	defer t.Stop()
	for {
		e.look(ctx)
		select {
		case <-t.C:
		case <-e.kicked:
		case <-ctx.Done():
			done := make(chan struct{})
			go func() { e.idle.Wait(); close(done) }()
			select {
			case <-done:
			case <-time.After(e.Grace):
				e.stop()
				<-done
			}
			return
		}
	}
}

// kick has the engine look now.
func (e *Engine) kick() {
	select {
	case e.kicked <- struct{}{}:
	default:
	}
}

// look finds what is due and drives it.
func (e *Engine) look(ctx context.Context) {
	due, err := e.Store.Sagas(ctx, store.SagaFilter{Due: e.Now(), Limit: 1000})
	if err != nil {
		if ctx.Err() == nil {
			e.Log.Error("looking for sagas", "err", err)
		}
		return
	}
	for _, s := range due {
		if s.Lease.After(e.Now()) || !e.claim(s) {
			continue
		}
		select {
		case e.running <- struct{}{}:
		case <-ctx.Done():
			e.free(s)
			return
		}
		e.idle.Add(1)
		go func() {
			defer func() { <-e.running; e.free(s); e.idle.Done() }()
			if err := e.visit(ctx, s); err != nil && ctx.Err() == nil {
				e.Log.Error("a saga cannot be driven now", "saga", s.ID, "err", err)
			}
		}()
	}
}

func (e *Engine) claim(s sallyport.Saga) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.driving[s.Tenant+"/"+s.ID] {
		return false
	}
	e.driving[s.Tenant+"/"+s.ID] = true
	return true
}

func (e *Engine) free(s sallyport.Saga) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.driving, s.Tenant+"/"+s.ID)
}

// visit looks at one saga, and drives it if there is something to do.
func (e *Engine) visit(ctx context.Context, listed sallyport.Saga) error {
	s, err := e.Store.Saga(ctx, listed.Tenant, listed.ID)
	if err != nil {
		return err
	}
	if ripe, err := e.ripe(ctx, s); err != nil || !ripe {
		return err
	}
	s, err = e.Store.LeaseSaga(ctx, s.Tenant, s.ID, e.Owner, 0, e.Now().Add(e.Lease))
	if sallyport.CodeOf(err) == sallyport.InFlight && err != nil {
		return nil // another gateway was first
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go e.hold(ctx, cancel, s)
	err = e.drive(ctx, s)
	cancel()
	_, free := e.Store.LeaseSaga(context.WithoutCancel(ctx), s.Tenant, s.ID, e.Owner, s.Fence, time.Time{})
	if err == nil && sallyport.CodeOf(free) != sallyport.InFlight {
		err = free
	}
	return err
}

// hold prolongs the lease while the saga is driven. Who loses it stops: its
// writes would be refused.
func (e *Engine) hold(ctx context.Context, lost context.CancelFunc, s sallyport.Saga) {
	t := time.NewTicker(e.Lease / 3)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		_, err := e.Store.LeaseSaga(ctx, s.Tenant, s.ID, e.Owner, s.Fence, e.Now().Add(e.Lease))
		if err != nil && sallyport.CodeOf(err) == sallyport.InFlight {
			lost()
			return
		}
	}
}

// ripe reports whether there is something to do. It only reads.
func (e *Engine) ripe(ctx context.Context, s sallyport.Saga) (bool, error) {
	i, undo := current(s)
	switch s.State {
	case sallyport.SagaRunning, sallyport.SagaCompensating, sallyport.SagaOpen:
		return true, nil
	case sallyport.SagaAwaiting:
		if i < 0 || s.Steps[i].Last(undo) == nil {
			return true, nil
		}
		t, err := e.Ledger.Ticket(ctx, s.Tenant, s.Steps[i].Last(undo).Ticket)
		if sallyport.CodeOf(err) == sallyport.NotFound && err != nil {
			return true, nil
		}
		return t.State != sallyport.TicketPending, err
	case sallyport.SagaParked, sallyport.SagaUndoFailed:
		i, undo = unknown(s)
		if i < 0 {
			return false, nil
		}
		r, err := e.Ledger.Find(ctx, keyOf(s, i, undo))
		return r != nil && (r.State == sallyport.Done || r.State == sallyport.Failed), err
	default:
		return false, nil
	}
}

// drive takes one step after the other until the saga rests or ctx ends.
func (e *Engine) drive(ctx context.Context, s sallyport.Saga) error {
	fence := s.Fence
	for ctx.Err() == nil {
		next, more, err := e.advance(ctx, s)
		switch {
		case err == nil:
		case sallyport.CodeOf(err) == sallyport.Conflict: // somebody else moved it
			if next, err = e.Store.Saga(ctx, s.Tenant, s.ID); err != nil {
				return err
			}
			if next.Fence != fence {
				return nil
			}
			more = true
		default:
			return err
		}
		s = next
		if !more || s.WakeAt.IsZero() || s.WakeAt.After(e.Now()) {
			return nil
		}
	}
	return nil
}

// advance makes the next move. more says that there may be another at once.
func (e *Engine) advance(ctx context.Context, s sallyport.Saga) (_ sallyport.Saga, more bool, err error) {
	switch s.State {
	case sallyport.SagaRunning:
		return e.forward(ctx, s)
	case sallyport.SagaCompensating:
		return e.backward(ctx, s)
	case sallyport.SagaAwaiting:
		s.State, s.Reason = direction(s), ""
		return e.moved(ctx, s, nil, note{reason: "its ticket was decided"})
	case sallyport.SagaParked, sallyport.SagaUndoFailed:
		if ripe, err := e.ripe(ctx, s); err != nil || !ripe {
			return s, false, err
		}
		return e.settled(ctx, s)
	case sallyport.SagaOpen:
		return e.timedOut(ctx, s)
	default:
		return s, false, nil
	}
}

// direction is the state in which the saga goes on.
func direction(s sallyport.Saga) sallyport.SagaState {
	if s.Undoing {
		return sallyport.SagaCompensating
	}
	return sallyport.SagaRunning
}

// A note is what the record tells of a move besides the states.
type note struct {
	from    sallyport.SagaState
	step    int // 1-based; 0: none
	undo    bool
	by      string
	reason  string
	close   []sallyport.ReservationKey
	anybody bool // not the driver's move
}

// An event is the payload of a saga's audit entry; its names are those of
// sallyport.Record where they mean the same.
type event struct {
	Saga      string              `json:"saga"`
	Name      string              `json:"name"`
	Principal string              `json:"principal"`
	Digest    string              `json:"digest,omitempty"`
	From      sallyport.SagaState `json:"from,omitempty"`
	To        sallyport.SagaState `json:"to"`
	Undoing   bool                `json:"undoing,omitempty"`
	Step      string              `json:"step,omitempty"`
	StepState sallyport.StepState `json:"step_state,omitempty"`
	Target    string              `json:"target,omitempty"`
	Attempt   int                 `json:"attempt,omitempty"`
	Key       string              `json:"key,omitempty"`
	Call      string              `json:"step_call_id,omitempty"`
	Ticket    string              `json:"ticket,omitempty"`
	Code      sallyport.Code      `json:"code,omitempty"`
	Message   string              `json:"message,omitempty"`
	By        string              `json:"by"`
	Reason    string              `json:"reason,omitempty"`
}

func entry(s sallyport.Saga, n note) (sallyport.Entry, error) {
	v := event{Saga: s.ID, Name: s.Name, Principal: s.Principal, Digest: s.Digest, From: n.from, To: s.State, Undoing: s.Undoing, By: n.by, Reason: n.reason}
	if v.By == "" {
		v.By = "system"
	}
	if n.step > 0 {
		st := s.Steps[n.step-1]
		v.Step, v.StepState, v.Target = st.ID, st.State, st.Do.Tool
		if n.undo && st.Undo != nil {
			v.Target = st.Undo.Tool
		}
		if a := st.Last(n.undo); a != nil {
			v.Attempt, v.Key, v.Call, v.Ticket, v.Code, v.Message = a.N, a.Key, a.CallID, a.Ticket, a.Code, a.Message
		}
	}
	return audit.NewEntry(s.Tenant, sallyport.EntrySaga, s.CallID, v)
}

// move stores a change of the saga.
func (e *Engine) move(ctx context.Context, s sallyport.Saga, steps []int, n note) (sallyport.Saga, error) {
	entry, err := entry(s, n)
	if err != nil {
		return s, err
	}
	m := store.SagaMove{Saga: s, Steps: steps, Close: n.close, Entry: entry}
	if !n.anybody {
		m.Fence = s.Fence
	}
	return e.Store.MoveSaga(context.WithoutCancel(ctx), m)
}

// moved is a move after which the saga may go on at once.
func (e *Engine) moved(ctx context.Context, s sallyport.Saga, steps []int, n note) (sallyport.Saga, bool, error) {
	s, err := e.move(ctx, s, steps, n)
	return s, true, err
}

// rest is a move to a state in which the saga waits: for a time, or for
// somebody to act.
func (e *Engine) rest(ctx context.Context, s sallyport.Saga, to sallyport.SagaState, why string, wake time.Time, steps []int, n note) (sallyport.Saga, bool, error) {
	n.from, n.reason = s.State, why
	s.State, s.Reason, s.WakeAt = to, why, wake
	s, err := e.move(ctx, s, steps, n)
	return s, false, err
}
