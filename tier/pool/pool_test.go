package pool

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/await"
)

// A maker makes numbered things and remembers which ended.
type maker struct {
	mu    sync.Mutex
	made  int
	dead  []string // not alive
	ended []string
	err   error

	now atomic.Int32 // that are being made
	two atomic.Bool  // at once
}

func (m *maker) care() Care[string, string] {
	return Care[string, string]{
		Make: func(k string) (string, error) {
			if m.now.Add(1) > 1 {
				m.two.Store(true)
			}
			defer m.now.Add(-1)
			time.Sleep(time.Millisecond)
			m.mu.Lock()
			defer m.mu.Unlock()
			m.made++
			return fmt.Sprint(k, m.made), m.err
		},
		Alive: func(t string) bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			return !slices.Contains(m.dead, t)
		},
		Discard: func(t string) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.ended = append(m.ended, t)
		},
	}
}

// What is taken is of the kind, was never taken before, and still lives.
func TestTakenOnce(t *testing.T) {
	m := &maker{}
	p := New(3, m.care())
	defer p.Close()
	seen := map[string]bool{}
	for range 20 {
		got, ok := p.Take("a")
		if ok && (got[0] != 'a' || seen[got]) {
			t.Errorf("taken: %s, before: %v", got, seen)
		}
		seen[got] = true
		p.Later("a")()
		await.That(t, "none is ready", func() bool { return p.Ready() > 0 })
	}
	if _, ok := p.Take("b"); ok {
		t.Error("another kind was taken")
	}
	for p.Ready() > 0 {
		p.mu.Lock()
		first := p.kinds["a"].ready[0]
		p.mu.Unlock()
		m.mu.Lock()
		m.dead = append(m.dead, first)
		m.mu.Unlock()
		if got, ok := p.Take("a"); ok && got == first {
			t.Errorf("%s was taken, and is dead", got)
		}
	}
	await.That(t, "the dead are not ended", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.ended) == len(m.dead)
	})
}

// There are never more than max; a kind that is asked for has the place of one
// that is not; what nobody wants ends, and all at the close.
func TestBounds(t *testing.T) {
	m := &maker{}
	p := New(2, m.care())
	want := func(k string, takes int) {
		for range takes {
			p.Take(k)
		}
		p.refill(k)
	}
	want("a", 9)
	await.That(t, "a is not ready", func() bool { return p.Ready() == 2 })
	want("b", 9)
	await.That(t, "b has no place", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.kinds["a"].ready) == 0 && len(p.kinds["b"].ready) == 2
	})
	p.forget(time.Now().Add(time.Hour))
	if p.Ready() != 0 {
		t.Error("what nobody wants is kept")
	}
	want("a", 1)
	p.Close()
	p.Close()
	if len(m.ended) != m.made || p.Ready() != 0 || m.two.Load() {
		t.Errorf("%d made, %d ended, two at once: %v", m.made, len(m.ended), m.two.Load())
	}
	if _, ok := p.Take("a"); ok {
		t.Error("taken after the close")
	}
}

// Where nothing can be made, nothing is tried again until somebody asks.
func TestCannotMake(t *testing.T) {
	m := &maker{err: errors.New("no")}
	p := New(2, m.care())
	defer p.Close()
	p.Take("a")
	p.refill("a")
	await.That(t, "it was not tried", func() bool { m.mu.Lock(); defer m.mu.Unlock(); return m.made == 1 })
	if _, ok := p.Take("a"); ok || p.Ready() != 0 {
		t.Error("something is ready")
	}
}
