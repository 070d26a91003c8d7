// Package places bounds how many things exist at once, with a queue that is
// bounded too.
package places

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sallyport.dev/sallyport"
)

// Patience bounds how long a run waits for a place.
const Patience = 30 * time.Second

// Places are those for sandboxes that run. Whoever finds none free waits its
// turn, in a queue that is bounded; beyond it one is told to come again.
type Places struct {
	taken   chan struct{} // holds one for each sandbox
	waiting chan struct{} // holds one for each run that waits
	closed  chan struct{}
}

// New makes max places, for which queue may wait.
func New(max, queue int) Places {
	return Places{taken: make(chan struct{}, max), waiting: make(chan struct{}, queue), closed: make(chan struct{})}
}

// Take takes a place; leave gives it back.
func (p Places) Take(ctx context.Context) (leave func(), err error) {
	leave = func() { <-p.taken }
	select {
	case p.taken <- struct{}{}:
		return leave, nil
	default:
	}
	select {
	case p.waiting <- struct{}{}:
	default:
		return nil, p.full("all %d sandboxes are in use, and %d calls wait for one", cap(p.taken), cap(p.waiting))
	}
	defer func() { <-p.waiting }()
	late := time.NewTimer(Patience)
	defer late.Stop()
	select {
	case p.taken <- struct{}{}: // those who wait are served in the order in which they came
		return leave, nil
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), sallyport.ErrNotExecuted)
	case <-late.C:
		return nil, p.full("all %d sandboxes were in use for %s", cap(p.taken), Patience)
	case <-p.closed:
		return nil, refused("start it again", "the sandbox host is closed")
	}
}

func (p Places) full(format string, args ...any) error {
	e := refused("try again, or raise sandbox.runs or sandbox.queue", format, args...)
	e.RetryAfter = time.Second
	return e
}

func refused(hint, format string, args ...any) *sallyport.Error {
	return &sallyport.Error{
		Code: sallyport.Unavailable, Step: sallyport.Execute, Hint: hint,
		Message: fmt.Sprintf(format, args...), Err: sallyport.ErrNotExecuted,
	}
}

// Close ends the waiting of all. It is called once.
func (p Places) Close() { close(p.closed) }
