package gateway

import (
	"cmp"
	"context"
	"errors"
	"time"

	"sallyport.dev/sallyport"
)

// A lease is the time in which this process may act on a key that it has taken.
// Afterwards others believe that it is gone.
type lease struct {
	lasts time.Duration
	ends  time.Time
}

func (g *Gateway) leaseFor(timeout time.Duration) lease {
	lasts := timeout + cmp.Or(g.Limits.Lease, time.Minute)
	return lease{lasts, g.Now().Add(lasts)}
}

// holds is nil while the lease lasts, by the clock on the wall and by the one
// that nobody can set.
func (l lease) holds(ctx context.Context, now time.Time) error {
	if ctx.Err() == nil && now.Before(l.ends) && now.Round(0).Before(l.ends.Round(0)) {
		return nil
	}
	return &sallyport.Error{
		Code: sallyport.Timeout, Step: sallyport.Execute, Err: errors.Join(sallyport.ErrNotExecuted, ctx.Err()),
		Message: "the call's time was over before it began, so it was not made", Hint: "call again",
	}
}
