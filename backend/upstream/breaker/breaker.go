// Package breaker keeps calls away from a server that does not serve.
//
// A breaker is closed: calls pass. So many failures in a row open it: calls are
// refused at once, and told when to come back. When that time has come one call
// passes, the probe, and what becomes of it closes the breaker or opens it again
// for twice as long. A breaker sends nothing and repeats nothing: it only says
// who may pass, so no call is ever made twice because of it.
package breaker

import (
	"cmp"
	"math/rand/v2"
	"sync"
	"time"

	"sallyport.dev/sallyport/backend/upstream/pace"
)

// A State says who may pass.
type State string

// The states of a breaker.
const (
	Closed   State = "closed"    // all
	Open     State = "open"      // nobody
	HalfOpen State = "half_open" // one, and it is on its way
)

// A Verdict is what became of a call, as far as it tells of the server.
type Verdict int

// The verdicts.
const (
	Untold Verdict = iota // nothing: it was not sent, or its caller gave up
	Served                // the server answered, whatever it said
	Failed                // it was not reached, broke off, or does not answer at all
)

// Config says when a breaker opens. A zero field means the default.
type Config struct {
	Failures int           // in a row that open it, 5
	Pause    time.Duration // until the first probe, 1 s, doubled with each probe that fails
	Most     time.Duration // 1 min
	Now      func() time.Time
}

// A Breaker is safe for concurrent use.
type Breaker struct {
	c Config

	mu       sync.Mutex // guards what follows
	state    State
	failures int // in a row
	opened   int // times in a row
	until    time.Time
	era      int // counts changes of state: what began in another one has no say
	ever     uint64
}

// New returns a closed breaker.
func New(c Config) *Breaker {
	c.Failures = cmp.Or(c.Failures, 5)
	c.Pause, c.Most = cmp.Or(c.Pause, time.Second), cmp.Or(c.Most, time.Minute)
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Breaker{c: c, state: Closed}
}

// Enter lets a call pass, whose verdict done takes, once; or says how long to
// wait.
func (b *Breaker) Enter() (done func(Verdict), wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.c.Now()
	switch {
	case b.state == HalfOpen:
		return nil, b.c.Pause, false
	case b.state == Open && now.Before(b.until):
		return nil, b.until.Sub(now), false
	case b.state == Open:
		b.move(HalfOpen)
	}
	era, once := b.era, sync.Once{}
	return func(v Verdict) { once.Do(func() { b.take(era, v) }) }, 0, true
}

// Preconditions: b.mu is held.
func (b *Breaker) move(to State) { b.state, b.era = to, b.era+1 }

func (b *Breaker) take(era int, v Verdict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case era != b.era:
	case v == Served:
		b.failures, b.opened = 0, 0
		if b.state != Closed {
			b.move(Closed)
		}
	case v == Failed:
		b.failures++
		if b.state == HalfOpen || b.failures >= b.c.Failures {
			b.open()
		}
	case b.state == HalfOpen: // a probe that tells nothing: the next call is one
		b.move(Open)
	}
}

// open keeps everybody out for half a pause, and up to another half: gateways
// that lost a server together do not come back to it together.
// Preconditions: b.mu is held.
func (b *Breaker) open() {
	b.opened++
	b.ever++
	half := pace.Span(b.opened, b.c.Pause, b.c.Most) / 2
	b.until = b.c.Now().Add(half + rand.N(half+1)) //nolint:gosec // jitter needs no secrecy
	b.move(Open)
}

// A Reading is how a breaker is at one moment.
type Reading struct {
	State    State
	Failures int           // in a row
	Wait     time.Duration // until the next probe, if open
	Opened   uint64        // how often it has ever opened
}

// Read returns how the breaker is.
func (b *Breaker) Read() Reading {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := Reading{State: b.state, Failures: b.failures, Opened: b.ever}
	if b.state == Open {
		r.Wait = max(0, b.until.Sub(b.c.Now()))
	}
	return r
}
