package relational

import (
	"errors"
	"fmt"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/store"
)

// SetTicketRules bounds what may be asked of humans. It must be called before
// the store is shared.
func (s *Store) SetTicketRules(r store.TicketRules) { s.rules = r }

// admit reports why a question must not be put to a human now: something
// similar was rejected a moment ago, or too many wait already. It decides in
// the transaction that opens the ticket.
func (t *txn) admit(tk sallyport.Ticket) error {
	refused, err := t.rejectedLately(tk.Binding.Tenant, tk.Binding.Principal)
	if err != nil {
		return err
	}
	for _, old := range refused {
		if what := store.Similar(old, tk); what != "" {
			return t.tooSoon(sallyport.Approve, old, what)
		}
	}
	if err := t.bound(t.s.rules.PerAgent, "agent "+tk.Binding.Principal, "tenant = ? AND principal = ?", tk.Binding.Tenant, tk.Binding.Principal); err != nil {
		return err
	}
	if err := t.fickle(tk.Binding); err != nil {
		return err
	}
	return t.bound(t.s.rules.PerTenant, "tenant", "tenant = ?", tk.Binding.Tenant)
}

// fickle bounds questions that are asked and taken back: each has told humans of
// itself, and none waits any more.
func (t *txn) fickle(b sallyport.Binding) error {
	const per = time.Minute
	var n int
	err := t.row("SELECT count(*) FROM tickets WHERE tenant = ? AND principal = ? AND state = 'withdrawn' AND decided_at > ?",
		b.Tenant, b.Principal, nanos(t.now.Add(-per))).Scan(&n)
	if most := t.s.rules.PerAgent; err != nil || most <= 0 || n < most {
		return err
	}
	return &sallyport.Error{Code: sallyport.RateLimited, Step: sallyport.Approve, RetryAfter: per,
		Message: fmt.Sprintf("agent %s has taken back %d questions within a minute", b.Principal, n),
		Hint:    "wait, and ask only for what is wanted; a call with an idempotency key keeps its ticket when the connection ends"}
}

// cooled reports why a call that needs no human must not run now: it would do
// something to what a human has just refused to have touched.
func (t *txn) cooled(b gateway.Begin) error {
	if !b.Risk.Mutating() {
		return nil
	}
	refused, err := t.rejectedLately(b.Key.Tenant, b.Key.Principal)
	if err != nil {
		return err
	}
	for _, old := range refused {
		if o := store.SharedObject(old.Risk, b.Risk); o != "" {
			return t.tooSoon(sallyport.Execute, old, o)
		}
	}
	return nil
}

func (t *txn) rejectedLately(tenant, principal string) ([]sallyport.Ticket, error) {
	if t.s.rules.Cooldown <= 0 {
		return nil, nil
	}
	rows, err := t.rows("SELECT "+ticketColumns+" WHERE tenant = ? AND principal = ? AND state = 'rejected' AND decided_at > ? ORDER BY decided_at DESC LIMIT 100",
		tenant, principal, nanos(t.now.Add(-t.s.rules.Cooldown)))
	if err != nil {
		return nil, err
	}
	out, err := scanAll(rows, scanTicket)
	return out, errors.Join(err, t.s.openTickets(out))
}

func (t *txn) tooSoon(step sallyport.Step, old sallyport.Ticket, what string) error {
	wait := old.DecidedAt.Add(t.s.rules.Cooldown).Sub(t.now)
	return &sallyport.Error{Code: sallyport.Rejected, Step: step, RetryAfter: max(time.Second, wait),
		Message: fmt.Sprintf("a human has just rejected a similar call (ticket %s): %s", old.ID, what),
		Hint:    "do not try the same in another form; ask the approver, or wait " + wait.Round(time.Second).String()}
}

func (t *txn) bound(most int, whose, where string, args ...any) error {
	if most <= 0 {
		return nil
	}
	var n int
	if err := t.row("SELECT count(*) FROM tickets WHERE "+where+" AND state = 'pending' AND decide_by > ?", append(args, nanos(t.now))...).Scan(&n); err != nil || n < most {
		return err
	}
	return &sallyport.Error{Code: sallyport.RateLimited, Step: sallyport.Approve, RetryAfter: time.Minute,
		Message: fmt.Sprintf("%d calls of this %s wait for a human already", n, whose),
		Hint:    "wait until some are decided; cancel those that are no longer needed"}
}
