package talk

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A Clock bounds the time of a call that may ask its client something: it stands
// still while it does. It is the context of that call.
type Clock struct {
	context.Context //nolint:containedctx // it is one
	cancel          context.CancelCauseFunc
	now             func() time.Time

	mu     sync.Mutex // guards what follows
	timer  *time.Timer
	left   time.Duration // when it last began to run
	since  time.Time     // when that was
	asking int
}

// NewClock starts a clock. The caller must call Stop.
func NewClock(ctx context.Context, limit time.Duration, now func() time.Time) *Clock {
	c := &Clock{now: now, left: limit, since: now()}
	c.Context, c.cancel = context.WithCancelCause(ctx)
	c.timer = time.AfterFunc(limit, func() { c.cancel(context.DeadlineExceeded) })
	return c
}

// Err is that of the context; context.DeadlineExceeded once the time is up.
func (c *Clock) Err() error {
	err := c.Context.Err()
	if err != nil && errors.Is(context.Cause(c.Context), context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}

// Stop frees what the clock holds, and ends its context.
func (c *Clock) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer.Stop()
	c.cancel(nil)
}

func (c *Clock) pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asking++; c.asking == 1 && c.timer.Stop() {
		c.left -= c.now().Sub(c.since)
	}
}

func (c *Clock) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asking--; c.asking == 0 && c.Context.Err() == nil {
		c.since = c.now()
		c.timer.Reset(max(c.left, time.Millisecond))
	}
}
