package gateway

import (
	"cmp"
	"context"
	"errors"
	"time"

	"sallyport.dev/sallyport"
)

// Await is Call for a caller that can wait. While the answer is
// approval_pending it waits for the ticket, up to wait; while it is in_flight
// it waits for the running call, up to Limits.InFlight. Then it calls again,
// from the top, under the same call id: today's policy, tool and principal
// decide anew. waiting, if not nil, is told once when a human is waited for.
func (g *Gateway) Await(ctx context.Context, req sallyport.Request, wait time.Duration, waiting func(*sallyport.Error)) (sallyport.Result, error) {
	human, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	running, cancel := context.WithTimeout(ctx, cmp.Or(g.Limits.InFlight, 10*time.Second))
	defer cancel()
	pause := 5 * time.Millisecond
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
			if !g.decided(human, req, e) {
				return res, err
			}
		case sallyport.InFlight:
			if !sleep(running, pause) {
				return res, err
			}
			pause = min(2*pause, 250*time.Millisecond)
		default:
			return res, err
		}
	}
}

// decided waits for the ticket and reports whether it moved in time.
func (g *Gateway) decided(ctx context.Context, req sallyport.Request, e *sallyport.Error) bool {
	if ctx.Err() != nil {
		return false
	}
	who, err := g.Authenticator.Authenticate(ctx, req.Profile, req.Credential)
	return err == nil && g.Tickets.Wait(ctx, who.Tenant, e.Ticket) == nil
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
