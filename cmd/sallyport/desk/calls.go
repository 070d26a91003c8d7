package desk

import (
	"context"
	"encoding/json"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/approval"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/store"
	"sallyport.dev/sallyport/store/relational"
)

// Tickets shows tickets and takes decisions.
type Tickets struct {
	Tenant string
	Engine *approval.Engine
}

// ListTickets returns tickets in a state, or all, newest first, and those that are alike together.
func (d Tickets) ListTickets(ctx context.Context, state string, limit int) ([]sallyport.Ticket, []adminapi.TicketGroup, error) {
	f := store.TicketFilter{Tenant: d.Tenant, Limit: limit}
	if state != "" {
		f.States = []sallyport.TicketState{sallyport.TicketState(state)}
	}
	tickets, err := d.Engine.List(ctx, f)
	var groups []adminapi.TicketGroup
	for _, g := range approval.Groups(tickets) {
		out := adminapi.TicketGroup{Tool: g.Tool, Digest: g.Digest, Agents: g.Agents}
		for _, m := range g.Tickets {
			out.Tickets = append(out.Tickets, adminapi.TicketApart(m))
		}
		groups = append(groups, out)
	}
	return tickets, groups, err
}

// ShowTicket returns a ticket in each form in which it is shown.
func (d Tickets) ShowTicket(ctx context.Context, id string) (adminapi.ShownTicket, error) {
	t, v, err := d.Engine.Show(ctx, d.Tenant, id)
	if err != nil {
		return adminapi.ShownTicket{}, err
	}
	view, err := json.Marshal(v)
	card, _ := v.Card()
	return adminapi.ShownTicket{Ticket: t, View: view, Text: v.Text(), Full: approval.Render(t, time.Now()), Card: card}, err
}

// Decide takes a decision on a ticket.
func (d Tickets) Decide(ctx context.Context, w sallyport.Decision) (sallyport.Ticket, error) {
	return d.Engine.Decide(ctx, d.Tenant, w)
}

// Reservations settles what nobody knows.
type Reservations struct {
	Tenant string
	Store  *relational.Store
}

// ListReservations returns reservations in a state, or all.
func (d Reservations) ListReservations(ctx context.Context, state string, limit int) ([]sallyport.Reservation, error) {
	f := store.ReservationFilter{Tenant: d.Tenant, Limit: limit}
	if state != "" {
		f.States = []sallyport.ReservationState{sallyport.ReservationState(state)}
	}
	return d.Store.Reservations(ctx, f)
}

// ResolveReservation settles a call whose outcome is unknown.
func (d Reservations) ResolveReservation(ctx context.Context, r adminapi.Resolution) error {
	return d.Store.Resolve(ctx, store.Resolution{Key: r.Key, Call: r.Call, State: r.State, By: r.By, Reason: r.Reason, Output: r.Result})
}

// Audit searches the record.
type Audit struct {
	Tenant string
	Store  *relational.Store
}

// Retire writes down where another gateway's log ended.
func (d Audit) Retire(ctx context.Context, log, by, reason string) (int64, error) {
	r, err := d.Store.RetireLog(ctx, d.Tenant, log, by, reason)
	return r.Entries, err
}

// Search finds entries of the record.
func (d Audit) Search(ctx context.Context, q adminapi.AuditQuery) ([]adminapi.AuditEntry, error) {
	rows, err := audit.Search(ctx, d.Store, audit.Filter{
		Tenant: d.Tenant, CallID: q.Call, Principal: q.Principal, Tool: q.Tool, Kind: sallyport.EntryKind(q.Kind),
		Code: q.Code, Since: q.Since, Until: q.Until, Text: q.Text,
	}, q.Limit)
	out := make([]adminapi.AuditEntry, 0, len(rows))
	for _, r := range rows {
		out = append(out, adminapi.AuditEntry{Writer: r.Writer, Seq: r.Seq, Time: r.Time, Kind: r.Kind, CallID: r.CallID, Payload: r.Payload})
	}
	return out, err
}
