package bulk_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sallyport.dev/sallyport/limit/bulk"
)

const mib = 1 << 20

func TestRoomIsBounded(t *testing.T) {
	const size, each = 32 * mib, 9 * mib
	r := bulk.New(size)
	var now, most atomic.Int64
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			p := r.Part(strconv.Itoa(i))
			defer p.Close()
			if err := p.Take(t.Context(), each); err != nil {
				t.Error(err)
			}
			n := now.Add(each)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			time.Sleep(time.Millisecond)
			now.Add(-each)
		})
	}
	all.Wait()
	if m := most.Load(); m > size || m < 2*each {
		t.Errorf("%d bytes at once", m)
	}
}

func TestWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := bulk.New(8 * mib)
		a, b, c := r.Part("a"), r.Part("b"), r.Part("c")
		take := func(p *bulk.Part, n int) <-chan error {
			done := make(chan error, 1)
			go func() { done <- p.Take(t.Context(), n) }()
			synctest.Wait()
			return done
		}
		has := func(done <-chan error) bool { return len(done) == 1 && <-done == nil }
		if !has(take(a, 100*mib)) {
			t.Fatal("one that is larger than the room does not get all of it")
		}
		if !has(take(b, bulk.Light)) {
			t.Error("a light one waits")
		}
		first := take(b, 5*mib)
		second := take(c, 2*mib)
		if has(first) || has(second) {
			t.Error("there is more room than there is")
		}
		if !has(take(a, 4*mib)) {
			t.Error("less is not there at once")
		}
		if has(second) {
			t.Error("who came later is first")
		}
		a.Close()
		synctest.Wait()
		if !has(first) || !has(second) {
			t.Error("what was given back is lost")
		}
		if !has(take(a, 8*mib)) {
			t.Error("what has ended waits")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		d := r.Part("d")
		if err := d.Take(ctx, 8*mib); err == nil {
			t.Error("room that others have")
		}
		more := take(b, 6*mib) // gives its five back first
		if !has(more) {
			t.Error("who wants more waits for itself")
		}
		b.Close()
		c.Close()
		if !has(take(d, 8*mib)) {
			t.Error("who gave up keeps a place")
		}
		if err := bulk.New(1).Part("s").Take(t.Context(), 0); err != nil {
			t.Error(err)
		}
		var none *bulk.Room
		p := none.Part("s")
		if err := p.Take(t.Context(), 1<<40); err != nil {
			t.Error(err)
		}
		p.Close()
	})
}

// Room that is taken twice at the same time for one call is not lost.
func TestTakenTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := bulk.New(8 * mib)
		all, twice := r.Part("all"), r.Part("twice")
		if err := all.Take(t.Context(), 8*mib); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			go func() { _ = twice.Take(t.Context(), 3*mib) }()
		}
		synctest.Wait()
		all.Close()
		synctest.Wait()
		twice.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Part("s").Take(ctx, 8*mib); err != nil {
			t.Error("some of the room is nobody's")
		}
	})
}

// Answers of one server that come slowly keep none of another's waiting.
func TestAServerTakesNobodysRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := bulk.New(32 * mib)
		take := func(server string) (has bool) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return r.Part(server).Take(ctx, 8*mib) == nil
		}
		for i, want := range []bool{true, true, false, false} {
			if got := take("slow"); got != want {
				t.Errorf("its answer %d has room: %t", i, got)
			}
		}
		go take("slow") // waits in front
		synctest.Wait()
		began := time.Now()
		if !take("other") || time.Since(began) > 0 {
			t.Error("another server's answer waits")
		}
	})
}
