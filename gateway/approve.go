package gateway

import (
	"context"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/refusal"
	"sallyport.dev/sallyport/gateway/witness"
)

// A job is a claim that needs no human, or that enough of them have approved.
type job struct {
	claim
	ticket  sallyport.Ticket   // zero if no approval was needed
	demands []sallyport.Demand // what the ticket must meet; nil leaves that unchecked
	hash    string             // of the binding as it is now
	egress  []string           // what the call may reach
	plan    PlanVerdict        // what its saga means for it
	covered string             // the ticket of the plan that approved it, if one did
}

// approve never waits. Where humans must decide and have not, it opens a
// ticket, or finds the one that is open, and returns code Pending. A question
// that is open stays open when policies become looser meanwhile.
func (g *Gateway) approve(ctx context.Context, rec *record, c claim) (job, error) {
	rec.at(sallyport.Approve)
	if c.lacking != nil { // no human is asked about what cannot run
		return job{}, at(sallyport.Approve, c.lacking)
	}
	if err := g.rejoin(ctx, rec, &c); err != nil {
		return job{}, at(sallyport.Approve, err)
	}
	j := job{claim: c, egress: c.permit.egress(), plan: g.judgePlan(ctx, c)}
	if j.plan.Refused != "" {
		return job{}, &sallyport.Error{Code: sallyport.Invalid, Step: sallyport.Approve, Message: j.plan.Refused, Hint: "leave the saga's id out"}
	}
	if j.plan.Ticket != "" && j.awaits == "" {
		rec.Ticket, j.covered, j.demands = j.plan.Ticket, j.plan.Ticket, g.demands(c)
		return j, nil
	}
	j.claim = c.left(j.plan.Strayed)
	if !j.needsHuman() && j.awaits == "" {
		return j, nil
	}
	j.demands = g.demands(j.claim)
	b := j.binding(g.Image)
	var err error
	if j.awaits == "" {
		err = g.ask(ctx, rec, &j, b)
	} else {
		err = g.resume(ctx, rec, &j, b)
	}
	return j, at(sallyport.Approve, err)
}

// ask looks at the target and puts the question to humans.
func (g *Gateway) ask(ctx context.Context, rec *record, j *job, b sallyport.Binding) error {
	var err error
	if b.Witness, err = g.look(ctx, rec, j.claim); err != nil {
		return err
	}
	j.hash = b.Hash()
	j.risk.Parts = append(g.estimate(ctx, rec, j.claim), j.risk.Parts...)
	if j.ticket, err = g.openTicket(ctx, rec, *j, b); err != nil {
		return err
	}
	rec.Ticket = j.ticket.ID
	return refusal.Ticket(j.ticket, j.hash)
}

// resume holds the ticket that the call waits for against the call as it would
// run now, and the target against what was seen of it.
func (g *Gateway) resume(ctx context.Context, rec *record, j *job, b sallyport.Binding) (err error) {
	if j.ticket, err = g.Ledger.Ticket(ctx, j.key.Tenant, j.awaits); err != nil {
		return err
	}
	rec.Ticket = j.ticket.ID
	b.Witness = j.ticket.Binding.Witness
	j.hash = b.Hash()
	if err := refusal.Ticket(j.ticket, j.hash); err != nil {
		if why := b.Differs(j.ticket.Binding); j.ticket.State == sallyport.TicketApproved && len(why) > 0 && b.Profile == j.ticket.Binding.Profile {
			return g.void(ctx, j.ticket, "what would run is no longer what was approved: "+strings.Join(why, "; "))
		}
		return err
	}
	seen, err := g.look(ctx, rec, j.claim)
	if err != nil {
		return err
	}
	if why := witness.Changed(j.ticket.Binding.Witness, seen); why != "" {
		return g.void(ctx, j.ticket, why)
	}
	return nil
}

// void ends an approval that no longer holds, and says so.
func (g *Gateway) void(ctx context.Context, t sallyport.Ticket, why string) error {
	why = g.Sanitiser.Text(why)
	if err := g.Tickets.Void(context.WithoutCancel(ctx), t.Binding.Tenant, t.ID, why); err != nil && sallyport.CodeOf(err) != sallyport.Conflict {
		return err
	}
	return &sallyport.Error{Code: sallyport.Conflict, Step: sallyport.Approve, Ticket: t.ID, Message: "the approval no longer holds: " + why, Hint: refusal.NewCall}
}
