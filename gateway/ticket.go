package gateway

import (
	"cmp"
	"context"
	"slices"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/outbound"
	"sallyport.dev/sallyport/gateway/witness"
)

// binding is what an approval of the job would hold for: all that decides what
// runs, as it is now, but for its witnesses.
func (j job) binding(image string) sallyport.Binding {
	if j.tool.Code == nil {
		image = ""
	} else {
		image = cmp.Or(j.tool.Manifest.Image, image)
	}
	saga := ""
	if j.plan.Joins != nil {
		saga = j.req.Saga
	}
	return sallyport.Binding{
		Tenant: j.who.Tenant, Principal: j.who.ID, OnBehalfOf: j.who.OnBehalfOf, Profile: j.req.Profile,
		Tool: j.tool.Name, ToolVersion: j.tool.Version, ToolDigest: j.tool.Digest, Args: j.canonical,
		Endpoint: j.tool.Origin.Endpoint, Credential: j.tool.Origin.Credential,
		Image: image, Tier: j.tier, Egress: j.egress, Plan: j.plan.Digest, Saga: saga,
	}
}

// openTicket stores a ticket for the job, or returns the one that its key waits
// for already.
func (g *Gateway) openTicket(ctx context.Context, rec *record, j job, b sallyport.Binding) (sallyport.Ticket, error) {
	now := g.Now()
	t := sallyport.Ticket{
		ID: newID("tkt"), CallID: rec.CallID, Key: j.key.Key, Binding: b, Hash: j.hash, Risk: j.risk,
		Policies: policiesOf(j.demands), Demands: j.demands, State: sallyport.TicketPending, CreatedAt: now, Trace: j.req.Trace, NotesSaga: true,
		DecideBy: now.Add(cmp.Or(g.Limits.DecideBy, time.Hour)), Actor: j.who.Actor,
		Unbound: witness.Unbound(j.tool.Manifest, j.canonical), About: j.tool.Note(),
	}
	if j.req.Parent != "" {
		t.Risk.Reasons = append(slices.Clone(t.Risk.Reasons), "the script of call "+j.req.Parent+" calls it")
	}
	kept := t
	kept.Binding.Args, kept.Risk = outbound.Withhold(g.Sanitiser.JSON(j.canonical), j.secrets), g.maskRisk(t.Risk)
	kept.About.Code = "" // the digest stands for it
	if kept.Key != rec.CallID {
		kept.Key = g.Sanitiser.Text(kept.Key)
	}
	got, err := g.Ledger.Open(ctx, t, j.key, j.fingerprint, rec.entry(sallyport.EntryTicket, opened{kept, b.Principal, b.Tool}))
	if sallyport.CodeOf(err) == sallyport.RateLimited {
		g.flooded(rec, err)
	}
	if err == nil && got.ID == t.ID {
		g.Tickets.Opened(context.WithoutCancel(ctx), got)
	}
	return got, err
}

// opened is a ticket as the record has it: found by who asks and for what, as calls are.
type opened struct {
	sallyport.Ticket
	Principal string `json:"principal"`
	Target    string `json:"target"`
}
