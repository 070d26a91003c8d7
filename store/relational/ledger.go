package relational

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/failpoint"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/store/transact"
)

// defaultLease is the lease of a Begin that names none.
const defaultLease = 10 * time.Minute

// Find returns the reservation of a key; see gateway.Ledger.
func (s *Store) Find(ctx context.Context, key sallyport.ReservationKey) (*sallyport.Reservation, error) {
	r, err := scanReservation(s.row(ctx, selectReservation, key.Tenant, key.Principal, key.Tool, key.Key))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, s.storeError(sallyport.Reserve, err)
	}
	if err := s.openReservation(&r); err != nil {
		return nil, err
	}
	if leaseOut(r, s.clock()) {
		r.State = sallyport.Unknown
	}
	return &r, nil
}

func leaseOut(r sallyport.Reservation, now time.Time) bool {
	return r.State == sallyport.Executing && !now.Before(r.Lease)
}

// Open stores a ticket and its reservation; see gateway.Ledger. A ticket that
// the key has had and that is closed (rejected, expired, withdrawn, void) is
// returned as it is: a new question needs a new key. After an execution that is
// known to have failed, the key gets a new ticket. An empty ID and a zero
// CreatedAt or DecideBy are filled in.
func (s *Store) Open(ctx context.Context, tk sallyport.Ticket, key sallyport.ReservationKey, fingerprint string, e sallyport.Entry) (sallyport.Ticket, error) {
	if b := tk.Binding; b.Tenant != key.Tenant || b.Principal != key.Principal || b.Tool != key.Tool || tk.Key != key.Key || b.Hash() != tk.Hash {
		return tk, &sallyport.Error{Code: sallyport.Internal, Step: sallyport.Approve, Message: "the ticket does not fit its reservation"}
	}
	if tk.ID == "" {
		tk.ID = "tkt_" + rand.Text()
	}
	var out sallyport.Ticket
	err := s.update(ctx, sallyport.Approve, func(t *txn) error {
		if err := s.Healthy(); err != nil {
			return err
		}
		r, err := t.reservation(key)
		if err != nil {
			return err
		}
		if r != nil {
			if err := t.blocked(sallyport.Approve, r, fingerprint); err != nil {
				return err
			}
			if r.State == sallyport.AwaitingApproval {
				out, err = t.waiting(r, tk.Hash)
				return err
			}
		}
		open, err := t.room(sallyport.Approve, key)
		if err != nil {
			return err
		}
		if err := t.admit(tk); err != nil {
			return err
		}
		if out, err = t.open(tk); err != nil {
			return err
		}
		t.log(e)
		err = t.putReservation(sallyport.Reservation{ReservationKey: key, Fingerprint: fingerprint, State: sallyport.AwaitingApproval,
			CallID: tk.CallID, Ticket: tk.ID, Fence: fenceOf(r)})
		if r == nil || r.State == sallyport.Failed {
			t.Learn(openOf(key), int64(open+1))
		}
		return err
	}, reservationFact(key), s.openFact(key))
	return out, reached(failpoint.Opened, err)
}

func (t *txn) open(tk sallyport.Ticket) (sallyport.Ticket, error) {
	if tk.CreatedAt.IsZero() {
		tk.CreatedAt = t.now
	}
	if tk.DecideBy.IsZero() {
		tk.DecideBy = t.now.Add(t.s.decideWithin)
	}
	tk.State, tk.RunBy, tk.DecidedBy, tk.DecidedAt, tk.Reason = sallyport.TicketPending, time.Time{}, "", time.Time{}, ""
	tk.Votes, tk.EscalatedAt, tk.EscalatedTo, tk.VoidReason = nil, time.Time{}, nil, ""
	return tk, t.insertTicket(tk)
}

// waiting returns the ticket that a key already has.
func (t *txn) waiting(r *sallyport.Reservation, hash string) (sallyport.Ticket, error) {
	tk, err := t.ticket(sallyport.Approve, r.Tenant, r.Ticket)
	if err != nil {
		return tk, err
	}
	if err := t.age(&tk, t.now); err != nil {
		return tk, err
	}
	open := tk.State == sallyport.TicketPending || tk.State == sallyport.TicketApproved
	if open && tk.Hash != hash {
		return tk, kept{&sallyport.Error{Code: sallyport.Conflict, Step: sallyport.Approve, Ticket: tk.ID,
			Message: fmt.Sprintf("ticket %s was opened for this key when the tool, its endpoint or its grants were others", tk.ID),
			Hint:    "use a new idempotency key to ask again"}}
	}
	return tk, nil
}

// blocked reports why a key cannot be taken, or nil if it is reserved, awaiting
// approval or failed.
func (t *txn) blocked(step sallyport.Step, r *sallyport.Reservation, fingerprint string) error {
	fail := func(code sallyport.Code, msg, hint string, retry time.Duration) error {
		return &sallyport.Error{Code: code, Step: step, Message: msg, Hint: hint, RetryAfter: retry, Ticket: r.Ticket}
	}
	if r.Fingerprint != fingerprint {
		return fail(sallyport.Conflict, "this idempotency key was used with other arguments", "use a new key for a new request", 0)
	}
	if leaseOut(*r, t.now) {
		r.State = sallyport.Unknown
		if err := t.putReservation(*r); err != nil {
			return err
		}
		if err := t.logUnknown(*r, "its lease ran out"); err != nil {
			return err
		}
		return kept{fail(sallyport.OutcomeUnknown, unknownMessage, unknownHint, 0)}
	}
	switch r.State {
	case sallyport.Reserved, sallyport.AwaitingApproval, sallyport.Failed:
		return nil
	case sallyport.Executing:
		return fail(sallyport.InFlight, "a call with this key is still running", "look again for its result",
			max(100*time.Millisecond, min(time.Second, r.Lease.Sub(t.now))))
	case sallyport.Done:
		return fail(sallyport.InFlight, "a call with this key is done", "look again for its result", 0)
	case sallyport.Unknown:
		return fail(sallyport.OutcomeUnknown, unknownMessage, unknownHint, 0)
	}
	return fail(sallyport.Internal, fmt.Sprintf("the reservation is in a state %q that this program does not know", r.State), "", 0)
}

const (
	unknownMessage = "an earlier call with this key may have acted; nobody knows"
	unknownHint    = "an operator looks at the target and settles it: sallyport reservations resolve"
)

// Begin is the transaction before an execution; see gateway.Ledger. While
// Unchanged runs, the store's write lock is held: it must not call the store.
func (s *Store) Begin(ctx context.Context, b gateway.Begin) (int64, error) {
	var fence int64
	var changed error
	err := s.update(ctx, sallyport.Execute, func(t *txn) error {
		changed = nil
		if err := s.Healthy(); err != nil {
			return err
		}
		if err := t.stopped(b.Key.Tenant, b.Key.Principal); err != nil {
			return err
		}
		r, err := t.reservation(b.Key)
		if err != nil {
			return err
		}
		open, opens := 0, r == nil || r.State == sallyport.Failed
		if r != nil {
			if b.Repeats && (r.State == sallyport.Unknown || leaseOut(*r, t.now)) {
				r.State = sallyport.Failed // its fence keeps out whoever had it
			}
			if err := t.blocked(sallyport.Execute, r, b.Fingerprint); err != nil {
				return err
			}
		}
		if b.Ticket != "" {
			err = t.consume(b)
		} else if r != nil && r.State == sallyport.AwaitingApproval {
			err = t.unneeded(r)
		} else {
			err = t.cooled(b)
		}
		if err != nil {
			return err
		}
		if b.Plan != "" {
			if err := t.covers(b); err != nil {
				return err
			}
		}
		if b.Unchanged != nil {
			if changed = b.Unchanged(); changed != nil {
				return changed
			}
		}
		if opens {
			if open, err = t.room(sallyport.Execute, b.Key); err != nil {
				return err
			}
		}
		if err := t.bounds(b); err != nil {
			return err
		}
		if b.Joins != nil {
			if err := t.joinSaga(b.Key.Tenant, b.Key.Principal, b.Saga, *b.Joins); err != nil {
				return err
			}
		}
		fence = fenceOf(r) + 1
		lease := b.Lease
		if lease <= 0 {
			lease = defaultLease
		}
		t.log(b.Intent)
		err = t.putReservation(sallyport.Reservation{ReservationKey: b.Key, Fingerprint: b.Fingerprint, State: sallyport.Executing,
			CallID: b.CallID, Ticket: cmp.Or(b.Ticket, b.Plan), Fence: fence, Lease: t.now.Add(lease), Writer: s.writer})
		if opens {
			t.Learn(openOf(b.Key), int64(open+1))
		}
		return err
	}, s.beginFacts(b)...)
	if changed != nil {
		return 0, changed
	}
	if err != nil {
		return 0, err
	}
	failpoint.Hit(failpoint.Begun)
	return fence, nil
}

// beginFacts are what Begin reads of most calls.
func (s *Store) beginFacts(b gateway.Begin) []transact.Fact {
	facts := []transact.Fact{reservationFact(b.Key)}
	if b.Ticket != "" {
		return append(facts, ticketFact(b.Key.Tenant, b.Ticket))
	}
	return append(facts, s.openFact(b.Key))
}

func fenceOf(r *sallyport.Reservation) int64 {
	if r == nil {
		return 0
	}
	return r.Fence
}

// consume spends an approved ticket on one execution.
func (t *txn) consume(b gateway.Begin) error {
	tk, err := t.ticket(sallyport.Execute, b.Key.Tenant, b.Ticket)
	if err != nil {
		return err
	}
	if tk.Binding.Principal != b.Key.Principal {
		return noTicket(sallyport.Execute, b.Ticket) // not yours and unknown are the same
	}
	if err := t.age(&tk, t.now); err != nil {
		return err
	}
	fail := func(code sallyport.Code, msg, hint string) error {
		return kept{&sallyport.Error{Code: code, Step: sallyport.Execute, Message: msg, Hint: hint, Ticket: tk.ID}}
	}
	if tk.Binding.Tool != b.Key.Tool || tk.Key != b.Key.Key {
		return fail(sallyport.Conflict, fmt.Sprintf("ticket %s belongs to another call", tk.ID), "an approval holds for one call only; ask again")
	}
	switch tk.State {
	case sallyport.TicketApproved:
	case sallyport.TicketPending:
		return fail(sallyport.Pending, fmt.Sprintf("ticket %s waits for a human", tk.ID), "look again later with the same ticket")
	case sallyport.TicketConsumed:
		return fail(sallyport.Conflict, fmt.Sprintf("ticket %s was used already", tk.ID), "one approval is for one execution; ask again")
	default:
		return fail(sallyport.Rejected, fmt.Sprintf("ticket %s is %s", tk.ID, tk.State), "use a new idempotency key to ask again")
	}
	if tk.Hash != b.TicketHash || tk.Binding.Hash() != tk.Hash {
		return fail(sallyport.Conflict, fmt.Sprintf("what ticket %s approved is not what would run now", tk.ID),
			"the arguments, the tool, its endpoint or its grants changed; ask again")
	}
	if err := t.stands(&tk, b.Demands); err != nil {
		return err
	}
	return t.moveTicket(&tk, sallyport.TicketConsumed, "", "")
}

// unneeded judges a call that needs no approval, under a key whose ticket is
// open or refused: a policy that has become looser answers no question that was
// put to a human. What nobody will answer any more stands in nobody's way.
func (t *txn) unneeded(r *sallyport.Reservation) error {
	tk, err := t.ticket(sallyport.Execute, r.Tenant, r.Ticket)
	if err != nil {
		return err
	}
	if err := t.age(&tk, t.now); err != nil {
		return err
	}
	fail := func(code sallyport.Code, hint string) error {
		return kept{&sallyport.Error{Code: code, Step: sallyport.Execute, Ticket: tk.ID, Message: fmt.Sprintf("ticket %s is %s", tk.ID, tk.State), Hint: hint}}
	}
	switch tk.State {
	case sallyport.TicketPending:
		return fail(sallyport.Pending, "a human was asked and has not answered; a new call is judged by today's policies")
	case sallyport.TicketApproved:
		return fail(sallyport.Conflict, "call again with the ticket")
	case sallyport.TicketRejected, sallyport.TicketExpired:
		return fail(sallyport.Rejected, "use a new idempotency key to ask again")
	case sallyport.TicketWithdrawn, sallyport.TicketConsumed, sallyport.TicketVoid: // over already
	}
	return nil
}

// Finish stores the outcome; see gateway.Ledger. It does not end with ctx: an
// outcome that is known must not be lost because the caller has gone. Of a call
// that outlived its lease, only that it came back is noted: everybody was told
// that its outcome is unknown, and it may no longer be the only one who acts.
func (s *Store) Finish(ctx context.Context, f gateway.Finish) error {
	if f.State != sallyport.Done && f.State != sallyport.Failed && f.State != sallyport.Unknown {
		return &sallyport.Error{Code: sallyport.Internal, Step: sallyport.Execute, Message: fmt.Sprintf("%q is not an outcome", f.State)}
	}
	failpoint.Hit(failpoint.Finish)
	return reached(failpoint.Finished, s.insist(context.WithoutCancel(ctx), sallyport.Execute, func(t *txn, again bool) error {
		r, err := t.reservation(f.Key)
		if err != nil {
			return err
		}
		switch {
		case again && r != nil && r.Fence == f.Fence && r.Writer == s.writer && r.State == f.State:
			return nil // an earlier try did it after all
		case r == nil || r.Fence != f.Fence || r.Writer != s.writer || r.State != sallyport.Executing && r.State != sallyport.Unknown:
			return &sallyport.Error{Code: sallyport.Conflict, Step: sallyport.Execute,
				Message: "this call no longer owns its key, so its outcome was not stored"}
		case r.State == sallyport.Unknown || leaseOut(*r, t.now):
			return t.tooLate(*r, f.State)
		}
		r.State, r.IsError, r.Output, r.Reason = f.State, f.IsError, nil, nil
		if f.State == sallyport.Done {
			r.Output = f.Output
			if len(f.Output) > maxOutput {
				r.Output = tooLargeToKeep(len(f.Output), f.IsError)
			}
			r.Output = s.seal(outputRow, r.ReservationKey, r.Output)
			err = t.keep(r)
		} else if f.State == sallyport.Failed {
			r.Reason = s.seal(reasonRow, r.ReservationKey, f.Reason)
			err = t.refund(*r)
		}
		if err != nil {
			return err
		}
		t.log(f.Outcome)
		open, _ := t.Known(openOf(f.Key))
		if err := t.putReservation(*r); err != nil || r.State == sallyport.Unknown {
			return err
		}
		return t.closed(f.Key, open)
	}, reservationFact(f.Key), keptFact(f.Key.Tenant, f.Key.Principal)))
}

// tooLate refuses the outcome of a call whose lease has run out. What it says
// is on record, for whoever resolves it.
func (t *txn) tooLate(r sallyport.Reservation, said sallyport.ReservationState) error {
	if r.State != sallyport.Unknown {
		r.State = sallyport.Unknown
		if err := t.putReservation(r); err != nil {
			return err
		}
	}
	if err := t.logUnknown(r, fmt.Sprintf("its lease ran out before it ended; afterwards it said that it is %s", said)); err != nil {
		return err
	}
	return kept{&sallyport.Error{Code: sallyport.Conflict, Step: sallyport.Execute,
		Message: "the call's lease ran out before it ended, so its outcome was not stored", Hint: unknownHint}}
}
