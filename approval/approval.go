// Package approval asks a human about one concrete call. Nothing waits in
// memory: a ticket lies in the store, whoever waits looks at it again when it
// moves, and after a crash everybody finds it where it was.
package approval

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/store"
)

// A Store keeps tickets; each change is one transaction with its audit entry.
// (store/sqlite)
type Store interface {
	// Ticket returns a ticket of the tenant, or code NotFound.
	Ticket(ctx context.Context, tenant, id string) (sallyport.Ticket, error)

	// ListTickets returns the tickets that match, newest first.
	ListTickets(ctx context.Context, f store.TicketFilter) ([]sallyport.Ticket, error)

	// Decide makes a pending ticket approved (to be run within run) or
	// rejected, by compare-and-set; code Conflict if it is not pending.
	Decide(ctx context.Context, tenant string, d sallyport.Decision, run time.Duration) (sallyport.Ticket, error)

	// Withdraw takes a pending ticket back; code Conflict if it is not pending.
	Withdraw(ctx context.Context, tenant, id, by, reason string) (sallyport.Ticket, error)

	// Expire moves the tickets whose time has passed at now, and returns them.
	Expire(ctx context.Context, now time.Time) ([]sallyport.Ticket, error)
}

// An Admins tells who is an admin. (store/sqlite)
type Admins interface {
	// Admin returns an admin of the tenant, or code NotFound.
	Admin(ctx context.Context, tenant, name string) (sallyport.Admin, error)
}

// Options set the clocks. The zero value is the default.
type Options struct {
	RunWithin time.Duration    // how long an approval waits for its execution, default 15 min
	Poll      time.Duration    // how often a waiter looks by itself, default 1 s
	Sweep     time.Duration    // how often both clocks are swept, default 10 s
	Clock     func() time.Time // default time.Now
}

// An Engine decides tickets and tells who waits for them. It implements
// gateway.Tickets.
type Engine struct {
	store  Store
	admins Admins
	o      Options

	mu    sync.Mutex
	moved chan struct{} // closed, and replaced, whenever a ticket moves
}

// New returns an engine. Run sweeps its clocks.
func New(store Store, admins Admins, o Options) *Engine {
	if o.RunWithin <= 0 {
		o.RunWithin = 15 * time.Minute
	}
	if o.Poll <= 0 {
		o.Poll = time.Second
	}
	if o.Sweep <= 0 {
		o.Sweep = 10 * time.Second
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return &Engine{store: store, admins: admins, o: o, moved: make(chan struct{})}
}

// MaxReason bounds the reason of a decision.
const MaxReason = 2000

// Decide is a human's word on a ticket: once, by an admin of the ticket's
// tenant, whom the door has authenticated. An agent's name is never enough: the
// admin is looked up. Codes: Denied, NotFound, Invalid, Conflict with the final
// state if somebody, or the clock, was first.
func (e *Engine) Decide(ctx context.Context, admin sallyport.Admin, ticket string, approve bool, reason string) (sallyport.Ticket, error) {
	known, err := e.admins.Admin(ctx, admin.Tenant, admin.Name)
	if sallyport.CodeOf(err) == sallyport.NotFound && err != nil || err == nil && (known.Name == "" || known.Name != admin.Name || known.Tenant != admin.Tenant) {
		return sallyport.Ticket{}, &sallyport.Error{Code: sallyport.Denied, Step: sallyport.Approve,
			Message: "only an admin decides tickets", Hint: "log in as an admin: sallyport login"}
	} else if err != nil {
		return sallyport.Ticket{}, err
	}
	reason = strings.TrimSpace(reason)
	if len(reason) > MaxReason || !utf8.ValidString(reason) {
		return sallyport.Ticket{}, &sallyport.Error{Code: sallyport.Invalid, Step: sallyport.Approve,
			Message: fmt.Sprintf("the reason must be text of at most %d bytes", MaxReason)}
	}
	tk, err := e.store.Decide(ctx, admin.Tenant, sallyport.Decision{Ticket: ticket, Approve: approve, By: admin.Name, Reason: reason, At: e.o.Clock()}, e.o.RunWithin)
	e.announce() // also where it failed: the clock may have moved it
	return tk, err
}

// Withdraw takes a pending ticket back in the name of the principal who asked.
// Somebody else's ticket is as unknown as one that does not exist.
func (e *Engine) Withdraw(ctx context.Context, who sallyport.Principal, ticket, reason string) (sallyport.Ticket, error) {
	tk, err := e.store.Ticket(ctx, who.Tenant, ticket)
	if err == nil && tk.Binding.Principal != who.ID {
		err = &sallyport.Error{Code: sallyport.NotFound, Step: sallyport.Approve, Message: fmt.Sprintf("there is no ticket %.64q", ticket)}
	}
	if err != nil {
		return sallyport.Ticket{}, err
	}
	tk, err = e.store.Withdraw(ctx, who.Tenant, ticket, who.ID, reason)
	e.announce()
	return tk, err
}

// Ticket returns a ticket of the tenant, or code NotFound.
func (e *Engine) Ticket(ctx context.Context, tenant, id string) (sallyport.Ticket, error) {
	return e.store.Ticket(ctx, tenant, id)
}

// List returns the tickets that match, newest first.
func (e *Engine) List(ctx context.Context, f store.TicketFilter) ([]sallyport.Ticket, error) {
	return e.store.ListTickets(ctx, f)
}

// Wait returns when the ticket is no longer pending, or ctx ends. It sees what
// this process decides at once, and what another one decides at its next look.
func (e *Engine) Wait(ctx context.Context, tenant, id string) error {
	for {
		moved := e.next() // before the look: nothing is missed in between
		tk, err := e.store.Ticket(ctx, tenant, id)
		if err != nil || tk.State != sallyport.TicketPending {
			return err
		}
		look := time.NewTimer(max(time.Millisecond, min(e.o.Poll, tk.DecideBy.Sub(e.o.Clock()))))
		select {
		case <-moved:
		case <-look.C:
		case <-ctx.Done():
			look.Stop()
			return ctx.Err()
		}
		look.Stop()
	}
}

func (e *Engine) next() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.moved
}

func (e *Engine) announce() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.moved)
	e.moved = make(chan struct{})
}

// Expire sweeps both clocks once and returns how many tickets moved: pending
// ones that nobody decided in time, approved ones that nobody ran in time.
func (e *Engine) Expire(ctx context.Context) (int, error) {
	tks, err := e.store.Expire(ctx, e.o.Clock())
	if len(tks) > 0 {
		e.announce()
	}
	return len(tks), err
}

// Run sweeps until ctx ends. report receives what goes wrong; it may be nil.
func (e *Engine) Run(ctx context.Context, report func(error)) {
	t := time.NewTicker(e.o.Sweep)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if _, err := e.Expire(ctx); err != nil && ctx.Err() == nil && report != nil {
				report(err)
			}
		}
	}
}
