package relational

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
	decided_by, decided_at, reason, trace, actor, demands, votes, unbound, about, escalated_at, escalated_to, void_reason, notes_saga FROM tickets`

func scanTicket(r scanner) (sallyport.Ticket, error) {
	var t sallyport.Ticket
	var binding, risk, policies, demands, votes, unbound, about, escalatedTo string
	var args []byte
	var created, decideBy, runBy, decided, escalated, notes int64
	if err := r.Scan(&t.ID, &t.CallID, &t.Key, &binding, &args, &t.Hash, &risk, &policies, &t.State,
		&created, &decideBy, &runBy, &t.DecidedBy, &decided, &t.Reason, &t.Trace,
		&t.Actor, &demands, &votes, &unbound, &about, &escalated, &escalatedTo, &t.VoidReason, &notes); err != nil {
		return t, err
	}
	for text, to := range map[*string]any{&binding: &t.Binding, &risk: &t.Risk, &policies: &t.Policies, &demands: &t.Demands, &votes: &t.Votes,
		&unbound: &t.Unbound, &about: &t.About, &escalatedTo: &t.EscalatedTo} {
		if err := json.Unmarshal([]byte(*text), to); err != nil {
			return t, fmt.Errorf("ticket %s is malformed: %w", t.ID, err)
		}
	}
	t.Binding.Args = json.RawMessage(args)
	t.CreatedAt, t.DecideBy, t.RunBy, t.DecidedAt = timeAt(created), timeAt(decideBy), timeAt(runBy), timeAt(decided)
	t.EscalatedAt, t.NotesSaga = timeAt(escalated), notes == 1
	return t, nil
}

func (t *txn) ticket(step sallyport.Step, tenant, id string) (sallyport.Ticket, error) {
	tk, err := scanTicket(t.Know(ticketFact(tenant, id)))
	if errors.Is(err, sql.ErrNoRows) {
		err = noTicket(step, id)
	}
	if err == nil {
		err = t.s.openTicket(&tk)
	}
	return tk, err
}

func noTicket(step sallyport.Step, id string) error {
	return notFound(step, fmt.Sprintf("there is no ticket %.64q", id))
}

func (t *txn) insertTicket(tk sallyport.Ticket) error {
	tk, err := t.s.sealTicket(tk)
	if err != nil {
		return err
	}
	b := tk.Binding
	b.Args = nil // kept apart: encoding/json would not leave its bytes alone
	texts := make([]any, 0, 8)
	for _, v := range []any{b, tk.Risk, tk.Policies, orEmpty(tk.Demands), orEmpty(tk.Unbound), tk.About} {
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		texts = append(texts, string(text))
	}
	notes := 0
	if tk.NotesSaga {
		notes = 1
	}
	return t.Alter([]any{ticketName{b.Tenant, tk.ID}, openName{b.Tenant, b.Principal}}, 1, `INSERT INTO tickets (tenant, id, call_id, key, principal, tool, args, hash, state, created_at, decide_by, trace, actor, updated_at,
			notes_saga, binding, risk, policies, demands, unbound, about) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		append([]any{b.Tenant, tk.ID, tk.CallID, tk.Key, b.Principal, b.Tool, []byte(tk.Binding.Args), tk.Hash, string(tk.State),
			nanos(tk.CreatedAt), nanos(tk.DecideBy), tk.Trace, tk.Actor, nanos(t.now), notes}, texts...)...)
}

func orEmpty[T any](s []T) []T { return append([]T{}, s...) }

// moveTicket changes a ticket's state by compare-and-set, with what the caller
// set in it (RunBy, DecidedBy, DecidedAt, Reason, Votes, VoidReason), and logs
// it. by and why are for the log.
func (t *txn) moveTicket(tk *sallyport.Ticket, to sallyport.TicketState, by, why string) error {
	from := tk.State
	votes, err := json.Marshal(orEmpty(tk.Votes))
	if err != nil {
		return err
	}
	b := tk.Binding
	err = t.Alter([]any{ticketName{b.Tenant, tk.ID}, openName{b.Tenant, b.Principal}}, 1, `UPDATE tickets SET state = ?, run_by = ?, decided_by = ?, decided_at = ?, reason = ?, votes = ?, void_reason = ?, updated_at = ?
		WHERE tenant = ? AND id = ? AND state = ?`,
		string(to), nanos(tk.RunBy), tk.DecidedBy, nanos(tk.DecidedAt), tk.Reason, string(votes), tk.VoidReason, nanos(t.now), b.Tenant, tk.ID, string(from))
	if err != nil {
		return err
	}
	tk.State = to
	t.Moved()
	kind := sallyport.EntryDecision
	switch to {
	case sallyport.TicketConsumed:
		return nil // the intent tells
	case sallyport.TicketWithdrawn:
		kind = sallyport.EntryTicket
	default:
	}
	m := movement{By: by, Reason: why, From: from, RunBy: tk.RunBy}
	if n := len(tk.Votes); n > 0 && to != sallyport.TicketVoid && tk.Votes[n-1].At.Equal(t.now) {
		m.Vote = &tk.Votes[n-1]
	}
	return t.tell(kind, *tk, m)
}

// tell logs what happened to a ticket.
func (t *txn) tell(kind sallyport.EntryKind, tk sallyport.Ticket, m movement) error {
	m.Ticket, m.Hash, m.To, m.Principal, m.Target = tk.ID, tk.Hash, tk.State, tk.Binding.Principal, tk.Binding.Tool
	e, err := audit.NewEntry(tk.Binding.Tenant, kind, tk.CallID, m)
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

	Vote        *sallyport.Vote `json:"vote,omitempty"`         // that was cast
	Needs       []string        `json:"needs,omitempty"`        // what is still demanded after it
	EscalatedTo []string        `json:"escalated_to,omitempty"` // groups that may decide, too, from now on
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
		return t.void(tk, byClock, "approved, but not run in time")
	}
}

// Ticket returns a ticket of the tenant; see gateway.Ledger.
func (s *Store) Ticket(ctx context.Context, tenant, id string) (sallyport.Ticket, error) {
	tk, err := scanTicket(s.row(ctx, "SELECT "+ticketColumns+" WHERE tenant = ? AND id = ?", tenant, id))
	if errors.Is(err, sql.ErrNoRows) {
		return tk, noTicket(sallyport.Approve, id)
	}
	if err == nil {
		err = s.openTicket(&tk)
	}
	if err != nil || s.ReadOnly() || due(tk, s.clock()) == tk.State {
		return tk, s.storeError(sallyport.Approve, err)
	}
	err = s.update(ctx, sallyport.Approve, func(t *txn) error {
		if tk, err = t.ticket(sallyport.Approve, tenant, id); err != nil {
			return err
		}
		return t.age(&tk, t.now)
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
	return s.moveFrom(ctx, tenant, id, sallyport.TicketPending, func(t *txn, tk *sallyport.Ticket) error {
		return t.decide(tk, sallyport.TicketWithdrawn, by, reason)
	})
}

// moveFrom moves a ticket that is in a state by now; code Conflict if it is in
// another.
func (s *Store) moveFrom(ctx context.Context, tenant, id string, from sallyport.TicketState, move func(*txn, *sallyport.Ticket) error) (sallyport.Ticket, error) {
	var tk sallyport.Ticket
	err := s.update(ctx, sallyport.Approve, func(t *txn) error {
		var err error
		if tk, err = t.ticket(sallyport.Approve, tenant, id); err != nil {
			return err
		}
		if err := t.age(&tk, t.now); err != nil {
			return err
		}
		if tk.State != from {
			return kept{closedTicket(sallyport.Approve, tk)}
		}
		return move(t, &tk)
	})
	return tk, err
}

// Expire notes every ticket whose time has passed at now, and returns them.
func (s *Store) Expire(ctx context.Context, now time.Time) ([]sallyport.Ticket, error) {
	const overdue = `(state = 'pending' AND decide_by <= ? OR state = 'approved' AND run_by <= ?)`
	var n int
	err := s.row(ctx, "SELECT count(*) FROM tickets WHERE "+overdue, nanos(now), nanos(now)).Scan(&n)
	if err != nil || n == 0 {
		return nil, s.storeError(sallyport.Approve, err) // no write lock taken for nothing
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
	if err == nil {
		err = s.openTickets(out)
	}
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
	if err == nil {
		err = s.openTickets(out)
	}
	return out, s.storeError(sallyport.Approve, err)
}
