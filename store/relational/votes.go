package relational

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/failpoint"
	"sallyport.dev/sallyport/gateway"
)

// Decide counts one admin's word on a pending ticket; see approval.Mover. run
// is how long an approval waits for its execution, 0 = the store's default; it
// counts from the vote that decides.
func (s *Store) Decide(ctx context.Context, tenant string, d sallyport.Decision, run time.Duration) (sallyport.Ticket, error) {
	if run <= 0 {
		run = s.runWithin
	}
	failpoint.Hit(failpoint.Decide)
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
		if err := mayVote(tk, d); err != nil {
			return err
		}
		tk.Votes = append(tk.Votes, sallyport.Vote{By: d.By, Groups: d.Groups, Approve: d.Approve, Reason: d.Reason, At: t.now,
			Door: d.Door, Passkey: d.Passkey, Signature: d.Signature})
		if !d.Approve {
			return t.decide(&tk, sallyport.TicketRejected, d.By, d.Reason)
		}
		if unmet := sallyport.Unmet(tk.Widened(tk.Demands), tk.Votes); len(unmet) > 0 {
			return t.putVote(tk, unmet)
		}
		tk.RunBy = t.now.Add(run)
		return t.decide(&tk, sallyport.TicketApproved, d.By, d.Reason)
	}, ticketFact(tenant, d.Ticket))
	return tk, reached(failpoint.Decided, err)
}

// mayVote reports why an admin's word does not count.
func mayVote(tk sallyport.Ticket, d sallyport.Decision) error {
	fail := func(code sallyport.Code, msg, hint string) error {
		return &sallyport.Error{Code: code, Step: sallyport.Approve, Ticket: tk.ID, Message: msg, Hint: hint}
	}
	if tk.StandsBehind(d.By) {
		return fail(sallyport.Denied, fmt.Sprintf("%s stands behind this call (it was made for or by %s), so somebody else must decide", d.By, d.By),
			"ask another admin (`sallyport admins add NAME` makes one); who made the call may let it run out, or cancel it")
	}
	if d.Hash != "" && (len(d.Hash) < 8 || !strings.HasPrefix(tk.Hash, strings.ToLower(d.Hash))) {
		return fail(sallyport.Invalid, fmt.Sprintf("the hash %.64q is not that of ticket %s", d.Hash, tk.ID),
			"look at the ticket again: give at least the first 8 characters of the hash that it shows")
	}
	if !d.Approve {
		return nil // whoever may decide anything may stop anything
	}
	if slices.ContainsFunc(tk.Votes, func(v sallyport.Vote) bool { return v.By == d.By }) {
		return fail(sallyport.Conflict, fmt.Sprintf("%s has approved ticket %s already; it is still %s", d.By, tk.ID, tk.State), "it needs the word of others")
	}
	demands := tk.Widened(tk.Demands)
	if !sallyport.Helps(demands, tk.Votes, sallyport.Vote{By: d.By, Groups: d.Groups, Approve: true}) {
		return fail(sallyport.Denied, fmt.Sprintf("%s is in none of the groups that ticket %s still asks for: %s", d.By, tk.ID,
			strings.Join(texts(sallyport.Unmet(demands, tk.Votes)), "; ")), "ask somebody of these groups; `sallyport admins list` shows who is in them")
	}
	return nil
}

func texts(demands []sallyport.Demand) []string {
	out := make([]string, len(demands))
	for i, d := range demands {
		out[i] = d.String()
	}
	return out
}

// putVote keeps a vote that does not decide yet.
func (t *txn) putVote(tk sallyport.Ticket, unmet []sallyport.Demand) error {
	votes, err := json.Marshal(tk.Votes)
	if err != nil {
		return err
	}
	err = t.Alter([]any{ticketName{tk.Binding.Tenant, tk.ID}}, 1, "UPDATE tickets SET votes = ?, updated_at = ? WHERE tenant = ? AND id = ? AND state = 'pending'",
		string(votes), nanos(t.now), tk.Binding.Tenant, tk.ID)
	if err != nil {
		return err
	}
	last := &tk.Votes[len(tk.Votes)-1]
	return t.tell(sallyport.EntryDecision, tk, movement{From: tk.State, By: last.By, Reason: last.Reason, Vote: last, Needs: texts(unmet)})
}

// stands checks, in the transaction of the execution, that an approval still
// holds: with the admins of today, in the groups of today, it meets what the
// ticket asked and what today's policies ask. Where it does not, the ticket is
// void, on record. today is nil where the caller does not ask for it.
func (t *txn) stands(tk *sallyport.Ticket, today []sallyport.Demand) error {
	if today == nil {
		return nil
	}
	votes, gone, err := t.votesToday(*tk)
	if err != nil {
		return err
	}
	unmet := sallyport.Unmet(tk.Widened(today), votes)
	if len(unmet) == 0 {
		unmet = sallyport.Unmet(tk.Widened(tk.Demands), votes)
	}
	if len(unmet) == 0 {
		return nil
	}
	why := "policies ask for more than this approval has: " + strings.Join(texts(unmet), "; ")
	if len(gone) > 0 {
		why = strings.Join(gone, ", ") + " may no longer approve it; still needed: " + strings.Join(texts(unmet), "; ")
	}
	if err := t.void(tk, "gateway", why); err != nil {
		return err
	}
	return kept{&sallyport.Error{Code: sallyport.Conflict, Step: sallyport.Execute, Ticket: tk.ID,
		Message: "the approval no longer holds: " + why, Hint: "make a new call: it needs a new approval"}}
}

// covers checks, in the transaction of the execution, that the approval of a
// whole plan still holds for this step of it. Where it does not, the call is to
// be made again: it then needs a human of its own.
func (t *txn) covers(b gateway.Begin) error {
	tk, err := t.ticket(sallyport.Execute, b.Key.Tenant, b.Plan)
	if err != nil {
		return err
	}
	votes, _, err := t.votesToday(tk)
	if err != nil || len(b.Demands) == 0 || len(sallyport.Unmet(tk.Widened(b.Demands), votes)) == 0 {
		return err
	}
	return &sallyport.Error{Code: sallyport.InFlight, Step: sallyport.Execute, Ticket: tk.ID, RetryAfter: time.Second,
		Message: "the approval of the plan no longer covers this step", Hint: "it is asked for by itself"}
}

// votesToday weighs a ticket's votes with the admins of this transaction.
func (t *txn) votesToday(tk sallyport.Ticket) (votes []sallyport.Vote, gone []string, err error) {
	rows, err := t.rows("SELECT "+adminColumns+" WHERE tenant = ?", tk.Binding.Tenant)
	if err != nil {
		return nil, nil, err
	}
	admins, err := scanAll(rows, scanAdmin)
	if err != nil {
		return nil, nil, err
	}
	votes, gone = tk.VotesToday(admins)
	return votes, gone, nil
}

// void ends an approval.
func (t *txn) void(tk *sallyport.Ticket, by, why string) error {
	tk.VoidReason = why
	return t.moveTicket(tk, sallyport.TicketVoid, by, why)
}

// Void ends an approval that no longer holds; see approval.Mover.
func (s *Store) Void(ctx context.Context, tenant, id, by, reason string) (sallyport.Ticket, error) {
	return s.moveFrom(ctx, tenant, id, sallyport.TicketApproved, func(t *txn, tk *sallyport.Ticket) error {
		return t.void(tk, by, reason)
	})
}

// closeTickets ends what an agent has open: nobody decides, and nothing runs,
// in the name of one that was stopped.
func (t *txn) closeTickets(tenant, principal, why string) error {
	rows, err := t.rows("SELECT "+ticketColumns+" WHERE tenant = ? AND principal = ? AND state IN ('pending', 'approved')", tenant, principal)
	if err != nil {
		return err
	}
	open, err := scanAll(rows, scanTicket)
	if err != nil {
		return err
	}
	for i := range open {
		tk := &open[i]
		if err := t.age(tk, t.now); err != nil {
			return err
		}
		switch tk.State {
		case sallyport.TicketPending:
			err = t.decide(tk, sallyport.TicketWithdrawn, "gateway", why)
		case sallyport.TicketApproved:
			err = t.void(tk, "gateway", why)
		default:
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Escalate lets groups decide on tickets that wait too long; see approval.Mover.
func (s *Store) Escalate(ctx context.Context, before time.Time, groups []string) ([]sallyport.Ticket, error) {
	const waiting = "state = 'pending' AND escalated_at = 0 AND created_at <= ?"
	var n int
	err := s.row(ctx, "SELECT count(*) FROM tickets WHERE "+waiting, nanos(before)).Scan(&n)
	if err != nil || n == 0 {
		return nil, s.storeError(sallyport.Approve, err) // no write lock taken for nothing
	}
	names, err := json.Marshal(orEmpty(groups))
	if err != nil {
		return nil, err
	}
	var out []sallyport.Ticket
	err = s.update(ctx, sallyport.Approve, func(t *txn) error {
		rows, err := t.rows("SELECT "+ticketColumns+" WHERE "+waiting+" LIMIT 1000", nanos(before))
		if err != nil {
			return err
		}
		late, err := scanAll(rows, scanTicket)
		if err != nil {
			return err
		}
		out = nil // what an attempt that did not commit has found
		for _, tk := range late {
			if due(tk, t.now) != sallyport.TicketPending {
				continue // the clock has decided
			}
			n, err := t.exec("UPDATE tickets SET escalated_at = ?, escalated_to = ?, updated_at = ? WHERE tenant = ? AND id = ? AND state = 'pending' AND escalated_at = 0",
				nanos(t.now), string(names), nanos(t.now), tk.Binding.Tenant, tk.ID)
			if err != nil || n == 0 {
				return err
			}
			tk.EscalatedAt, tk.EscalatedTo = t.now, groups
			out = append(out, tk)
			if err := t.tell(sallyport.EntryTicket, tk, movement{From: tk.State, By: byClock, Reason: "nobody has decided", EscalatedTo: groups}); err != nil {
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
