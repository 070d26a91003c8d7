// Package approval asks a human about one concrete call. Nothing waits in
// memory: a ticket lies in the store, whoever waits looks at it again when it
// moves, and after a crash everybody finds it where it was.
package approval

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/store"
)

// A Store keeps tickets; each change is one transaction with its audit entry.
// (store/relational)
type Store interface {
	Reader
	Mover
}

// A Reader finds tickets.
type Reader interface {
	// Ticket returns a ticket of the tenant, or code NotFound.
	Ticket(ctx context.Context, tenant, id string) (sallyport.Ticket, error)

	// ListTickets returns the tickets that match, newest first.
	ListTickets(ctx context.Context, f store.TicketFilter) ([]sallyport.Ticket, error)
}

// A Mover moves tickets from state to state, by compare-and-set.
type Mover interface {
	// Decide counts one admin's word on a pending ticket. The first rejection
	// makes it rejected; the approval that meets the last demand makes it
	// approved, to be run within run from then. Codes: Conflict if it is not
	// pending or the admin has approved before, Denied if the admin stands
	// behind the call or is in none of the groups that are asked, Invalid if
	// d.Hash is not the ticket's.
	Decide(ctx context.Context, tenant string, d sallyport.Decision, run time.Duration) (sallyport.Ticket, error)

	// Withdraw takes a pending ticket back; code Conflict if it is not pending.
	Withdraw(ctx context.Context, tenant, id, by, reason string) (sallyport.Ticket, error)

	// Void ends an approval that no longer holds; code Conflict if the ticket
	// is not approved.
	Void(ctx context.Context, tenant, id, by, reason string) (sallyport.Ticket, error)

	// Expire moves the tickets whose time has passed at now, and returns them.
	Expire(ctx context.Context, now time.Time) ([]sallyport.Ticket, error)

	// Escalate lets groups decide, too, on the pending tickets that were opened
	// before a time and are not escalated yet, and returns them.
	Escalate(ctx context.Context, before time.Time, groups []string) ([]sallyport.Ticket, error)
}

// An Admins tells who is an admin. (store/relational)
type Admins interface {
	// Admin returns an admin of the tenant, or code NotFound.
	Admin(ctx context.Context, tenant, name string) (sallyport.Admin, error)
}

// A Signatures says which decisions must carry an approver's signature, and
// checks those that do. (approval/passkey)
type Signatures interface {
	// Check returns nil if d may decide t as far as signatures go, or an
	// *sallyport.Error that says what to do.
	Check(ctx context.Context, t sallyport.Ticket, d sallyport.Decision) error
}

// Options set the clocks. The zero value is the default.
type Options struct {
	Signatures Signatures // nil: no decision needs one, and none is taken

	RunWithin time.Duration    // how long an approval waits for its execution, default 15 min
	Poll      time.Duration    // how often a waiter looks by itself, default 1 s
	Sweep     time.Duration    // how often both clocks are swept, default 10 s
	Clock     func() time.Time // default time.Now
	Notifier  Notifier         // told what happens to tickets, nil for none
	Escalate  Escalation       // zero: nobody else is called in
}

// An Escalation calls others in where nobody decides.
type Escalation struct {
	After  time.Duration // since the ticket was opened
	Groups []string      // that may decide, too, from then on
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

// Decide takes a human's word on a ticket: d.By is an admin of the tenant, whom
// the door has authenticated. An agent's name is never enough: the admin, and
// the groups that count, are looked up. The first rejection rejects; an approval
// approves once every demand of the ticket is met, until then the ticket comes
// back pending. Codes: Denied, also where a signature is missing or wrong, NotFound,
// Invalid, Conflict with the final state if somebody, or the clock, was first.
func (e *Engine) Decide(ctx context.Context, tenant string, d sallyport.Decision) (sallyport.Ticket, error) {
	known, err := e.admins.Admin(ctx, tenant, d.By)
	if sallyport.CodeOf(err) == sallyport.NotFound && err != nil || err == nil && (known.Name == "" || known.Name != d.By || known.Tenant != tenant) {
		return sallyport.Ticket{}, &sallyport.Error{Code: sallyport.Denied, Step: sallyport.Approve,
			Message: "only an admin decides tickets", Hint: "log in as an admin: sallyport login"}
	} else if err != nil {
		return sallyport.Ticket{}, err
	}
	d.Reason = strings.TrimSpace(d.Reason)
	if len(d.Reason) > MaxReason || !utf8.ValidString(d.Reason) {
		return sallyport.Ticket{}, invalid("", fmt.Sprintf("the reason must be text of at most %d bytes", MaxReason), "")
	}
	if err := e.looked(ctx, tenant, d); err != nil {
		return sallyport.Ticket{}, err
	}
	if err := e.signed(ctx, tenant, d); err != nil {
		return sallyport.Ticket{}, err
	}
	d.Groups, d.At = known.Groups, e.o.Clock()
	tk, err := e.store.Decide(ctx, tenant, d, e.o.RunWithin)
	e.announce() // also where it failed: the clock may have moved it
	if err == nil {
		event := Decided
		if tk.State == sallyport.TicketPending {
			event = Voted
		}
		e.tell(ctx, event, tk)
	}
	return tk, err
}

// signed refuses a decision whose signature is missing or wrong. A ticket that
// is closed has its own answer.
func (e *Engine) signed(ctx context.Context, tenant string, d sallyport.Decision) error {
	if e.o.Signatures == nil {
		if d.Passkey != "" || len(d.Signature) > 0 {
			return &sallyport.Error{Code: sallyport.Denied, Step: sallyport.Approve, Message: "nobody checks signatures here"}
		}
		return nil
	}
	tk, err := e.store.Ticket(ctx, tenant, d.Ticket)
	if err != nil || tk.State != sallyport.TicketPending {
		return err // the store says what is wrong
	}
	return e.o.Signatures.Check(ctx, tk, d)
}

// looked refuses an approval of what cannot have been seen: a ticket that is
// shown shortened has a word at the end of its full view.
func (e *Engine) looked(ctx context.Context, tenant string, d sallyport.Decision) error {
	if !d.Approve {
		return nil
	}
	tk, err := e.store.Ticket(ctx, tenant, d.Ticket)
	if err != nil || tk.State != sallyport.TicketPending {
		return err // the store says what is wrong
	}
	if NewView(tk, e.o.Clock()).Truncated && d.Seen != SeenWord(tk) {
		return invalid(tk.ID, "this ticket is too long to be shown whole, so an approval needs the word at the end of its full view",
			"read it with `sallyport approvals show --full "+tk.ID+"`, then approve with --seen WORD")
	}
	return nil
}

func invalid(ticket, message, hint string) error {
	return &sallyport.Error{Code: sallyport.Invalid, Step: sallyport.Approve, Ticket: ticket, Message: message, Hint: hint}
}

// tell tells the notifier, if there is one.
func (e *Engine) tell(ctx context.Context, event Event, t sallyport.Ticket) {
	if e.o.Notifier != nil {
		e.o.Notifier.Ticket(ctx, event, t)
	}
}

// Opened is told of each new ticket.
func (e *Engine) Opened(ctx context.Context, t sallyport.Ticket) { e.tell(ctx, Opened, t) }

// Withdraw takes a ticket back in the name of the principal who asked: a pending
// one is withdrawn, an approved one that has not run is void. Somebody else's
// ticket is as unknown as one that does not exist.
func (e *Engine) Withdraw(ctx context.Context, who sallyport.Principal, ticket, reason string) (sallyport.Ticket, error) {
	tk, err := e.store.Ticket(ctx, who.Tenant, ticket)
	if err == nil && tk.Binding.Principal != who.ID {
		err = &sallyport.Error{Code: sallyport.NotFound, Step: sallyport.Approve, Message: fmt.Sprintf("there is no ticket %.64q", ticket)}
	}
	if err != nil {
		return sallyport.Ticket{}, err
	}
	if tk.State == sallyport.TicketPending {
		tk, err = e.store.Withdraw(ctx, who.Tenant, ticket, who.ID, reason)
		e.announce()
		if err == nil {
			e.tell(ctx, Withdrawn, tk)
			return tk, nil
		}
		if tk.State != sallyport.TicketApproved { // somebody decided meanwhile
			return tk, err
		}
	}
	return e.void(ctx, who.Tenant, ticket, who.ID, reason)
}

// Void ends an approval that no longer holds. It is the gateway's word, on
// record with the reason.
func (e *Engine) Void(ctx context.Context, tenant, ticket, reason string) error {
	_, err := e.void(ctx, tenant, ticket, "gateway", reason)
	return err
}

func (e *Engine) void(ctx context.Context, tenant, ticket, by, reason string) (sallyport.Ticket, error) {
	tk, err := e.store.Void(ctx, tenant, ticket, by, reason)
	e.announce()
	if err == nil {
		e.tell(ctx, Voided, tk)
	}
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

// Announce wakes those who wait, to look again: a ticket may have been moved by
// another gateway.
func (e *Engine) Announce() { e.announce() }

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
	for _, tk := range tks {
		if tk.State == sallyport.TicketVoid {
			e.tell(ctx, Voided, tk)
		} else {
			e.tell(ctx, Decided, tk)
		}
	}
	return len(tks), err
}

// CallIn lets the groups of the escalation decide on tickets that have waited
// too long, and returns how many it was for.
func (e *Engine) CallIn(ctx context.Context) (int, error) {
	if e.o.Escalate.After <= 0 || len(e.o.Escalate.Groups) == 0 {
		return 0, nil
	}
	tks, err := e.store.Escalate(ctx, e.o.Clock().Add(-e.o.Escalate.After), e.o.Escalate.Groups)
	for _, tk := range tks {
		e.tell(ctx, Escalated, tk)
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
			_, late := e.Expire(ctx)
			_, silent := e.CallIn(ctx)
			if err := errors.Join(late, silent); err != nil && ctx.Err() == nil && report != nil {
				report(err)
			}
		}
	}
}
