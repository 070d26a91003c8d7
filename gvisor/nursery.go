package gvisor

import (
	"log/slog"
	"sync"
	"time"
)

const (
	warmIdle  = 10 * time.Minute // without demand, after which a kind's sandboxes are destroyed
	warmSweep = 30 * time.Second
	warmMemo  = 10 * time.Second // over which demand is counted

	// What is started for the next call must not slow down this one: it waits
	// until this one was answered, or takes long.
	refillSoon = 25 * time.Millisecond
	refillLate = 250 * time.Millisecond
)

// A nursery keeps sandboxes warm: of each kind that is asked for as many as
// demand wants, and at most max in all. Nothing waits for it: a call that finds
// no warm sandbox starts a cold one.
type nursery struct {
	host *Host
	max  int

	one sync.Mutex // one sandbox is started at a time: calls come first

	mu     sync.Mutex
	kinds  map[warmKey]*brood
	closed bool

	stop chan struct{}
	work sync.WaitGroup
}

// A brood is the sandboxes of one kind.
type brood struct {
	ready    []*sandbox
	starting int
	takes    []time.Time // the last ones, oldest first
}

func newNursery(h *Host, max int) *nursery {
	n := &nursery{host: h, max: max, kinds: map[warmKey]*brood{}, stop: make(chan struct{})}
	if max > 0 {
		n.work.Go(n.sweep)
	}
	return n
}

// take returns a warm sandbox of the kind, or nil. It counts as demand.
func (n *nursery) take(k warmKey) *sandbox {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.max <= 0 || n.closed {
		return nil
	}
	b := n.kinds[k]
	if b == nil {
		b = &brood{}
		n.kinds[k] = b
	}
	b.takes = append(b.recent(), time.Now())
	for len(b.ready) > 0 {
		s := b.ready[0]
		b.ready = b.ready[1:]
		if s.alive() {
			return s
		}
		n.discard(s)
	}
	return nil
}

// recent are the takes that count as demand, and always the last one.
func (b *brood) recent() []time.Time {
	cut := time.Now().Add(-warmMemo)
	for len(b.takes) > 1 && b.takes[0].Before(cut) {
		b.takes = b.takes[1:]
	}
	return b.takes
}

// wants is how many should wait: one, and one more for each three takes.
func (b *brood) wants() int { return 1 + len(b.recent())/3 }

func (b *brood) last() time.Time { return b.takes[len(b.takes)-1] }

// later has the kind refilled, and returns what to call when the run has ended.
func (n *nursery) later(k warmKey) (ended func()) {
	t := time.AfterFunc(refillLate, func() { n.refill(k) })
	return func() { t.Reset(refillSoon) }
}

// refill starts, in the background, what a kind wants.
func (n *nursery) refill(k warmKey) {
	n.mu.Lock()
	defer n.mu.Unlock()
	b := n.kinds[k]
	if n.closed || b == nil || len(b.ready)+b.starting >= b.wants() || !n.room(k) {
		return
	}
	b.starting++
	n.work.Go(func() {
		if n.start(k, b) {
			n.refill(k)
		}
	})
}

// start starts one sandbox, and tells whether it could.
func (n *nursery) start(k warmKey, b *brood) bool {
	n.one.Lock()
	s, err := n.host.hatch(k)
	n.one.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	b.starting--
	switch {
	case err != nil:
		if !n.closed {
			slog.Warn("no sandbox could be kept warm", "program", k.program, "err", err)
		}
		return false
	case n.closed || n.kinds[k] != b:
		n.discard(s)
	default:
		b.ready = append(b.ready, s)
	}
	return true
}

// room makes place for one more of a kind, where need be at the cost of the
// kind that was longest without demand.
// Preconditions: n.mu is held.
func (n *nursery) room(k warmKey) bool {
	total := 0
	var oldest *brood
	for key, b := range n.kinds {
		total += len(b.ready) + b.starting
		if key != k && len(b.ready) > 0 && (oldest == nil || b.last().Before(oldest.last())) {
			oldest = b
		}
	}
	if total < n.max {
		return true
	}
	if oldest == nil || !oldest.last().Before(n.kinds[k].last()) {
		return false
	}
	n.discard(oldest.ready[0])
	oldest.ready = oldest.ready[1:]
	return true
}

// discard destroys a waiting sandbox in the background.
func (n *nursery) discard(s *sandbox) {
	n.work.Go(func() { logDiscard(n.host.discard(s)) })
}

// sweep destroys what nobody asks for any more.
func (n *nursery) sweep() {
	t := time.NewTicker(warmSweep)
	defer t.Stop()
	for {
		select {
		case <-n.stop:
			return
		case <-t.C:
			n.forget(time.Now().Add(-warmIdle))
		}
	}
}

// forget destroys the sandboxes of kinds without demand since cut.
func (n *nursery) forget(cut time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for k, b := range n.kinds {
		if b.last().Before(cut) {
			for _, s := range b.ready {
				n.discard(s)
			}
			delete(n.kinds, k)
		}
	}
}

// close destroys every waiting sandbox and returns when they are gone. It is
// idempotent.
func (n *nursery) close() {
	n.mu.Lock()
	if !n.closed {
		n.closed = true
		close(n.stop)
	}
	for k, b := range n.kinds {
		for _, s := range b.ready {
			n.discard(s)
		}
		delete(n.kinds, k)
	}
	n.mu.Unlock()
	n.work.Wait()
}

// Waiting tells how many sandboxes wait, warm, for a request.
func (h *Host) Waiting() int {
	h.warm.mu.Lock()
	defer h.warm.mu.Unlock()
	n := 0
	for _, b := range h.warm.kinds {
		n += len(b.ready)
	}
	return n
}
