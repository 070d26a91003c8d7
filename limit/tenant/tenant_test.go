package tenant_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit/audittest"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/limit"
	"sallyport.dev/sallyport/limit/tenant"
	"sallyport.dev/sallyport/store"
	"sallyport.dev/sallyport/store/postgres"
	"sallyport.dev/sallyport/store/postgres/postgrestest"
	"sallyport.dev/sallyport/store/relational"
	"sallyport.dev/sallyport/test/await"
)

var _ gateway.Limiter = (*tenant.Limiter)(nil)

// A replica is a gateway's limiter, over a database that others have, too.
type replica struct {
	*tenant.Limiter
	store *relational.Store
	stop  func() // as when the gateway is killed
}

func newReplica(t *testing.T, url string, b tenant.Bounds) *replica {
	t.Helper()
	s, err := postgres.Open(t.Context(), url, audittest.Sealer(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recover(t.Context(), s.Writer()); err != nil {
		t.Fatal(err)
	}
	r := &replica{Limiter: tenant.New(limit.New(limit.Config{Rate: -1, Concurrency: -1}), s, b, slog.New(slog.DiscardHandler)), store: s}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(func() { r.stop(); _ = s.Close() })
	return r
}

func of(tenant string, n int) sallyport.Principal {
	return sallyport.Principal{Tenant: tenant, ID: fmt.Sprint("agent", n)}
}

// must waits for a place.
func must(t *testing.T, l gateway.Limiter, who sallyport.Principal) (release func()) {
	t.Helper()
	for end := time.Now().Add(await.Patience); ; time.Sleep(10 * time.Millisecond) {
		release, err := l.Admit(who, 0)
		if err == nil {
			return release
		}
		if e, ok := errors.AsType[*sallyport.Error](err); !ok || e.Code != sallyport.RateLimited && e.Code != sallyport.Unavailable || e.RetryAfter <= 0 || e.Step != sallyport.Admit || time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func admits(l gateway.Limiter, who sallyport.Principal) bool {
	release, err := l.Admit(who, 0)
	if err == nil {
		release()
	}
	return err == nil
}

// FO-42: two gateways have one bound together, in flight and in calls a second;
// another tenant is not concerned; nothing that was aborted is counted for good.
func TestFO42BoundsHoldTogether(t *testing.T) {
	server := postgrestest.New(t)
	t.Run("in flight", func(t *testing.T) {
		url := server.Database(t)
		b := tenant.Bounds{Concurrency: 5}
		two := []*replica{newReplica(t, url, b), newReplica(t, url, b)}
		var open, most, done atomic.Int64
		var all sync.WaitGroup
		for i := range 60 { // slow calls of one tenant, over both
			all.Go(func() {
				release := must(t, two[i%2], of("a", i))
				most.Store(max(most.Load(), open.Add(1)))
				time.Sleep(20 * time.Millisecond)
				open.Add(-1)
				release()
				done.Add(1)
			})
		}
		for range 10 { // the other tenant is admitted at once
			if release, err := two[0].Admit(of("b", 1), 0); sallyport.CodeOf(err) == sallyport.RateLimited {
				t.Errorf("tenant b: %v", err)
			} else if err == nil {
				release()
			}
		}
		all.Wait()
		if most.Load() > 5 || most.Load() < 2 || done.Load() != 60 {
			t.Errorf("%d in flight at once, at most 5 are allowed; %d of 60 done", most.Load(), done.Load())
		}
	})
	t.Run("a second", func(t *testing.T) {
		url := server.Database(t)
		b := tenant.Bounds{Rate: 10, Burst: 10}
		two := []*replica{newReplica(t, url, b), newReplica(t, url, b)}
		begun, got := time.Now(), 0
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for time.Since(begun) < 1500*time.Millisecond {
					if admits(two[i%2], of("a", i)) {
						mu.Lock()
						got++
						mu.Unlock()
					}
					time.Sleep(5 * time.Millisecond)
				}
			})
		}
		all.Wait()
		if most := 10 + int(time.Since(begun).Seconds()*10) + 1; got > most || got < 10 {
			t.Errorf("%d calls in %v, at most %d are allowed", got, time.Since(begun), most)
		}
	})
	t.Run("given back", func(t *testing.T) {
		url := server.Database(t)
		b := tenant.Bounds{Concurrency: 5, Lasts: 6 * time.Second}
		one, other := newReplica(t, url, b), newReplica(t, url, b)
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() {
				for range 60 { // begun and aborted
					must(t, one, of("a", i))()
				}
			})
		}
		all.Wait()
		var held []func()
		for i := range 5 {
			held = append(held, must(t, other, of("a", i)))
		}
		if admits(one, of("a", 9)) {
			t.Error("a sixth is in flight")
		}
		ask := func(sql string) string { return server.SQL(t, url, sql) }
		soonest := ask("SELECT max(until) FROM tenant_calls WHERE tenant = 'a'")
		await.That(t, "its gateway lives, and says so", func() bool {
			return ask("SELECT count(*) FROM tenant_calls WHERE tenant = 'a' AND until > "+soonest) == "5"
		})
		if admits(one, of("a", 9)) {
			t.Error("a long call does not count any more")
		}
		other.stop() // it died, and gives nothing back
		must(t, one, of("a", 9))()
		for _, release := range held {
			release()
		}
	})
}

// broken is a book whose database is away.
type broken struct{ asked atomic.Int64 }

func (b *broken) EnterCall(context.Context, store.TenantCall) (store.TenantRefusal, error) {
	b.asked.Add(1)
	return store.TenantRefusal{}, errors.New("no database")
}
func (b *broken) LeaveCalls(context.Context, []string) error               { return errors.New("no database") }
func (b *broken) KeepCalls(context.Context, []string, time.Duration) error { return nil }

// Where the database does not answer, no call begins, and what the principal took
// is given back.
func TestFO42FailsClosed(t *testing.T) {
	l := tenant.New(limit.New(limit.Config{Concurrency: 1}), &broken{}, tenant.Bounds{Concurrency: 5}, slog.New(slog.DiscardHandler))
	for range 3 {
		_, err := l.Admit(of("a", 1), 0)
		if e, ok := errors.AsType[*sallyport.Error](err); !ok || e.Code != sallyport.Unavailable || e.RetryAfter <= 0 {
			t.Fatalf("%v", err)
		}
	}
}

// full is a book that says no.
type full struct{ broken }

func (b *full) EnterCall(context.Context, store.TenantCall) (store.TenantRefusal, error) {
	b.asked.Add(1)
	return store.TenantRefusal{InFlight: 5}, nil
}

// A tenant that floods does not flood the database.
func TestRefusalsAreRemembered(t *testing.T) {
	book := &full{}
	l := tenant.New(limit.New(limit.Config{Rate: -1}), book, tenant.Bounds{Concurrency: 5}, slog.New(slog.DiscardHandler))
	for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); {
		if admits(l, of("a", 1)) {
			t.Fatal("admitted")
		}
	}
	if n := book.asked.Load(); n > 10 {
		t.Errorf("the database was asked %d times in 200 ms", n)
	}
}
