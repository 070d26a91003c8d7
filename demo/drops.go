package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"sallyport.dev/sallyport"
)

// A disguise is DROP TABLE orders as an agent might send it, as raw JSON.
type disguise struct{ name, args string }

var (
	claim     = disguise{"a comment that claims to be harmless", `{"sql":"-- read only report\nDROP TABLE IF EXISTS main.orders"}`}
	mixedCase = disguise{"mixed case and comments", `{"sql":"dRoP/**/TaBlE \"orders\""}`}
	behind    = disguise{"behind a harmless query", `{"sql":"SELECT count(*) FROM orders; DROP TABLE orders"}`}
	escaped   = disguise{"spelt with JSON escapes", `{"sql":"\u0044\u0052OP\u0020TABLE orders"}`}
)

// drops plays the attack four times. All four stop; what becomes of each then
// is a human's word, or the clock's, which runs while the rest is played. The
// rejection comes last: after it nothing similar would even reach a human.
func (s *story) drops(ctx context.Context) error {
	if _, err := s.must(ctx, s.password, "login", "--password-stdin"); err != nil {
		return err
	}
	for _, play := range []func(context.Context) error{s.undecided, s.altered, s.approved, s.rejected} {
		if err := play(ctx); err != nil {
			return err
		}
	}
	return nil
}

// ask sends a disguise and expects that it stops. The ticket is "" if it ran.
func (s *story) ask(ctx context.Context, d disguise) (ticket string, err error) {
	before, err := s.effects(ctx)
	if err != nil {
		return "", err
	}
	a, code, err := s.call(ctx, "orders__run_sql", json.RawMessage(d.args))
	if err != nil {
		return "", err
	}
	after, err := s.effects(ctx)
	if err != nil {
		return "", err
	}
	s.say("%s: %s", d.name, d.args)
	s.expect(code == 4 && a.Error.Ticket != "" && after == before, "stopped: a human must decide")
	return a.Error.Ticket, nil
}

// decided asks and decides. On a machine so slow that the ticket's clock runs
// out first, it asks anew and says so: that is no failure of the gateway.
func (s *story) decided(ctx context.Context, verb string, d disguise) (ticket string, err error) {
	for range 5 {
		if ticket, err = s.ask(ctx, d); ticket == "" || err != nil {
			return "", err
		}
		r, err := s.sallyport(ctx, "", "approvals", verb, ticket, "--reason", "decided by the demo")
		switch {
		case err != nil:
			return "", err
		case r.code == 0:
			return ticket, nil
		case !strings.Contains(r.stderr, string(sallyport.TicketExpired)):
			return "", fmt.Errorf("sallyport approvals %s: %s", verb, r)
		}
		s.say("this machine is slow: the ticket's %s ran out before the decision; asking again", decideBy)
	}
	return "", fmt.Errorf("this machine is too slow: no decision reached a ticket within %s", decideBy)
}

func (s *story) effects(ctx context.Context) (int, error) {
	r, err := s.seen(ctx)
	return len(r.Effects), err
}

// refused calls again and expects that nothing runs.
func (s *story) refused(ctx context.Context, args, ticket, code, words string) error {
	before, err := s.effects(ctx)
	if err != nil {
		return err
	}
	a, status, err := s.call(ctx, "orders__run_sql", json.RawMessage(args), "--ticket", ticket)
	if err != nil {
		return err
	}
	after, err := s.effects(ctx)
	if err != nil {
		return err
	}
	s.expect(status == 3 && a.Error.Code == code && after == before, "%s", words)
	return nil
}

func (s *story) rejected(ctx context.Context) error {
	ticket, err := s.decided(ctx, "reject", mixedCase)
	if ticket == "" || err != nil {
		return err
	}
	return s.refused(ctx, mixedCase.args, ticket, "rejected", "rejected by the admin: it does not run")
}

func (s *story) altered(ctx context.Context) error {
	ticket, err := s.decided(ctx, "approve", behind)
	if ticket == "" || err != nil {
		return err
	}
	other := strings.Replace(behind.args, "DROP TABLE orders", "DROP TABLE customers", 1)
	return s.refused(ctx, other, ticket, "conflict", "approved, then altered to DROP TABLE customers: refused")
}

func (s *story) approved(ctx context.Context) error {
	ticket, err := s.decided(ctx, "approve", escaped)
	if ticket == "" || err != nil {
		return err
	}
	if err := s.shown(ctx, ticket); err != nil {
		return err
	}
	before, err := s.effects(ctx)
	if err != nil {
		return err
	}
	replays := 0
	for range 3 {
		a, code, err := s.call(ctx, "orders__run_sql", json.RawMessage(escaped.args), "--ticket", ticket)
		if err != nil {
			return err
		}
		if code == 0 && a.Replay {
			replays++
		}
	}
	after, err := s.effects(ctx)
	if err != nil {
		return err
	}
	s.expect(after == before+1 && replays == 2, "approved, then asked for three times: it ran exactly once (the ledger counts %d, %d were replays)", after-before, replays)
	return nil
}

// shown tells what the approver saw.
func (s *story) shown(ctx context.Context, ticket string) error {
	r, err := s.must(ctx, "", "approvals", "show", ticket, "--json")
	if err != nil {
		return err
	}
	var t sallyport.Ticket
	if err := json.Unmarshal([]byte(r.stdout), &t); err != nil {
		return fmt.Errorf("approvals show: %w", err)
	}
	s.say("what the approver sees: %s, %s", t.Risk.Level, strings.Join(t.Risk.Reasons, "; "))
	return nil
}

func (s *story) undecided(ctx context.Context) (err error) {
	if s.forgotten, err = s.ask(ctx, claim); s.forgotten != "" {
		s.say("nobody will decide on this one: its %s run while the rest is played", decideBy)
	}
	return err
}

// expired waits until the clock has decided.
func (s *story) expired(ctx context.Context) error {
	if s.forgotten == "" {
		s.expect(false, "there is no ticket to expire: the call ran")
		return nil
	}
	for deadline := time.Now().Add(decideBy + 30*time.Second); time.Now().Before(deadline); {
		r, err := s.must(ctx, "", "approvals", "show", s.forgotten, "--json")
		if err != nil {
			return err
		}
		var t sallyport.Ticket
		if err := json.Unmarshal([]byte(r.stdout), &t); err != nil {
			return fmt.Errorf("approvals show: %w", err)
		}
		if t.State != sallyport.TicketPending {
			break
		}
		select {
		case <-time.After(time.Until(t.DecideBy) + 50*time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.refused(ctx, claim.args, s.forgotten, "rejected", "its time passed: it counts as rejected, and does not run")
}
