package gateway

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/keys"
)

// lapse makes an approval void whose call is refused by what holds today: the
// policies, the tool or the principal's roles are no longer those that it was
// approved under. When they change back, a human is asked anew. It returns the
// error for the caller: a tool whose server has not told its tools yet, as after a
// start, or told them only while this call was judged, is not gone, and its
// approval stays.
func (r *record) lapse(ctx context.Context, err error) error {
	e, ours := errors.AsType[*sallyport.Error](err)
	if !ours || r.Principal == "" || !slices.Contains([]sallyport.Step{sallyport.Resolve, sallyport.Validate, sallyport.Authorize}, e.Step) ||
		!slices.Contains([]sallyport.Code{sallyport.NotFound, sallyport.Quarantined, sallyport.Invalid, sallyport.Denied}, e.Code) {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	id := r.Ticket
	if id == "" && r.Key != "" {
		key := r.Key
		if !slices.Contains(r.Path, sallyport.Reserve) { // as the caller chose it
			key = keys.Scoped(r.Door, key, r.OnBehalfOf)
		}
		res, err := r.g.Ledger.Find(ctx, sallyport.ReservationKey{Tenant: r.Tenant, Principal: r.Principal, Tool: r.Target, Key: key})
		if err == nil && res != nil {
			id = res.Ticket
		}
	}
	if id == "" {
		return err
	}
	t, lost := r.g.Ledger.Ticket(ctx, r.Tenant, id)
	if lost != nil || t.State != sallyport.TicketApproved || t.Binding.Principal != r.Principal || t.Binding.OnBehalfOf != r.OnBehalfOf ||
		t.Binding.Tool != r.Target || r.args != nil && !bytes.Equal(r.args, t.Binding.Args) {
		return err // not this call's
	}
	if e.Code == sallyport.NotFound && e.Step == sallyport.Authorize {
		return err // a tool of the approved plan; should it come back as another, the plan's digest tells
	}
	if e.Code == sallyport.NotFound && (!r.g.Catalog.Listed(t.About.Server) || r.g.Catalog.Generation() != r.tools) {
		return &sallyport.Error{
			Code: sallyport.Unavailable, Step: e.Step, Ticket: t.ID, RetryAfter: time.Second,
			Message: "the tool's server has not told its tools yet, so the approved call waits for it",
			Hint:    "call again with the ticket",
		}
	}
	if err := r.g.Tickets.Void(ctx, r.Tenant, t.ID, r.g.Sanitiser.Text("the call is refused now: "+e.Message)); err != nil {
		r.g.Log.Error("cannot make an approval void", "ticket", t.ID, "err", err)
	}
	return err
}
