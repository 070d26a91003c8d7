package gateway

import (
	"cmp"
	"context"
	"errors"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/ending"
	"sallyport.dev/sallyport/gateway/refusal"
	"sallyport.dev/sallyport/gateway/standing"
	"sallyport.dev/sallyport/pause"
)

// Await is Call for a caller that can wait. While the answer is
// approval_pending it waits for the ticket, up to wait; while it is in_flight
// it waits for the running call, up to Limits.InFlight. Then it calls again,
// from the top, under the same call id: today's policy, tool and principal
// decide anew. waiting, if not nil, is told once when a human is waited for.
//
// When ctx is cancelled while it waits for a human, the ticket is taken back,
// so that nobody approves what nobody wants any more. A connection or a session
// that merely ended leaves the ticket of a caller who can come back, by key or
// ticket; so does a gateway that stops.
func (g *Gateway) Await(ctx context.Context, req sallyport.Request, wait time.Duration, waiting func(*sallyport.Error)) (sallyport.Result, error) {
	ctx, _, over := standing.Watch(ctx, g.Authenticator, req)
	defer over()
	human, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	running, cancel := context.WithTimeout(ctx, cmp.Or(g.Limits.InFlight, 10*time.Second))
	defer cancel()
	interval := 5 * time.Millisecond
	stays := waiter{returns: req.Key != "" || req.Ticket != "", asks: req.Operation.Target == ApprovalResult}
	for {
		res, err := g.Call(ctx, req)
		e, ours := errors.AsType[*sallyport.Error](err)
		if !ours {
			return res, err
		}
		req.CallID = e.CallID
		switch e.Code {
		case sallyport.Pending:
			if waiting != nil && wait > 0 {
				waiting(e)
				waiting = nil
			}
			req.Ticket = e.Ticket
			if !g.decided(human, req, e, &stays) {
				return res, g.leave(ctx, req, e, stays)
			}
		case sallyport.InFlight:
			if !pause.For(running, interval) {
				return res, err
			}
			interval = min(2*interval, 250*time.Millisecond)
		default:
			return res, err
		}
	}
}

// A waiter is a caller whose call waits for a human.
type waiter struct {
	who     sallyport.Principal // once it waits
	returns bool                // it has a key or the ticket to come back with
	asks    bool                // it only asks for the result of another call
}

// leave ends the wait for a human. A caller who cancelled takes the question
// back; whoever is still there learns that it is open.
func (g *Gateway) leave(ctx context.Context, req sallyport.Request, pending *sallyport.Error, w waiter) error {
	by := ending.By(ctx)
	if by == "" && ending.Deserted(req) {
		by = "disconnect"
	}
	if by == "" || by == "shutdown" || by != "client" && by != standing.Lost && w.returns || w.asks || w.who.ID == "" {
		return pending
	}
	_, err := g.Tickets.Withdraw(context.WithoutCancel(ctx), w.who, pending.Ticket, refusal.CancelledBy(by))
	if err != nil && sallyport.CodeOf(err) != sallyport.Conflict {
		g.Log.Error("cannot take a ticket back", "ticket", pending.Ticket, "call", req.CallID, "err", err)
	}
	return g.takenBack(req, w.who, pending.Ticket, by)
}

// takenBack records that a caller does not want any more what it asked for.
func (g *Gateway) takenBack(req sallyport.Request, who sallyport.Principal, ticket, by string) error {
	e := &sallyport.Error{
		Code: sallyport.Canceled, Step: sallyport.Approve, CallID: req.CallID, Ticket: ticket,
		Message: "the call was cancelled while it waited for a human, and its ticket was taken back", Hint: refusal.NewCall,
	}
	rec := &record{g: g, Record: sallyport.Record{
		CallID: req.CallID, Door: req.Door, Tenant: who.Tenant, Principal: who.ID, OnBehalfOf: who.OnBehalfOf, Actor: who.Actor,
		Profile: req.Profile, Kind: req.Operation.Kind, Target: clip(req.Operation.Target, 128), Ticket: ticket, Trace: req.Trace,
		Path: []sallyport.Step{sallyport.Approve, sallyport.Respond}, Code: e.Code, Message: e.Message, CancelledBy: by, Started: g.Now(),
	}}
	if err := g.Journal.Append(rec.entry(sallyport.EntryOutcome, rec.snapshot())); err != nil {
		g.Log.Error("cannot record a cancellation", "call", req.CallID, "err", err)
	}
	return e
}

// Withdraw takes back the caller's own ticket that req names, approved or not. Where the
// call that was approved runs by now, it is cancelled.
func (g *Gateway) Withdraw(ctx context.Context, req sallyport.Request) error {
	who, err := g.Identify(ctx, req.Credential, req.Profile)
	if err != nil {
		return err
	}
	t, err := g.ticketOf(ctx, who, req.Ticket, sallyport.Resolve)
	if err != nil {
		return err
	}
	_, err = g.Tickets.Withdraw(ctx, who, t.ID, refusal.CancelledBy("client"))
	if err == nil {
		req.CallID, req.Operation = t.CallID, sallyport.Operation{Kind: sallyport.CallTool, Target: t.Binding.Tool}
		_ = g.takenBack(req, who, t.ID, "client") // what the call's own answer says
		return nil
	}
	if sallyport.CodeOf(err) == sallyport.Conflict { // it was decided
		return at(sallyport.Execute, g.stop(ctx, t))
	}
	return at(sallyport.Approve, err)
}

// stop cancels the call that a ticket was for, wherever it runs, and does not wait for its end.
func (g *Gateway) stop(ctx context.Context, t sallyport.Ticket) error {
	r, err := g.Ledger.Find(ctx, sallyport.ReservationKey{Tenant: t.Binding.Tenant, Principal: t.Binding.Principal, Tool: t.Binding.Tool, Key: t.Key})
	if err != nil || g.Held == nil || r == nil || r.State != sallyport.Executing || r.Ticket != t.ID {
		return err
	}
	if _, err := g.Held.Visit(ctx, sallyport.Lasting{CallID: r.CallID, Replica: r.Writer}, sallyport.Visit{Cancel: true}); err != nil {
		g.Log.Info("a call could not be cancelled where it runs", "call", r.CallID, "gateway", r.Writer, "err", err)
	}
	return nil
}

// decided waits for the ticket and reports whether it moved in time.
func (g *Gateway) decided(ctx context.Context, req sallyport.Request, e *sallyport.Error, w *waiter) bool {
	if w.who.ID == "" { // once: the token may run out while a human thinks
		who, err := g.Authenticator.Authenticate(context.WithoutCancel(ctx), req.Profile, req.Credential)
		if err != nil {
			return false
		}
		w.who = who
	}
	if ctx.Err() != nil {
		return false
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if req.Gone != nil {
		go func() {
			select {
			case <-req.Gone:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	return g.Tickets.Wait(ctx, w.who.Tenant, e.Ticket) == nil
}
