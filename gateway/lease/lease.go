// Package lease is the time in which a process may act on a key that it has taken.
package lease

import (
	"context"
	"errors"
	"time"

	"sallyport.dev/sallyport"
)

// A Lease ends at a time. Afterwards others believe that its process is gone.
type Lease struct {
	Lasts time.Duration
	ends  time.Time
}

// From is a lease that begins now.
func From(now time.Time, lasts time.Duration) Lease { return Lease{lasts, now.Add(lasts)} }

// Holds is nil while the lease lasts, by the clock on the wall and by the one
// that nobody can set.
func (l Lease) Holds(ctx context.Context, now time.Time) error {
	if ctx.Err() == nil && now.Before(l.ends) && now.Round(0).Before(l.ends.Round(0)) {
		return nil
	}
	return &sallyport.Error{
		Code: sallyport.Timeout, Step: sallyport.Execute, Err: errors.Join(sallyport.ErrNotExecuted, ctx.Err()),
		Message: "the call's time was over before it began, so it was not made", Hint: "call again",
	}
}
