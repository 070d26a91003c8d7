package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/outbound"
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
		Unbound: unbound(j.tool.Manifest, j.canonical), About: aboutTool(j.tool),
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

// aboutTool is what an approver is told of a tool, beside its name.
func aboutTool(t sallyport.Tool) sallyport.ToolNote {
	n := sallyport.ToolNote{Description: t.Description, Server: t.Origin.Server}
	if t.Code != nil {
		n.Language, n.Code = t.Code.Language, t.Code.Source
	}
	return n
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
		e.Code, e.Message = sallyport.Rejected, "the approval is void: "+cmp.Or(t.VoidReason, "it was not used in time")
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

// unbound lists the arguments that refer to content elsewhere, whose content
// no witness has seen: it can change behind an approval.
func unbound(m sallyport.Manifest, args json.RawMessage) []string {
	var out []string
	for _, f := range m.Fields {
		if f.Kind != "path" && f.Kind != "url" && f.Kind != "reference" {
			continue
		}
		v, there := sallyport.At(args, f.Path)
		if !there || string(v) == "null" || slices.Contains(out, f.Path) ||
			slices.ContainsFunc(m.Witness, func(w sallyport.Witness) bool { return w.Binds == f.Path }) {
			continue
		}
		out = append(out, f.Path)
	}
	return out
}
