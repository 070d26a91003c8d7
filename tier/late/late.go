// Package late makes tiers that are opened when somebody first needs them: a
// sandbox host is up before they are, and one that cannot be opened lacks its
// reason, and nothing else.
package late

import (
	"context"
	"errors"
	"sync"
	"time"

	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/stay"
)

// again is how long a tier that could not be opened is not tried again.
const again = 10 * time.Second

// An Opened is a tier with what it holds.
type Opened interface {
	tier.Tier
	// Close ends all that runs in it. It may be repeated.
	Close() error
}

// A Tier implements tier.Tier.
type Tier struct {
	open func(ctx context.Context) (Opened, error)
	life context.Context //nolint:containedctx // of the tier itself: ends with Close
	end  context.CancelFunc

	mu      sync.Mutex
	opening chan struct{} // closed when it is over; nil: nobody opens
	opened  Opened        // nil: not yet
	err     error         // of the last try
	tried   time.Time
}

var _ Opened = (*Tier)(nil)

// errClosed is said once the host ends.
var errClosed = tier.Unavailable("try again in a moment", "the sandbox host is stopping")

// New returns a tier that open opens, in a goroutine of its own. Its error says
// what is lacking; it is asked again a while later. ctx ends with Close.
func New(open func(ctx context.Context) (Opened, error)) *Tier {
	life, end := context.WithCancel(context.Background())
	return &Tier{open: open, life: life, end: end}
}

// Lacking is a tier that never can be had.
func Lacking(why error) *Tier {
	return New(func(context.Context) (Opened, error) { return nil, why })
}

// Begin opens it though nobody needs it yet, and does not wait.
func (t *Tier) Begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begin()
}

// begin makes sure that somebody opens it, unless it is open, was tried a moment
// ago, or is closed.
// Preconditions: mu is held.
func (t *Tier) begin() (wait chan struct{}) {
	if t.opened != nil || t.life.Err() != nil || t.opening == nil && time.Since(t.tried) < again {
		return nil
	}
	if t.opening == nil {
		t.opening = make(chan struct{})
		go t.try(t.opening)
	}
	return t.opening
}

func (t *Tier) try(done chan struct{}) {
	opened, err := t.open(t.life)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.opened, t.err, t.tried, t.opening = opened, err, time.Now(), nil
	if err != nil {
		t.opened = nil
	}
	close(done)
}

// get waits until it is open, or cannot be.
func (t *Tier) get(ctx context.Context) (Opened, error) {
	t.mu.Lock()
	wait := t.begin()
	t.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.life.Err() != nil:
		return nil, errClosed
	case t.opened == nil && t.err == nil:
		return nil, errors.New("a tier without an error and without itself")
	}
	return t.opened, t.err
}

// Probe implements tier.Tier.
func (t *Tier) Probe(ctx context.Context, image string) (string, error) {
	o, err := t.get(ctx)
	if err != nil {
		return "", err
	}
	return o.Probe(ctx, image)
}

// Run implements tier.Tier.
func (t *Tier) Run(ctx context.Context, r tier.Request) (tier.Result, error) {
	o, err := t.get(ctx)
	if err != nil {
		return tier.Result{}, err
	}
	return o.Run(ctx, r)
}

// Keep implements stay.Host, where the tier that is opened does.
func (t *Tier) Keep(ctx context.Context, r tier.Request) (stay.Kept, error) {
	o, err := t.get(ctx)
	if err != nil {
		return stay.Kept{}, err
	}
	h, ok := o.(stay.Host)
	if !ok {
		return stay.Kept{}, tier.Invalid("run it without a session, or in another tier", "this tier keeps no sessions")
	}
	return h.Keep(ctx, r)
}

// now is what is open now, or nil.
func (t *Tier) now() Opened {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.opened
}

// List implements tier.Tier.
func (t *Tier) List() []tier.Running {
	if o := t.now(); o != nil {
		return o.List()
	}
	return nil
}

// Kill implements tier.Tier.
func (t *Tier) Kill(id string) bool {
	o := t.now()
	return o != nil && o.Kill(id)
}

// Close ends all that runs in it, and waits for whoever opens it: what comes of
// that is closed too.
func (t *Tier) Close() error {
	t.end()
	t.mu.Lock()
	wait := t.opening
	t.mu.Unlock()
	if wait != nil {
		<-wait
	}
	if o := t.now(); o != nil {
		return o.Close()
	}
	return nil
}
