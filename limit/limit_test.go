package limit_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/limit"
)

var _ gateway.Limiter = (*limit.Limiter)(nil)

// A clock that only the test moves.
type clock struct{ ns atomic.Int64 }

func (c *clock) now() time.Time          { return time.Unix(1_700_000_000, c.ns.Load()) }
func (c *clock) advance(d time.Duration) { c.ns.Add(int64(d)) }

func who(id string) sallyport.Principal {
	return sallyport.Principal{Tenant: sallyport.DefaultTenant, ID: id}
}

func wantCode(t *testing.T, err error, code sallyport.Code) *sallyport.Error {
	t.Helper()
	e, ok := errors.AsType[*sallyport.Error](err)
	if !ok || e.Code != code || e.Step != sallyport.Admit {
		t.Fatalf("error %v, want code %s at admit", err, code)
	}
	return e
}

func TestRate(t *testing.T) {
	var c clock
	l := limit.New(limit.Config{Rate: 10, Burst: 3, Now: c.now})
	for i := range 3 {
		release, err := l.Admit(who("a"), 10)
		if err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		release()
	}
	_, err := l.Admit(who("a"), 10)
	if e := wantCode(t, err, sallyport.RateLimited); e.RetryAfter != 100*time.Millisecond {
		t.Errorf("retry after %v, want 100ms", e.RetryAfter)
	}
	if _, err := l.Admit(who("b"), 10); err != nil {
		t.Errorf("another principal is limited too: %v", err)
	}
	other := sallyport.Principal{Tenant: "other", ID: "a"}
	if _, err := l.Admit(other, 10); err != nil {
		t.Errorf("the same id of another tenant is limited too: %v", err)
	}
	c.advance(100 * time.Millisecond)
	if _, err := l.Admit(who("a"), 10); err != nil {
		t.Errorf("after retry_after: %v", err)
	}
}

func TestBytes(t *testing.T) {
	var c clock
	l := limit.New(limit.Config{Body: 1000, Bytes: 1000, Now: c.now})
	_, err := l.Admit(who("a"), 1001)
	wantCode(t, err, sallyport.TooLarge)
	_, err = l.Admit(who("a"), -1)
	wantCode(t, err, sallyport.TooLarge)
	if _, err := l.Admit(who("a"), 1000); err != nil {
		t.Fatalf("a request of the allowed size: %v", err)
	}
	_, err = l.Admit(who("a"), 500)
	if e := wantCode(t, err, sallyport.RateLimited); e.RetryAfter != 500*time.Millisecond {
		t.Errorf("retry after %v, want 500ms", e.RetryAfter)
	}
}

func TestTO14_SlotsBelongToThePrincipal(t *testing.T) {
	l := limit.New(limit.Config{Concurrency: 2, Rate: -1})
	r1, err1 := l.Admit(who("a"), 0)
	_, err2 := l.Admit(who("a"), 0)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	_, err := l.Admit(who("a"), 0)
	if e := wantCode(t, err, sallyport.RateLimited); e.RetryAfter <= 0 {
		t.Error("no retry_after")
	}
	r1()
	r1() // the second call must not free a second slot
	if _, err := l.Admit(who("a"), 0); err != nil {
		t.Errorf("after a release: %v", err)
	}
	_, err = l.Admit(who("a"), 0)
	wantCode(t, err, sallyport.RateLimited)
}

func TestTotalInFlight(t *testing.T) {
	l := limit.New(limit.Config{Total: 2})
	r1, _ := l.Admit(who("a"), 0)
	if _, err := l.Admit(who("b"), 0); err != nil {
		t.Fatal(err)
	}
	_, err := l.Admit(who("c"), 0)
	wantCode(t, err, sallyport.RateLimited)
	r1()
	if _, err := l.Admit(who("c"), 0); err != nil {
		t.Error(err)
	}
}

func TestARefusalTakesNothing(t *testing.T) {
	var c clock
	l := limit.New(limit.Config{Rate: 1, Burst: 1, Body: 10, Bytes: 10, Concurrency: 1, Now: c.now})
	release, err := l.Admit(who("a"), 10)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err := l.Admit(who("a"), 10); err == nil {
			t.Fatal("admitted beyond the limit")
		}
	}
	release()
	c.advance(time.Second)
	if _, err := l.Admit(who("a"), 10); err != nil {
		t.Errorf("refused calls were counted: %v", err)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	var c clock
	l := limit.New(limit.Config{Principals: 640, Rate: 1, Burst: 5, Total: -1, Now: c.now})
	held, err := l.Admit(who("held"), 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20_000 {
		if release, err := l.Admit(who(fmt.Sprint("p", i)), 0); err == nil {
			release()
		}
		c.advance(time.Millisecond)
	}
	if n := l.Principals(); n > 640 {
		t.Errorf("%d principals remembered, want at most 640", n)
	}
	held() // panics if the principal with a call in flight was evicted
}

// When every place is taken by a principal with a call in flight, new ones are
// refused rather than the bound or somebody's count given up.
func TestFullOfActivePrincipals(t *testing.T) {
	l := limit.New(limit.Config{Principals: 64, Total: -1})
	refused := 0
	for i := range 1000 {
		if _, err := l.Admit(who(fmt.Sprint("p", i)), 0); err != nil {
			wantCode(t, err, sallyport.RateLimited)
			refused++
		}
	}
	if n := l.Principals(); n > 64 || refused != 1000-n {
		t.Errorf("%d remembered, %d refused", n, refused)
	}
}

func TestConcurrentUseKeepsTheBound(t *testing.T) {
	const slots = 8
	l := limit.New(limit.Config{Concurrency: slots, Rate: -1})
	var in, most, admitted atomic.Int64
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for range 2000 {
				release, err := l.Admit(who("a"), 1)
				if err != nil {
					continue
				}
				n := in.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				admitted.Add(1)
				in.Add(-1)
				release()
			}
		})
	}
	wg.Wait()
	if most.Load() > slots || admitted.Load() == 0 {
		t.Errorf("%d in flight at once, want at most %d (%d admitted)", most.Load(), slots, admitted.Load())
	}
	for range slots {
		if _, err := l.Admit(who("a"), 1); err != nil {
			t.Fatalf("a slot was lost: %v", err)
		}
	}
}

func BenchmarkAdmit(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l := limit.New(limit.Config{Rate: -1, Bytes: 1 << 40, Principals: 1 << 20})
			ps := make([]sallyport.Principal, n)
			for i := range ps {
				ps[i] = who(fmt.Sprint("agent-", i))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				release, err := l.Admit(ps[i%n], 1024)
				if err != nil {
					b.Fatal(err)
				}
				release()
			}
		})
	}
}
