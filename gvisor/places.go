package gvisor

import (
	"context"
	"errors"
	"time"

	"sallyport.dev/sallyport"
)

// queuePatience bounds how long a run waits for a place.
const queuePatience = 30 * time.Second

// places are those for running sandboxes. Whoever finds none free waits its
// turn, in a queue that is bounded; beyond it one is told to come again.
type places struct {
	taken   chan struct{} // holds one for each sandbox
	waiting chan struct{} // holds one for each run that waits
	closed  chan struct{}
}

func newPlaces(max, queue int) places {
	return places{taken: make(chan struct{}, max), waiting: make(chan struct{}, queue), closed: make(chan struct{})}
}

// take takes a place; leave gives it back.
func (p places) take(ctx context.Context) (leave func(), err error) {
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
	late := time.NewTimer(queuePatience)
	defer late.Stop()
	select {
	case p.taken <- struct{}{}: // those who wait are served in the order in which they came
		return leave, nil
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), sallyport.ErrNotExecuted)
	case <-late.C:
		return nil, p.full("all %d sandboxes were in use for %s", cap(p.taken), queuePatience)
	case <-p.closed:
		return nil, unavailable("start it again", "the sandbox host is closed")
	}
}

func (p places) full(format string, args ...any) error {
	e := unavailable("try again, or raise sandbox.runs or sandbox.queue", format, args...)
	e.RetryAfter = time.Second
	return e
}
