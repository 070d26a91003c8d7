// Package held keeps the calls whose server asks something, while their clients are
// away to find the answer. A stateless client gets the questions as the result of
// its request, and makes another one with the answers: the call itself never
// stopped, so nothing is done twice. Calls that wait are bounded in number and time.
//
// A call is held in the memory of one gateway. Another one of the same database
// passes the answers on to it; when it has ended, nobody knows whether the call acted.
package held

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/limit/share"
)

// Options say how calls are held. Zero fields mean the defaults.
type Options struct {
	Key     []byte // 32 bytes that the gateways of one database share
	Replica string // names this one
	Peers   *Peers // the others, nil if there are none

	Wait     time.Duration // for a client to come back, 10 min
	Most     int           // calls that have asked and not ended, 1024; of one tenant as many as are left
	PerOwner int           // of one principal, 32

	Now func() time.Time // must be set
}

// Calls are the calls that this gateway holds. They are safe for concurrent use.
type Calls struct {
	o      Options
	states states

	running sync.WaitGroup
	shares  *share.Pool // of Most

	mu      sync.Mutex // guards what follows
	byID    map[[16]byte]*call
	byOwner map[string]int
	closed  bool

	underway map[string]context.CancelCauseFunc // by the ids of calls
}

// New returns calls, none yet.
func New(o Options) (*Calls, error) {
	def(&o.Wait, 10*time.Minute)
	def(&o.Most, 1024)
	def(&o.PerOwner, 32)
	if len(o.Replica) > maxReplica {
		return nil, fmt.Errorf("a replica's name has at most %d bytes", maxReplica)
	}
	st, err := newStates(o.Key)
	return &Calls{o: o, states: st, byID: map[[16]byte]*call{}, byOwner: map[string]int{}, underway: map[string]context.CancelCauseFunc{}, shares: share.New(int64(o.Most))}, err
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// A Run runs a call to its end. (gateway.Gateway's Call, or Await)
type Run = func(ctx context.Context, req sallyport.Request) (sallyport.Result, error)

// Begin runs a call and follows it to its end or its first questions. When ctx ends
// first, so does the call.
func (c *Calls) Begin(ctx context.Context, req sallyport.Request, run Run) (sallyport.Result, error) {
	h := &call{c: c, done: make(chan struct{}), news: make(chan struct{}, 1), lasting: make(chan struct{}), brought: req.Answers}
	rand.Read(h.id[:])
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	h.cancel = cancel
	h.listen(req.Notify)
	tasks := req.Tasks
	req.Notify, req.Answers = h.hear, nil
	if req.Can.Any() || !tasks {
		req.Ask = h.ask
	}
	if tasks {
		req.Lasts = h.lasts
	}
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.running.Add(1)
	}
	c.mu.Unlock()
	if closed {
		cancel(nil)
		return sallyport.Result{}, errStopping
	}
	go func() {
		defer c.running.Done()
		defer cancel(nil)
		h.end(run(inner, req))
	}()
	return h.follow(ctx, tasks)
}

var errStopping = &sallyport.Error{
	Code: sallyport.Unavailable, Step: sallyport.Receive, Message: "the gateway is shutting down", Hint: "try again", Err: sallyport.ErrNotExecuted,
}

// Resume is that of gateway.Held.
func (c *Calls) Resume(ctx context.Context, r sallyport.Return) (sallyport.Result, error) {
	st, err := c.states.open(r.State, r.Binding)
	if err != nil || !c.o.Now().Before(st.until) {
		return sallyport.Result{}, unknown(err)
	}
	if st.replica == c.o.Replica {
		return c.take(ctx, st.call, st.turn, r)
	}
	if c.o.Peers == nil {
		return sallyport.Result{}, gone(r.Mutating)
	}
	return c.o.Peers.resume(ctx, st, r)
}

// take hands answers to a call that waits for them, and follows it.
func (c *Calls) take(ctx context.Context, id [16]byte, turn uint64, r sallyport.Return) (sallyport.Result, error) {
	c.mu.Lock()
	h := c.byID[id]
	c.mu.Unlock()
	if h == nil {
		return sallyport.Result{}, unknown(errors.New("no such call"))
	}
	if err := h.deliver(turn, r); err != nil {
		return sallyport.Result{}, err
	}
	return h.follow(ctx, r.Tasks)
}

// unknown is what is said of a state that is wrong, of somebody else's, of one
// that was used and of one that has run out: the same.
func unknown(err error) error {
	return &sallyport.Error{
		Code: sallyport.Invalid, Step: sallyport.Resolve, Err: err,
		Message: "requestState is not known, or no longer: it is good once, for the caller and the call that it was given for, and for a limited time",
		Hint:    "make the call again, without requestState",
	}
}

// gone is what is said of a call whose gateway has ended.
func gone(mutating bool) error {
	if mutating {
		return &sallyport.Error{
			Code: sallyport.OutcomeUnknown, Step: sallyport.Execute,
			Message: "the gateway that held the call has ended, so nobody knows whether the call acted; it is not run again",
			Hint:    "do not repeat it blindly: check the effect; an operator settles it with `sallyport reservations resolve`",
		}
	}
	return &sallyport.Error{
		Code: sallyport.Unavailable, Step: sallyport.Execute, Message: "the gateway that held the call has ended; the call changed nothing",
		Hint: "make the call again, without requestState",
	}
}

// keep notes a call that asks for the first time. The error says that too many do.
func (c *Calls) keep(h *call, owner string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return errStopping
	case c.byOwner[owner] >= c.o.PerOwner:
		return tooMany(fmt.Sprintf("%d of your calls wait for answers already", c.o.PerOwner))
	}
	if tenant, principal := parts(owner); !c.shares.Take(tenant, principal, 1) {
		return tooMany("too many calls wait for answers already, and yours have their share of the room")
	}
	c.byID[h.id] = h
	c.byOwner[owner]++
	return nil
}

// parts are the tenant and the principal that an owner is.
func parts(owner string) (tenant, principal string) {
	tenant, principal, _ = strings.Cut(owner, "\x00")
	return tenant, principal
}

func tooMany(message string) error {
	return &sallyport.Error{Code: sallyport.RateLimited, Step: sallyport.Execute, Message: message, Hint: "answer or cancel some of them first"}
}

// forget frees the place of a call that has ended.
func (c *Calls) forget(h *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(h)
}

// Preconditions: c.mu is held.
func (c *Calls) drop(h *call) {
	if c.byID[h.id] != h {
		return
	}
	delete(c.byID, h.id)
	tenant, principal := parts(h.owner)
	c.shares.Give(tenant, principal, 1)
	if c.byOwner[h.owner]--; c.byOwner[h.owner] == 0 {
		delete(c.byOwner, h.owner)
	}
}

// Waiting is how many calls have asked and not ended.
func (c *Calls) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byID)
}

// Close ends all calls that wait, takes no more, and returns when their outcomes
// are recorded.
func (c *Calls) Close() error {
	c.mu.Lock()
	c.closed = true
	for _, h := range c.byID {
		h.cancel(&sallyport.Cancellation{By: "shutdown"})
	}
	c.mu.Unlock()
	c.running.Wait()
	return nil
}

// answers are what a client came back with, by key.
type answers = map[string]json.RawMessage
