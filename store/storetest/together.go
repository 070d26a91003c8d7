package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
)

// Fifty calls with one new key, at two processes: one executes.
func testOneKey(t *testing.T, f *fixture) {
	stores := []Store{f.Store, f.another(t)}
	for round := range 5 {
		k := fmt.Sprint("k", round)
		var ran, refused atomic.Int32
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				_, err := stores[i%2].Begin(context.Background(), begin(k, transfer))
				switch {
				case err == nil:
					ran.Add(1)
				case sallyport.CodeOf(err) == sallyport.InFlight:
					refused.Add(1)
				default:
					t.Errorf("Begin: %v", err)
				}
			})
		}
		wg.Wait()
		if ran.Load() != 1 || refused.Load() != 49 {
			t.Errorf("%s: %d executions began, %d were refused, want 1 and 49", k, ran.Load(), refused.Load())
		}
	}
	if n := f.count(t, sallyport.EntryIntent); n != 5 {
		t.Errorf("%d intents, want 5", n)
	}
}

// Changes that come at the same moment may share a commit. Each is still whole
// or nothing, whatever becomes of the others.
func testTogether(t *testing.T, f *fixture) {
	approved := map[int]sallyport.Ticket{}
	for i := 0; i < 60; i += 3 {
		k := fmt.Sprint("k", i)
		approved[i] = f.decide(t, f.open(t, k, transfer).ID, true)
	}
	stop := errors.New("the policy changed")
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			k := fmt.Sprint("k", i)
			b := begin(k, transfer)
			switch i % 3 {
			case 0: // spends its ticket, and is then refused
				b.Ticket, b.TicketHash = approved[i].ID, approved[i].Hash
				b.Unchanged = func() error { return stop }
				if _, err := f.Begin(context.Background(), b); err != stop {
					t.Errorf("%s: %v, want what Unchanged returned", k, err)
				}
			case 1: // is whole
				fence, err := f.Begin(context.Background(), b)
				if err == nil {
					err = f.Finish(context.Background(), finish(k, fence, sallyport.Done))
				}
				if err != nil {
					t.Errorf("%s: %v", k, err)
				}
			case 2: // is refused at once
				if err := f.Finish(context.Background(), finish(k, 7, sallyport.Done)); sallyport.CodeOf(err) != sallyport.Conflict {
					t.Errorf("%s: %v", k, err)
				}
			}
		})
	}
	wg.Wait()
	for i := range 60 {
		want := []sallyport.ReservationState{sallyport.AwaitingApproval, sallyport.Done, ""}[i%3]
		if s := f.state(t, fmt.Sprint("k", i)); s != want {
			t.Errorf("k%d is %q, want %q", i, s, want)
		}
	}
	for _, tk := range approved {
		if now, err := f.Ticket(t.Context(), "t", tk.ID); err != nil || now.State != sallyport.TicketApproved {
			t.Errorf("ticket %s is %s, %v", tk.ID, now.State, err)
		}
	}
	if n := f.count(t, sallyport.EntryIntent); n != 20 {
		t.Errorf("%d intents, want 20", n)
	}
}

// hold keeps the writing connection busy, so that all that is asked until release
// shares a transaction.
func (f *fixture) hold(t *testing.T) (release func()) {
	t.Helper()
	started, over, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		b := begin("first", transfer)
		b.Unchanged = func() error { close(started); <-over; return nil }
		if _, err := f.Begin(context.Background(), b); err != nil {
			t.Errorf("first: %v", err)
		}
	}()
	<-started
	return func() {
		time.Sleep(100 * time.Millisecond) // or fewer share it
		close(over)
		<-ended
	}
}

// Changes that share a transaction, and may have read before any of them ran, see
// what those before them did: a key begins once, a ticket is decided once, and no
// more calls are open than may be.
func testForeseen(t *testing.T, f *fixture) {
	tk := f.open(t, "asked", transfer)
	release := f.hold(t) // two calls are open
	var mu sync.Mutex
	var wg sync.WaitGroup
	got := map[string]int{}
	ask := func(what string, call func() error) {
		wg.Go(func() {
			code := "ok"
			if err := call(); err != nil {
				code = string(sallyport.CodeOf(err))
			}
			mu.Lock()
			defer mu.Unlock()
			got[what+" "+code]++
		})
	}
	for range 5 {
		ask("begin", func() error { _, err := f.Begin(context.Background(), begin("same", transfer)); return err })
		ask("decide", func() error {
			_, err := f.Decide(context.Background(), "t", sallyport.Decision{Ticket: tk.ID, Approve: true, By: "ada"}, time.Hour)
			return err
		})
	}
	for i := range OpenCalls {
		ask("room", func() error {
			_, err := f.Begin(context.Background(), begin(fmt.Sprint("room", i), transfer))
			return err
		})
	}
	release()
	wg.Wait()
	if got["begin ok"] != 1 && got["begin rate_limited"] != 5 || got["decide ok"] != 1 || got["decide conflict"] != 4 {
		t.Errorf("more than one of the same: %v", got)
	}
	if n := 2 + got["begin ok"] + got["room ok"]; n != OpenCalls || got["room rate_limited"] != OpenCalls-got["room ok"] {
		t.Errorf("%d open calls, want %d: %v", n, OpenCalls, got)
	}
}

// A text that the database refuses is nobody else's harm.
func testOddTogether(t *testing.T, f *fixture) {
	release := f.hold(t)
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			k := fmt.Sprint("k", i)
			if i == 5 {
				k = "a\x00b"
			}
			if _, err := f.Begin(context.Background(), begin(k, transfer)); err != nil && (i != 5 || sallyport.CodeOf(err) != sallyport.Invalid) {
				t.Errorf("%q: %v", k, err)
			}
		})
	}
	release()
	wg.Wait()
}

// One that panics harms nobody else.
func testPanic(t *testing.T, f *fixture) {
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			b := begin(fmt.Sprint("k", i), transfer)
			if i%4 == 0 {
				b.Unchanged = func() error { panic("of the caller") }
				defer func() {
					if p := recover(); p != "of the caller" {
						t.Errorf("k%d: recovered %v", i, p)
					}
				}()
			}
			if _, err := f.Begin(context.Background(), b); err != nil {
				t.Errorf("k%d: %v", i, err)
			}
		})
	}
	wg.Wait()
	for i := range 20 {
		if s := f.state(t, fmt.Sprint("k", i)); (s == "") != (i%4 == 0) {
			t.Errorf("k%d is %q", i, s)
		}
	}
}

// Erasures among other entries name their own record.
func testEraseTogether(t *testing.T, f *fixture) {
	for i := range 20 {
		must(t, f.AppendEntries(t.Context(), entry(sallyport.EntryOutcome, fmt.Sprint(i))))
	}
	logs, err := f.Logs(t.Context())
	must(t, err)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if err := f.EraseAudit(context.Background(), logs[0].Writer, int64(i), "ada", "asked"); err != nil {
				t.Error(err)
			}
			if err := f.AppendEntries(context.Background(), entry(sallyport.EntryOutcome, "more")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	rep, err := audit.Verify(t.Context(), f.Store, audit.Options{PublicKeys: f.place.PublicKeys()})
	must(t, err)
	if !rep.OK() || len(rep.Logs[0].Erased) != 20 || rep.Logs[0].Entries != 60 {
		t.Errorf("%+v", rep)
	}
}

// A text that one kind of database could not keep is refused or kept, never
// altered.
func testOddTexts(t *testing.T, f *fixture) {
	for i, k := range []string{"a\x00b", "\u202e", "%_'\"\\?$1", "😀", " "} {
		b := begin(k, transfer)
		_, err := f.Begin(t.Context(), b)
		if err != nil {
			if k == "a\x00b" && sallyport.CodeOf(err) == sallyport.Invalid {
				continue
			}
			t.Errorf("%d: %q: %v", i, k, err)
			continue
		}
		if r, err := f.Find(t.Context(), key(k)); err != nil || r == nil || r.Key != k {
			t.Errorf("%d: %q is %+v, %v", i, k, r, err)
		}
	}
}
