package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/store"
)

// The bounds with which a Place must open its store.
const (
	OpenCalls   = 60
	KeptOutputs = 1 << 20
)

// call begins a call and ends it.
func (f *fixture) call(t *testing.T, b gateway.Begin, state sallyport.ReservationState) {
	t.Helper()
	fence, err := f.Begin(t.Context(), b)
	must(t, err)
	must(t, f.Finish(t.Context(), gateway.Finish{Key: b.Key, Fence: fence, State: state, Output: json.RawMessage(`{"content":[]}`),
		Outcome: entry(sallyport.EntryOutcome, b.CallID)}))
}

func testPruneMany(t *testing.T, f *fixture) {
	for i := range 230 { // more than one batch
		f.call(t, begin(fmt.Sprint("k", i), transfer), sallyport.Done)
	}
	f.call(t, begin("lost", transfer), sallyport.Unknown)
	_, err := f.Begin(t.Context(), begin("runs", transfer))
	must(t, err)
	f.pass(time.Hour)
	stop := make(chan struct{})
	var calls atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() { // calls go on in between
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := f.Begin(t.Context(), begin(fmt.Sprint("new", i), transfer)); err != nil && sallyport.CodeOf(err) != sallyport.RateLimited {
				t.Error(err)
				return
			}
			calls.Add(1)
		}
	})
	n, err := f.Prune(t.Context(), f.now())
	close(stop)
	wg.Wait()
	if n != 230 || err != nil || calls.Load() == 0 {
		t.Errorf("Prune = %d, %v, with %d calls in between; want 230", n, err, calls.Load())
	}
	if f.state(t, "lost") != sallyport.Unknown || f.state(t, "runs") != sallyport.Unknown || f.state(t, "k1") != "" {
		t.Errorf("lost is %q, runs is %q, k1 is %q", f.state(t, "lost"), f.state(t, "runs"), f.state(t, "k1"))
	}
	if n, err := f.Prune(t.Context(), f.now()); n != 0 || err != nil {
		t.Errorf("Prune again = %d, %v", n, err)
	}
}

// TO-37: keys that are parked block their own principal, in bounds, and nobody
// else.
func testOpenCalls(t *testing.T, f *fixture) {
	refused := func(what string, err error) {
		t.Helper()
		wantCode(t, what, err, sallyport.RateLimited)
		if e, ok := errors.AsType[*sallyport.Error](err); ok && e.RetryAfter <= 0 {
			t.Errorf("%s: no RetryAfter", what)
		}
	}
	for i := range OpenCalls / 3 {
		_, err := f.Begin(t.Context(), begin(fmt.Sprint("runs", i), transfer))
		must(t, err)
		f.open(t, fmt.Sprint("waits", i), transfer)
		f.call(t, begin(fmt.Sprint("lost", i), transfer), sallyport.Unknown)
	}
	_, err := f.Begin(t.Context(), begin("more", transfer))
	refused("one more call", err)
	_, err = f.Open(t.Context(), ticket("more", transfer), key("more"), fingerprint(transfer), entry(sallyport.EntryTicket, "call-more"))
	refused("one more ticket", err)
	if f.state(t, "more") != "" {
		t.Error("a refused call left a reservation")
	}
	other := begin("more", transfer)
	other.Key.Principal = "bob"
	_, err = f.Begin(t.Context(), other)
	wantCode(t, "another principal", err, "")
	other.Key.Principal, other.Key.Tenant = "agent", "u"
	_, err = f.Begin(t.Context(), other)
	wantCode(t, "another tenant", err, "")
	// What is open already goes on, and what ends makes room.
	tk, err := f.Ticket(t.Context(), "t", "tk-waits0")
	must(t, err)
	fence, err := f.run(t, f.decide(t, tk.ID, true), transfer)
	wantCode(t, "an approved call", err, "")
	must(t, f.Finish(t.Context(), finish("waits0", fence, sallyport.Done)))
	f.call(t, begin("room", transfer), sallyport.Done)
	f.call(t, begin("room2", transfer), sallyport.Failed)
	_, err = f.Begin(t.Context(), begin("room2", transfer))
	wantCode(t, "the last place", err, "")
	_, err = f.Begin(t.Context(), begin("more", transfer))
	refused("full again", err)
	f.decide(t, "tk-waits1", false) // a closed question is not open
	must(t, f.Resolve(t.Context(), store.Resolution{Key: key("lost0"), State: sallyport.Done, By: "ada", Reason: "seen"}))
	for _, k := range []string{"more", "more2"} {
		_, err = f.Begin(t.Context(), begin(k, transfer))
		wantCode(t, "after a rejection and a resolution", err, "")
	}
	_, err = f.Begin(t.Context(), begin("more3", transfer))
	refused("full once more", err)
}

// Old outputs make room for new ones; their calls stay done.
func testKeptOutputs(t *testing.T, f *fixture) {
	put := func(who, k string, size int) {
		t.Helper()
		b := begin(k, transfer)
		b.Key.Principal = who
		fence, err := f.Begin(t.Context(), b)
		must(t, err)
		fin := finish(k, fence, sallyport.Done)
		fin.Key.Principal = who
		fin.Output = json.RawMessage(`{"content":[{"type":"text","text":"` + strings.Repeat("x", size) + `"}]}`)
		must(t, f.Finish(t.Context(), fin))
		f.pass(time.Second)
	}
	kept := func(who, k string) bool {
		t.Helper()
		id := key(k)
		id.Principal = who
		r, err := f.Find(t.Context(), id)
		must(t, err)
		if r == nil || r.State != sallyport.Done {
			t.Fatalf("%s of %s is %+v", k, who, r)
		}
		return r.Output != nil
	}
	put("bob", "k0", 1000)
	for i := range 10 {
		put("agent", fmt.Sprint("k", i), KeptOutputs/4)
	}
	for i := range 10 {
		if want := i >= 7; kept("agent", fmt.Sprint("k", i)) != want {
			t.Errorf("output %d of 10, of which 3 have room, is kept: %v", i, !want)
		}
	}
	if !kept("bob", "k0") {
		t.Error("one principal's outputs pushed another's out")
	}
	put("agent", "whole", KeptOutputs+1) // more than there is room for
	if kept("agent", "whole") {
		t.Error("an output larger than all room is kept")
	}
	_, err := f.Begin(t.Context(), begin("k0", transfer))
	wantCode(t, "a done call whose output is gone", err, sallyport.InFlight)
	// Forgotten calls give their room back.
	if _, err := f.Prune(t.Context(), f.now()); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		put("agent", fmt.Sprint("n", i), KeptOutputs/4)
	}
	for i := range 3 {
		if !kept("agent", fmt.Sprint("n", i)) {
			t.Errorf("after Prune, output %d is not kept", i)
		}
	}
}
