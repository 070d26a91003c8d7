package gateway

import (
	"cmp"
	"context"
	"time"

	"sallyport.dev/sallyport"
)

// A job is a claim that needs no human, or that one has approved.
type job struct {
	claim
	ticket sallyport.Ticket // zero if no approval was needed
	egress []string
	hash   string
}

// approve never waits. Where a human must decide and has not, it opens a
// ticket, or finds the one that is open, and returns code Pending.
func (g *Gateway) approve(ctx context.Context, rec *record, c claim) (job, error) {
	rec.at(sallyport.Approve)
	j := job{claim: c, egress: c.permit.egress()}
	if !c.needsHuman() {
		return j, nil
	}
	b := c.binding(g.Image, j.egress)
	j.hash = b.Hash()
	var err error
	if c.ticket == "" {
		j.ticket, err = g.openTicket(ctx, rec, c, b, j.hash)
	} else {
		j.ticket, err = g.Ledger.Ticket(ctx, c.key.Tenant, c.ticket)
	}
	if err != nil {
		return job{}, at(sallyport.Approve, err)
	}
	rec.Ticket = j.ticket.ID
	if err := ticketAllows(j.ticket, j.hash); err != nil {
		return job{}, err
	}
	return j, nil
}

// needsHuman reports whether the risk, or a policy, demands an approval.
func (p permit) needsHuman() bool {
	return p.risk.Irreversible || p.risk.Level >= sallyport.Critical || p.verdict.Approval
}

// demandedBy names what demands the approval.
func (p permit) demandedBy() []string {
	switch {
	case !p.needsHuman():
		return nil
	case p.verdict.Approval:
		return p.verdict.ApprovalBy
	default:
		return []string{"built-in: risk is critical"}
	}
}

func (c claim) binding(image string, egress []string) sallyport.Binding {
	if c.tool.Code == nil {
		image = ""
	}
	return sallyport.Binding{
		Tenant: c.who.Tenant, Principal: c.who.ID, OnBehalfOf: c.who.OnBehalfOf, Profile: c.req.Profile,
		Tool: c.tool.Name, ToolVersion: c.tool.Version, ToolDigest: c.tool.Digest, Args: c.canonical,
		Endpoint: c.tool.Origin.Endpoint, Credential: c.tool.Origin.Credential,
		Image: image, Tier: c.tier, Egress: egress,
	}
}

func (g *Gateway) openTicket(ctx context.Context, rec *record, c claim, b sallyport.Binding, hash string) (sallyport.Ticket, error) {
	now := g.Now()
	t := sallyport.Ticket{
		ID: newID("tkt"), CallID: rec.CallID, Key: c.key.Key, Binding: b, Hash: hash, Risk: c.risk,
		Policies: c.demandedBy(), State: sallyport.TicketPending, CreatedAt: now, Trace: c.req.Trace,
		DecideBy: now.Add(cmp.Or(g.Limits.DecideBy, time.Hour)),
	}
	kept := t
	kept.Binding.Args, kept.Risk = g.Sanitiser.JSON(c.canonical), g.maskRisk(c.risk)
	if kept.Key != rec.CallID {
		kept.Key = g.Sanitiser.Text(kept.Key)
	}
	return g.Ledger.Open(ctx, t, c.key, c.fingerprint, rec.entry(sallyport.EntryTicket, kept))
}

const newCall = "make a new call: it needs a new approval"

// ticketAllows is nil only for an approved ticket of exactly this call.
func ticketAllows(t sallyport.Ticket, hash string) error {
	e := &sallyport.Error{Step: sallyport.Approve, Ticket: t.ID}
	switch {
	case t.State == sallyport.TicketRejected:
		e.Code, e.Message = sallyport.Rejected, "a human rejected this call"
		if t.Reason != "" {
			e.Message += ": " + t.Reason
		}
		e.Hint = "do not try the same in another form; ask the approver"
	case t.State == sallyport.TicketExpired:
		e.Code, e.Message = sallyport.Rejected, "nobody decided in time, so the call is rejected"
		e.Hint = newCall
	case t.State == sallyport.TicketVoid:
		e.Code, e.Message = sallyport.Rejected, "the approval was not used in time and is void"
		e.Hint = newCall
	case t.State == sallyport.TicketWithdrawn:
		e.Code, e.Message = sallyport.Rejected, "the ticket was withdrawn"
		e.Hint = newCall
	case t.Hash != hash:
		e.Code, e.Message = sallyport.Conflict, "the tool, where it runs or who calls changed since the ticket was opened"
		e.Hint = newCall
	case t.State == sallyport.TicketPending:
		e.Code, e.Message = sallyport.Pending, "a human must approve this call: ticket "+t.ID
		e.Hint = "call again with the same idempotency key or this ticket, or call approval_result, once it is decided"
	case t.State == sallyport.TicketApproved:
		return nil
	default: // consumed
		e.Code, e.Message = sallyport.InFlight, "the approval is already used: one approval is one execution"
		e.Hint = "wait and ask for the result again; a second execution needs a new call"
		e.RetryAfter = time.Second
	}
	return e
}
