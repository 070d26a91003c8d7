package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/store"
)

const ticketColumns = `id, call_id, key, binding, args, hash, risk, policies, state, created_at, decide_by, run_by,
	decided_by, decided_at, reason, trace FROM tickets`

func scanTicket(r scanner) (sallyport.Ticket, error) {
	var t sallyport.Ticket
	var binding, risk, policies string
	var args []byte
	var created, decideBy, runBy, decided int64
	if err := r.Scan(&t.ID, &t.CallID, &t.Key, &binding, &args, &t.Hash, &risk, &policies, &t.State,
		&created, &decideBy, &runBy, &t.DecidedBy, &decided, &t.Reason, &t.Trace); err != nil {
		return t, err
	}
	if err := errors.Join(json.Unmarshal([]byte(binding), &t.Binding), json.Unmarshal([]byte(risk), &t.Risk),
		json.Unmarshal([]byte(policies), &t.Policies)); err != nil {
		return t, fmt.Errorf("ticket %s is malformed: %w", t.ID, err)
	}
	t.Binding.Args = json.RawMessage(args)
	t.CreatedAt, t.DecideBy, t.RunBy, t.DecidedAt = timeAt(created), timeAt(decideBy), timeAt(runBy), timeAt(decided)
	return t, nil
}

func (t *txn) ticket(step sallyport.Step, tenant, id string) (sallyport.Ticket, error) {
	tk, err := scanTicket(t.row("SELECT "+ticketColumns+" WHERE tenant = ? AND id = ?", tenant, id))
	if errors.Is(err, sql.ErrNoRows) {
		err = noTicket(step, id)
	}
	return tk, err
}

func noTicket(step sallyport.Step, id string) error {
	return notFound(step, fmt.Sprintf("there is no ticket %.64q", id))
}

func (t *txn) insertTicket(tk sallyport.Ticket) error {
	b := tk.Binding
	b.Args = nil // kept apart: encoding/json would not leave its bytes alone
	binding, err1 := json.Marshal(b)
	risk, err2 := json.Marshal(tk.Risk)
	policies, err3 := json.Marshal(tk.Policies)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	_, err := t.exec(`INSERT INTO tickets (tenant, id, call_id, key, principal, tool, binding, args, hash, risk, policies, state,
			created_at, decide_by, trace, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		b.Tenant, tk.ID, tk.CallID, tk.Key, b.Principal, b.Tool, string(binding), []byte(tk.Binding.Args), tk.Hash, string(risk),
		string(policies), string(tk.State), nanos(tk.CreatedAt), nanos(tk.DecideBy), tk.Trace, nanos(t.now))
	return err
}

// moveTicket changes a ticket's state by compare-and-set, with what the caller
// set in it (RunBy, DecidedBy, DecidedAt, Reason), and logs it. by and why are
// for the log.
func (t *txn) moveTicket(tk *sallyport.Ticket, to sallyport.TicketState, by, why string) error {
	from := tk.State
	n, err := t.exec(`UPDATE tickets SET state = ?, run_by = ?, decided_by = ?, decided_at = ?, reason = ?, updated_at = ?
		WHERE tenant = ? AND id = ? AND state = ?`,
		string(to), nanos(tk.RunBy), tk.DecidedBy, nanos(tk.DecidedAt), tk.Reason, nanos(t.now), tk.Binding.Tenant, tk.ID, string(from))
	if err != nil {
		return err
	}
	if n != 1 {
		return fmt.Errorf("ticket %s is no longer %s", tk.ID, from)
	}
	tk.State = to
	kind := sallyport.EntryDecision
	switch to {
	case sallyport.TicketConsumed:
		return nil // the intent tells
	case sallyport.TicketWithdrawn:
		kind = sallyport.EntryTicket
	default:
	}
	e, err := audit.NewEntry(tk.Binding.Tenant, kind, tk.CallID, movement{
		Ticket: tk.ID, Hash: tk.Hash, From: from, To: to, By: by, Reason: why,
		Principal: tk.Binding.Principal, Target: tk.Binding.Tool, RunBy: tk.RunBy})
	t.log(e)
	return err
}

// decide closes a pending ticket.
func (t *txn) decide(tk *sallyport.Ticket, to sallyport.TicketState, by, why string) error {
	tk.DecidedAt, tk.DecidedBy, tk.Reason = t.now, by, why
	return t.moveTicket(tk, to, by, why)
}

// A movement is the payload of the entry that tells of a ticket.
type movement struct {
	Ticket    string                `json:"ticket"`
	Hash      string                `json:"hash"`
	From      sallyport.TicketState `json:"from"`
	To        sallyport.TicketState `json:"to"`
	By        string                `json:"by"` // admin, principal, or "clock"
	Reason    string                `json:"reason,omitempty"`
	Principal string                `json:"principal"`
	Target    string                `json:"target"`
	RunBy     time.Time             `json:"run_by,omitzero"`
}

// byClock decides for whoever came too late.
const byClock = "clock"

// due returns the state that time has brought a ticket to.
func due(tk sallyport.Ticket, now time.Time) sallyport.TicketState {
	switch {
	case tk.State == sallyport.TicketPending && !now.Before(tk.DecideBy):
		return sallyport.TicketExpired
	case tk.State == sallyport.TicketApproved && !now.Before(tk.RunBy):
		return sallyport.TicketVoid
	}
	return tk.State
}

// age notes that a ticket's time has passed.
func (t *txn) age(tk *sallyport.Ticket, now time.Time) error {
	switch due(*tk, now) {
	case tk.State:
		return nil
	case sallyport.TicketExpired:
		return t.decide(tk, sallyport.TicketExpired, byClock, "nobody decided in time")
	default:
		return t.moveTicket(tk, sallyport.TicketVoid, byClock, "approved, but not run in time")
	}
}

// Ticket returns a ticket of the tenant; see gateway.Ledger.
func (s *Store) Ticket(ctx context.Context, tenant, id string) (sallyport.Ticket, error) {
	tk, err := scanTicket(s.row(ctx, "SELECT "+ticketColumns+" WHERE tenant = ? AND id = ?", tenant, id))
	if errors.Is(err, sql.ErrNoRows) {
		return tk, noTicket(sallyport.Approve, id)
	}
	if err != nil || s.seal == nil || due(tk, s.clock()) == tk.State {
		return tk, storeError(sallyport.Approve, err)
	}
	err = s.update(ctx, sallyport.Approve, func(t *txn) error {
		if tk, err = t.ticket(sallyport.Approve, tenant, id); err != nil {
			return err
		}
		return t.age(&tk, t.now)
	})
	return tk, err
}

// Decide makes a pending ticket approved or rejected; once. run is how long an
// approval waits for its execution, 0 = the store's default. Codes: NotFound,
// and Conflict with the final state if the ticket is no longer pending.
func (s *Store) Decide(ctx context.Context, tenant string, d sallyport.Decision, run time.Duration) (sallyport.Ticket, error) {
	var tk sallyport.Ticket
	err := s.update(ctx, sallyport.Approve, func(t *txn) error {
		var err error
		if tk, err = t.ticket(sallyport.Approve, tenant, d.Ticket); err != nil {
			return err
		}
		if err := t.age(&tk, t.now); err != nil {
			return err
		}
		if tk.State != sallyport.TicketPending {
			return kept{closedTicket(sallyport.Approve, tk)}
		}
		if !d.Approve {
			return t.decide(&tk, sallyport.TicketRejected, d.By, d.Reason)
		}
		if run <= 0 {
			run = s.runWithin
		}
		tk.RunBy = t.now.Add(run)
		return t.decide(&tk, sallyport.TicketApproved, d.By, d.Reason)
	})
	return tk, err
}

func closedTicket(step sallyport.Step, tk sallyport.Ticket) error {
	msg := fmt.Sprintf("ticket %s is already %s", tk.ID, tk.State)
	if tk.DecidedBy != "" {
		msg += " (by " + tk.DecidedBy + ")"
	}
	return &sallyport.Error{Code: sallyport.Conflict, Step: step, Message: msg, Ticket: tk.ID}
}

// Withdraw takes a pending ticket back, in the name of who asked for it.
func (s *Store) Withdraw(ctx context.Context, tenant, id, by, reason string) (sallyport.Ticket, error) {
	var tk sallyport.Ticket
	err := s.update(ctx, sallyport.Approve, func(t *txn) error {
		var err error
		if tk, err = t.ticket(sallyport.Approve, tenant, id); err != nil {
			return err
		}
		if err := t.age(&tk, t.now); err != nil {
			return err
		}
		if tk.State != sallyport.TicketPending {
			return kept{closedTicket(sallyport.Approve, tk)}
		}
		return t.decide(&tk, sallyport.TicketWithdrawn, by, reason)
	})
	return tk, err
}

// Expire notes every ticket whose time has passed at now, and returns them.
func (s *Store) Expire(ctx context.Context, now time.Time) ([]sallyport.Ticket, error) {
	const overdue = `(state = 'pending' AND decide_by <= ? OR state = 'approved' AND run_by <= ?)`
	var n int
	err := s.row(ctx, "SELECT count(*) FROM tickets WHERE "+overdue, nanos(now), nanos(now)).Scan(&n)
	if err != nil || n == 0 {
		return nil, storeError(sallyport.Approve, err) // no write lock taken for nothing
	}
	var out []sallyport.Ticket
	err = s.update(ctx, sallyport.Approve, func(t *txn) error {
		rows, err := t.rows("SELECT "+ticketColumns+" WHERE "+overdue+" LIMIT 1000", nanos(now), nanos(now))
		if err != nil {
			return err
		}
		if out, err = scanAll(rows, scanTicket); err != nil {
			return err
		}
		for i := range out {
			if err := t.age(&out[i], now); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// ListTickets returns the tickets that match, newest first.
func (s *Store) ListTickets(ctx context.Context, f store.TicketFilter) ([]sallyport.Ticket, error) {
	var w where
	w.eq("tenant", f.Tenant)
	w.eq("principal", f.Principal)
	w.eq("tool", f.Tool)
	w.in("state", states(f.States))
	out, err := list(ctx, s, scanTicket, "SELECT "+ticketColumns+w.sql()+" ORDER BY created_at DESC, id LIMIT ?", append(w.args, limit(f.Limit))...)
	return out, storeError(sallyport.Approve, err)
}
