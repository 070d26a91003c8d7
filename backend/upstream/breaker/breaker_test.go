package breaker_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport/backend/upstream/breaker"
)

// A clock that only the test moves.
type clock struct{ ns atomic.Int64 }

func (c *clock) now() time.Time { return time.Unix(1_700_000_000, c.ns.Load()) }

func (c *clock) advance(d time.Duration) { c.ns.Add(int64(d)) }

func pass(t *testing.T, b *breaker.Breaker, v breaker.Verdict) {
	t.Helper()
	done, wait, ok := b.Enter()
	if !ok {
		t.Fatalf("refused for %v: %+v", wait, b.Read())
	}
	done(v)
	done(breaker.Failed) // only the first word counts
}

func refused(t *testing.T, b *breaker.Breaker) time.Duration {
	t.Helper()
	_, wait, ok := b.Enter()
	if ok || wait <= 0 {
		t.Fatalf("it passes, or is not told how long to wait (%v): %+v", wait, b.Read())
	}
	return wait
}

func TestOpensAfterFailuresInARow(t *testing.T) {
	var c clock
	b := breaker.New(breaker.Config{Failures: 3, Pause: 8 * time.Second, Now: c.now})
	for _, v := range []breaker.Verdict{
		breaker.Failed, breaker.Failed, breaker.Served, // a row that was broken
		breaker.Failed, breaker.Untold, breaker.Failed, // who gave up says nothing
	} {
		pass(t, b, v)
	}
	if r := b.Read(); r.State != breaker.Closed || r.Failures != 2 {
		t.Fatalf("%+v", r)
	}
	pass(t, b, breaker.Failed)
	if wait := refused(t, b); wait < 4*time.Second || wait > 8*time.Second {
		t.Errorf("wait %v, want half a pause to a whole one", wait)
	}
	if r := b.Read(); r.State != breaker.Open || r.Opened != 1 {
		t.Errorf("%+v", r)
	}
}

func TestOneProbe(t *testing.T) {
	var c clock
	b := breaker.New(breaker.Config{Failures: 1, Pause: 8 * time.Second, Now: c.now})
	pass(t, b, breaker.Failed)
	c.advance(8 * time.Second)
	var passed atomic.Int32
	var probe func(breaker.Verdict)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if done, _, ok := b.Enter(); ok {
				passed.Add(1)
				probe = done
			}
		})
	}
	wg.Wait()
	if passed.Load() != 1 || b.Read().State != breaker.HalfOpen {
		t.Fatalf("%d passed, want the one probe: %+v", passed.Load(), b.Read())
	}
	probe(breaker.Untold) // gave up: the next call is the probe
	done, _, ok := b.Enter()
	if !ok {
		t.Fatal("nobody may be the probe")
	}
	done(breaker.Failed)
	if wait := refused(t, b); wait < 8*time.Second || wait > 16*time.Second {
		t.Errorf("after a failed probe: %v, want twice as long", wait)
	}
	c.advance(16 * time.Second)
	pass(t, b, breaker.Served)
	pass(t, b, breaker.Served)
	if r := b.Read(); r.State != breaker.Closed || r.Failures != 0 {
		t.Errorf("%+v", r)
	}
	pass(t, b, breaker.Failed)
	if wait := refused(t, b); wait > 8*time.Second {
		t.Errorf("once closed it begins anew: %v", wait)
	}
}

// What began before the breaker opened says nothing of how the server is since.
func TestLateWordsDoNotCount(t *testing.T) {
	var c clock
	b := breaker.New(breaker.Config{Failures: 1, Now: c.now})
	early, _, _ := b.Enter()
	other, _, _ := b.Enter()
	pass(t, b, breaker.Failed)
	early(breaker.Served)
	refused(t, b)
	c.advance(time.Second)
	probe, _, ok := b.Enter()
	if !ok {
		t.Fatal("no probe")
	}
	other(breaker.Failed)
	probe(breaker.Served)
	if r := b.Read(); r.State != breaker.Closed {
		t.Errorf("%+v", r)
	}
}

func TestPausesAreBounded(t *testing.T) {
	var c clock
	b := breaker.New(breaker.Config{Failures: 1, Now: c.now})
	for range 100 {
		pass(t, b, breaker.Failed)
		wait := refused(t, b)
		if wait > time.Minute {
			t.Fatalf("wait %v", wait)
		}
		c.advance(wait)
	}
}
