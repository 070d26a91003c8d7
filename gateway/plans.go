package gateway

import (
	"context"
	"fmt"

	"sallyport.dev/sallyport"
)

// enter checks the saga that a request speaks for.
func (g *Gateway) enter(ctx context.Context, rec *record, who sallyport.Principal, saga string) error {
	if saga == "" {
		return nil
	}
	rec.Saga = clip(saga, 128)
	if g.Plans == nil {
		return &sallyport.Error{
			Code: sallyport.NotFound, Step: sallyport.Resolve, Message: fmt.Sprintf("unknown saga %q", rec.Saga),
			Hint: "this gateway has no sagas",
		}
	}
	return at(sallyport.Resolve, g.Plans.Enter(ctx, who, rec.Profile, saga))
}

// rejoin puts a call that comes back with its ticket or key into the ad-hoc saga
// that it was made in, whether or not it says so again: else a rollback would
// leave it out. Once that saga is over, the call can no longer run.
func (g *Gateway) rejoin(ctx context.Context, rec *record, c *claim) error {
	if c.awaits == "" || c.req.Door == "saga" {
		return nil
	}
	t, err := g.Ledger.Ticket(ctx, c.key.Tenant, c.awaits)
	if err == nil {
		err = t.LeftToSaga()
	}
	if err == nil && !t.NotesSaga {
		err = g.older(ctx, c.who, t)
	}
	if err != nil || t.Binding.Saga == c.req.Saga {
		return err
	}
	if c.req.Saga != "" {
		return &sallyport.Error{
			Code: sallyport.Conflict, Ticket: t.ID, Message: "the ticket was not opened for a call in this saga",
			Hint: "resume without naming a saga: the call stays in its own",
		}
	}
	c.req.Saga = t.Binding.Saga
	if t.State != sallyport.TicketApproved && t.State != sallyport.TicketPending {
		return nil
	}
	if err := g.enter(ctx, rec, c.who, c.req.Saga); sallyport.CodeOf(err) != sallyport.NotFound {
		return err
	}
	return g.takeBack(ctx, c.who, t, "the saga that the call belongs to is over")
}

// older refuses an open ticket of a program that did not note the saga of a call,
// if the caller had a saga open when it was made: the call may be of it, and
// would run outside of it.
func (g *Gateway) older(ctx context.Context, who sallyport.Principal, t sallyport.Ticket) error {
	if g.Plans == nil || t.State != sallyport.TicketApproved && t.State != sallyport.TicketPending {
		return nil
	}
	in, err := g.Plans.During(ctx, who, t.CreatedAt)
	if err != nil || !in {
		return err
	}
	return g.takeBack(ctx, who, t, "an older version of the gateway opened the ticket and did not note whether the call belongs to the saga that was open then")
}

// takeBack closes an open ticket whose call must not run, and says why.
func (g *Gateway) takeBack(ctx context.Context, who sallyport.Principal, t sallyport.Ticket, why string) error {
	if t.State == sallyport.TicketPending {
		if _, err := g.Tickets.Withdraw(context.WithoutCancel(ctx), who, t.ID, why); err != nil && sallyport.CodeOf(err) != sallyport.Conflict {
			return err
		}
	}
	return g.void(ctx, t, why)
}

func (g *Gateway) judgePlan(ctx context.Context, c claim) PlanVerdict {
	if g.Plans == nil {
		return PlanVerdict{}
	}
	return g.Plans.Judge(ctx, c.question(), c.req.Saga, g.demands(c))
}
