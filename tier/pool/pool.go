// Package pool keeps things ready that take time to make: of each kind that is
// asked for as many as demand wants, and so many in all. Each is taken once.
package pool

import (
	"log/slog"
	"sync"
	"time"
)

const (
	idle  = 10 * time.Minute // without demand, after which a kind's things are discarded
	sweep = 30 * time.Second
	memo  = 10 * time.Second // over which demand is counted

	// What is made for the next call must not slow down this one: it waits until
	// this one was answered, or takes long.
	refillSoon = 25 * time.Millisecond
	refillLate = 250 * time.Millisecond
)

// Care is how things of kinds K are made and kept.
type Care[K comparable, T any] struct {
	Make    func(K) (T, error) // one at a time: calls come first
	Alive   func(T) bool       // whether it may still be taken; quick
	Discard func(T)            // ends it
}

// A Pool keeps at most max things ready. Nothing waits for it: who finds nothing
// of its kind makes its own. It is safe for concurrent use.
type Pool[K comparable, T any] struct {
	care Care[K, T]
	max  int

	one sync.Mutex // see Care.Make

	mu     sync.Mutex
	kinds  map[K]*brood[T]
	closed bool

	stop chan struct{}
	work sync.WaitGroup
}

// A brood is the things of one kind.
type brood[T any] struct {
	ready  []T
	making int
	takes  []time.Time // the last ones, oldest first
}

// New makes a pool of at most max things; 0 keeps none.
func New[K comparable, T any](max int, c Care[K, T]) *Pool[K, T] {
	p := &Pool[K, T]{care: c, max: max, kinds: map[K]*brood[T]{}, stop: make(chan struct{})}
	if max > 0 {
		p.work.Go(p.sweep)
	}
	return p
}

// Take returns a thing of the kind, if one is ready. It counts as demand.
func (p *Pool[K, T]) Take(k K) (t T, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.max <= 0 || p.closed {
		return t, false
	}
	b := p.kinds[k]
	if b == nil {
		b = &brood[T]{}
		p.kinds[k] = b
	}
	b.takes = append(b.recent(), time.Now())
	for len(b.ready) > 0 {
		t := b.ready[0]
		b.ready = b.ready[1:]
		if p.care.Alive(t) {
			return t, true
		}
		p.discard(t)
	}
	return t, false
}

// recent are the takes that count as demand, and always the last one.
func (b *brood[T]) recent() []time.Time {
	cut := time.Now().Add(-memo)
	for len(b.takes) > 1 && b.takes[0].Before(cut) {
		b.takes = b.takes[1:]
	}
	return b.takes
}

// wants is how many should be ready: one, and one more for each three takes.
func (b *brood[T]) wants() int { return 1 + len(b.recent())/3 }

func (b *brood[T]) last() time.Time { return b.takes[len(b.takes)-1] }

// Later has the kind refilled, and returns what to call when the call that took
// has its answer.
func (p *Pool[K, T]) Later(k K) (answered func()) {
	t := time.AfterFunc(refillLate, func() { p.refill(k) })
	return func() { t.Reset(refillSoon) }
}

// refill makes, in the background, what a kind wants.
func (p *Pool[K, T]) refill(k K) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.kinds[k]
	if p.closed || b == nil || len(b.ready)+b.making >= b.wants() || !p.room(k) {
		return
	}
	b.making++
	p.work.Go(func() {
		if p.make(k, b) {
			p.refill(k)
		}
	})
}

// make makes one thing, and tells whether it could.
func (p *Pool[K, T]) make(k K, b *brood[T]) bool {
	p.one.Lock()
	t, err := p.care.Make(k)
	p.one.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	b.making--
	switch {
	case err != nil:
		if !p.closed {
			slog.Warn("nothing could be kept ready", "kind", k, "err", err)
		}
		return false
	case p.closed || p.kinds[k] != b:
		p.discard(t)
	default:
		b.ready = append(b.ready, t)
	}
	return true
}

// room makes place for one more of a kind, where need be at the cost of the
// kind that was longest without demand.
// Preconditions: p.mu is held.
func (p *Pool[K, T]) room(k K) bool {
	total := 0
	var oldest *brood[T]
	for key, b := range p.kinds {
		total += len(b.ready) + b.making
		if key != k && len(b.ready) > 0 && (oldest == nil || b.last().Before(oldest.last())) {
			oldest = b
		}
	}
	if total < p.max {
		return true
	}
	if oldest == nil || !oldest.last().Before(p.kinds[k].last()) {
		return false
	}
	p.discard(oldest.ready[0])
	oldest.ready = oldest.ready[1:]
	return true
}

// discard ends a thing in the background.
func (p *Pool[K, T]) discard(t T) { p.work.Go(func() { p.care.Discard(t) }) }

// sweep discards what nobody asks for any more.
func (p *Pool[K, T]) sweep() {
	t := time.NewTicker(sweep)
	defer t.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-t.C:
			p.forget(time.Now().Add(-idle))
		}
	}
}

// forget discards the things of kinds without demand since cut.
func (p *Pool[K, T]) forget(cut time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, b := range p.kinds {
		if b.last().Before(cut) {
			p.drop(k, b)
		}
	}
}

// Preconditions: p.mu is held.
func (p *Pool[K, T]) drop(k K, b *brood[T]) {
	for _, t := range b.ready {
		p.discard(t)
	}
	delete(p.kinds, k)
}

// Close discards all and returns when that is done. It is idempotent.
func (p *Pool[K, T]) Close() {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.stop)
	}
	for k, b := range p.kinds {
		p.drop(k, b)
	}
	p.mu.Unlock()
	p.work.Wait()
}

// Ready tells how many things are ready, of all kinds.
func (p *Pool[K, T]) Ready() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, b := range p.kinds {
		n += len(b.ready)
	}
	return n
}
