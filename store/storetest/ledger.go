package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/store"
)

func testReservation(t *testing.T, f *fixture) {
	if r, err := f.Find(t.Context(), key("k")); r != nil || err != nil {
		t.Fatalf("Find of an unknown key = %v, %v; want nothing", r, err)
	}
	fence, err := f.Begin(t.Context(), begin("k", transfer))
	must(t, err)
	r, err := f.Find(t.Context(), key("k"))
	must(t, err)
	if r.State != sallyport.Executing || r.Fence != fence || r.CallID != "call-k" || r.Writer != f.Writer() ||
		!r.Lease.Equal(f.now().Add(time.Minute)) || r.Fingerprint != fingerprint(transfer) || !r.CreatedAt.Equal(f.now()) {
		t.Errorf("after Begin: %+v", r)
	}
	f.pass(time.Second)
	must(t, f.Finish(t.Context(), finish("k", fence, sallyport.Done)))
	r, err = f.Find(t.Context(), key("k"))
	must(t, err)
	if r.State != sallyport.Done || string(r.Output) != `{"content":[]}` || !r.UpdatedAt.Equal(f.now()) || r.CreatedAt.Equal(f.now()) {
		t.Errorf("after Finish: %+v", r)
	}
	if i, o := f.count(t, sallyport.EntryIntent), f.count(t, sallyport.EntryOutcome); i != 1 || o != 1 {
		t.Errorf("%d intents, %d outcomes in the log; want one each", i, o)
	}
}

func testConflicts(t *testing.T, f *fixture) {
	fence, err := f.Begin(t.Context(), begin("k", transfer))
	must(t, err)
	_, err = f.Begin(t.Context(), begin("k", `{}`))
	wantCode(t, "other arguments", err, sallyport.Conflict)
	_, err = f.Begin(t.Context(), begin("k", transfer))
	wantCode(t, "still running", err, sallyport.InFlight)
	if e, _ := errors.AsType[*sallyport.Error](err); e.RetryAfter <= 0 {
		t.Error("a running call says no RetryAfter")
	}
	must(t, f.Finish(t.Context(), finish("k", fence, sallyport.Done)))
	_, err = f.Begin(t.Context(), begin("k", transfer))
	wantCode(t, "done", err, sallyport.InFlight)
	if e, _ := errors.AsType[*sallyport.Error](err); e.RetryAfter != 0 {
		t.Error("a call that is done says RetryAfter")
	}
	_, err = f.Begin(t.Context(), begin("k", `{}`))
	wantCode(t, "done, other arguments", err, sallyport.Conflict)
	if n := f.count(t, sallyport.EntryIntent); n != 1 {
		t.Errorf("%d intents, want 1", n)
	}
}

func testLease(t *testing.T, f *fixture) {
	fence, err := f.Begin(t.Context(), begin("k", transfer))
	must(t, err)
	f.pass(time.Minute - 1)
	if s := f.state(t, "k"); s != sallyport.Executing {
		t.Errorf("within the lease: %s", s)
	}
	f.pass(1)
	if s := f.state(t, "k"); s != sallyport.Unknown {
		t.Errorf("after the lease: %s, want unknown", s)
	}
	for range 2 { // once by the clock, once as stored
		_, err = f.Begin(t.Context(), begin("k", transfer))
		wantCode(t, "Begin after the lease", err, sallyport.OutcomeUnknown)
	}
	if n := f.count(t, sallyport.EntryOutcome); n != 1 {
		t.Errorf("%d outcomes, want 1: that it is unknown", n)
	}
	// The writer is alive after all, and says how it ended: too late.
	for range 2 {
		wantCode(t, "a late Finish", f.Finish(t.Context(), finish("k", fence, sallyport.Done)), sallyport.Conflict)
	}
	if s := f.state(t, "k"); s != sallyport.Unknown {
		t.Errorf("after a late Finish: %s", s)
	}
	if n := f.count(t, sallyport.EntryOutcome); n != 3 {
		t.Errorf("%d outcomes, want 3: that it is unknown, and what its owner said afterwards", n)
	}
	// The same when nobody had looked in between.
	fence, err = f.Begin(t.Context(), begin("unseen", transfer))
	must(t, err)
	f.pass(time.Minute)
	wantCode(t, "a late Finish that nobody saw", f.Finish(t.Context(), finish("unseen", fence, sallyport.Done)), sallyport.Conflict)
	if r, err := f.Find(t.Context(), key("unseen")); err != nil || r.State != sallyport.Unknown || r.Output != nil {
		t.Errorf("after a late Finish: %+v, %v", r, err)
	}
	must(t, f.Resolve(t.Context(), store.Resolution{Key: key("unseen"), State: sallyport.Failed, By: "ada", Reason: "seen"}))
	_, err = f.Begin(t.Context(), begin("unseen", transfer))
	wantCode(t, "after it was resolved", err, "")
}

func testUnchanged(t *testing.T, f *fixture) {
	tk := f.decide(t, f.open(t, "k", transfer).ID, true)
	stop := errors.New("the policy changed")
	b := begin("k", transfer)
	b.Ticket, b.TicketHash = tk.ID, tk.Hash
	b.Unchanged = func() error { return stop }
	if _, err := f.Begin(t.Context(), b); err != stop {
		t.Errorf("Begin = %v, want what Unchanged returned", err)
	}
	got, err := f.Ticket(t.Context(), "t", tk.ID)
	must(t, err)
	if got.State != sallyport.TicketApproved || f.state(t, "k") != sallyport.AwaitingApproval || f.count(t, sallyport.EntryIntent) != 0 {
		t.Errorf("a refused Begin left ticket %s, reservation %s", got.State, f.state(t, "k"))
	}
	_, err = f.run(t, tk, transfer)
	wantCode(t, "the same ticket afterwards", err, "")
}

func testFence(t *testing.T, f *fixture) {
	one, err := f.Begin(t.Context(), begin("k", transfer))
	must(t, err)
	wantCode(t, "Finish with a foreign fence", f.Finish(t.Context(), finish("k", one+1, sallyport.Done)), sallyport.Conflict)
	wantCode(t, "Finish of an unknown key", f.Finish(t.Context(), finish("x", one, sallyport.Done)), sallyport.Conflict)
	wantCode(t, "Finish as reserved", f.Finish(t.Context(), finish("k", one, sallyport.Reserved)), sallyport.Internal)
	must(t, f.Finish(t.Context(), finish("k", one, sallyport.Failed)))
	wantCode(t, "a second Finish", f.Finish(t.Context(), finish("k", one, sallyport.Done)), sallyport.Conflict)
	two, err := f.Begin(t.Context(), begin("k", transfer))
	must(t, err)
	if two <= one {
		t.Errorf("fence went from %d to %d", one, two)
	}
	wantCode(t, "Finish by the first owner", f.Finish(t.Context(), finish("k", one, sallyport.Done)), sallyport.Conflict)
	wantCode(t, "Finish by another process", f.another(t).Finish(t.Context(), finish("k", two, sallyport.Done)), sallyport.Conflict)
	must(t, f.Finish(t.Context(), finish("k", two, sallyport.Unknown)))
	_, err = f.Begin(t.Context(), begin("k", transfer))
	wantCode(t, "after an unknown outcome", err, sallyport.OutcomeUnknown)
	if n := f.count(t, sallyport.EntryOutcome); n != 2 {
		t.Errorf("%d outcomes in the log, want 2: refused ones leave none", n)
	}
}

func testOutputs(t *testing.T, f *fixture) {
	for name, tt := range map[string]struct {
		out   string
		state sallyport.ReservationState
		want  string // "" = nothing, "…" = a short stand-in
	}{
		"exact": {`{"content":[{"type":"text","text":"<&\u2028 1e400 \u00e9"}], "n":9007199254740993}`, sallyport.Done, "same"},
		"fail":  {`{"content":[]}`, sallyport.Failed, ""},
		"large": {`{"content":[{"type":"text","text":"` + strings.Repeat("x", 8<<20) + `"}]}`, sallyport.Done, "stand-in"},
	} {
		fence, err := f.Begin(t.Context(), begin(name, transfer))
		must(t, err)
		fin := finish(name, fence, tt.state)
		fin.Output, fin.IsError = json.RawMessage(tt.out), true
		must(t, f.Finish(t.Context(), fin))
		r, err := f.Find(t.Context(), key(name))
		must(t, err)
		var result struct{ Content []any }
		switch {
		case !r.IsError:
			t.Errorf("%s: IsError was lost", name)
		case tt.want == "same" && string(r.Output) != tt.out:
			t.Errorf("%s: output %s, want %s", name, r.Output, tt.out)
		case tt.want == "" && r.Output != nil:
			t.Errorf("%s: output %s was kept", name, r.Output)
		case tt.want == "stand-in" && (len(r.Output) > 1000 || json.Unmarshal(r.Output, &result) != nil || len(result.Content) != 1):
			t.Errorf("%s: %d bytes kept: %.200s", name, len(r.Output), r.Output)
		}
	}
}

// The reason of a failure is kept, for that failure and for no other outcome.
func testReasons(t *testing.T, f *fixture) {
	why := json.RawMessage(`{"code":"upstream","message":"it broke: <&\u2028"}`)
	for _, state := range []sallyport.ReservationState{sallyport.Failed, sallyport.Done, sallyport.Unknown} {
		k := string(state)
		fence, err := f.Begin(t.Context(), begin(k, transfer))
		must(t, err)
		fin := finish(k, fence, state)
		fin.Reason = why
		must(t, f.Finish(t.Context(), fin))
		r, err := f.another(t).Find(t.Context(), key(k))
		must(t, err)
		if kept := string(r.Reason) == string(why); kept != (state == sallyport.Failed) || !kept && r.Reason != nil {
			t.Errorf("%s: reason %s", state, r.Reason)
		}
	}
	fence, err := f.Begin(t.Context(), begin("failed", transfer)) // the key is used again
	must(t, err)
	must(t, f.Finish(t.Context(), finish("failed", fence, sallyport.Done)))
	must(t, f.Resolve(t.Context(), store.Resolution{Key: key("unknown"), State: sallyport.Failed, By: "ada", Reason: "never arrived"}))
	for _, k := range []string{"failed", "unknown"} {
		if r, err := f.Find(t.Context(), key(k)); err != nil || r.Reason != nil {
			t.Errorf("%s, afterwards: reason %s, %v", k, r.Reason, err)
		}
	}
}

func testCanceled(t *testing.T, f *fixture) {
	fence, err := f.Begin(t.Context(), begin("k", transfer))
	must(t, err)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	must(t, f.Finish(gone, finish("k", fence, sallyport.Done))) // an outcome is never lost
	if s := f.state(t, "k"); s != sallyport.Done {
		t.Errorf("state %s", s)
	}
}

func testRecover(t *testing.T, f *fixture) {
	tk := f.decide(t, f.open(t, "approved", transfer).ID, true)
	_, err := f.Begin(t.Context(), begin("lost", transfer))
	must(t, err)
	done, err := f.Begin(t.Context(), begin("done", transfer))
	must(t, err)
	must(t, f.Finish(t.Context(), finish("done", done, sallyport.Done)))
	next := f.another(t) // the gateway starts again
	_, err = next.Begin(t.Context(), begin("mine", transfer))
	must(t, err)
	n, err := next.Recover(t.Context(), next.Writer())
	if n != 1 || err != nil {
		t.Errorf("Recover = %d, %v; want 1", n, err)
	}
	for k, want := range map[string]sallyport.ReservationState{"lost": sallyport.Unknown, "done": sallyport.Done,
		"mine": sallyport.Executing, "approved": sallyport.AwaitingApproval} {
		if s := f.state(t, k); s != want {
			t.Errorf("%s is %s, want %s", k, s, want)
		}
	}
	_, err = next.Begin(t.Context(), begin("lost", transfer))
	wantCode(t, "retry of a lost call", err, sallyport.OutcomeUnknown)
	b := begin("approved", transfer) // what was approved before the crash runs, once
	b.Ticket, b.TicketHash = tk.ID, tk.Hash
	_, err = next.Begin(t.Context(), b)
	wantCode(t, "an approval from before the crash", err, "")
	if n := f.count(t, sallyport.EntryStart); n != 1 {
		t.Errorf("%d start entries, want 1", n)
	}
	if n := f.count(t, sallyport.EntryOutcome); n != 2 {
		t.Errorf("%d outcomes, want 2: done, and lost", n)
	}
}

func testResolve(t *testing.T, f *fixture) {
	lose := func(k string) int64 {
		fence, err := f.Begin(t.Context(), begin(k, transfer))
		must(t, err)
		must(t, f.Finish(t.Context(), finish(k, fence, sallyport.Unknown)))
		return fence
	}
	fence := lose("a")
	lose("b")
	lose("c")
	told := json.RawMessage(`{"content":[{"type":"text","text":"paid 9007199254740993"}]}`)
	must(t, f.Resolve(t.Context(), store.Resolution{Key: key("c"), State: sallyport.Done, By: "ada", Reason: "seen", Output: told}))
	if r, err := f.Find(t.Context(), key("c")); err != nil || r.State != sallyport.Done || string(r.Output) != string(told) {
		t.Errorf("resolved with a result: %+v, %v", r, err)
	}
	must(t, f.Resolve(t.Context(), store.Resolution{Key: key("a"), State: sallyport.Done, By: "ada", Reason: "seen in the bank's log"}))
	must(t, f.Resolve(t.Context(), store.Resolution{Key: key("b"), State: sallyport.Failed, By: "ada", Reason: "never arrived"}))
	r, err := f.Find(t.Context(), key("a"))
	must(t, err)
	if r.State != sallyport.Done || !json.Valid(r.Output) {
		t.Errorf("resolved as done: %+v", r)
	}
	wantCode(t, "a late Finish", f.Finish(t.Context(), finish("a", fence, sallyport.Failed)), sallyport.Conflict)
	_, err = f.Begin(t.Context(), begin("b", transfer))
	wantCode(t, "Begin after resolved as failed", err, "")
	again := begin("e", transfer)
	for _, again.CallID = range []string{"first", "second"} {
		fence, err := f.Begin(t.Context(), again)
		must(t, err)
		must(t, f.Finish(t.Context(), finish("e", fence, sallyport.Unknown)))
		word := store.Resolution{Key: key("e"), State: sallyport.Failed, By: "ada", Reason: "never arrived"}
		if again.CallID == "second" { // what was said of the first is said again, and of another one
			wantCode(t, "a word said twice", f.Resolve(t.Context(), word), sallyport.Conflict)
			word.Call = "first"
			wantCode(t, "a word on an earlier call", f.Resolve(t.Context(), word), sallyport.Conflict)
			word.Call = "second"
		}
		must(t, f.Resolve(t.Context(), word))
	}
	for what, res := range map[string]struct {
		r    store.Resolution
		code sallyport.Code
	}{
		"done":              {store.Resolution{Key: key("a"), State: sallyport.Failed, By: "ada", Reason: "x"}, sallyport.Conflict},
		"executing":         {store.Resolution{Key: key("b"), State: sallyport.Done, By: "ada", Reason: "x"}, sallyport.Conflict},
		"no such":           {store.Resolution{Key: key("d"), State: sallyport.Done, By: "ada", Reason: "x"}, sallyport.NotFound},
		"result of nothing": {store.Resolution{Key: key("a"), State: sallyport.Failed, By: "ada", Reason: "x", Output: told}, sallyport.Invalid},
		"no reason":         {store.Resolution{Key: key("a"), State: sallyport.Done, By: "ada"}, sallyport.Invalid},
		"unknown":           {store.Resolution{Key: key("a"), State: sallyport.Unknown, By: "ada", Reason: "x"}, sallyport.Invalid},
	} {
		wantCode(t, what, f.Resolve(t.Context(), res.r), res.code)
	}
	if n := f.count(t, sallyport.EntryAdmin); n != 5 {
		t.Errorf("%d admin entries, want 5", n)
	}
}

func testPrune(t *testing.T, f *fixture) {
	for k, s := range map[string]sallyport.ReservationState{"done": sallyport.Done, "failed": sallyport.Failed, "unknown": sallyport.Unknown} {
		fence, err := f.Begin(t.Context(), begin(k, transfer))
		must(t, err)
		must(t, f.Finish(t.Context(), finish(k, fence, s)))
	}
	f.decide(t, f.open(t, "rejected", transfer).ID, false)
	f.open(t, "waiting", transfer)
	run := f.decide(t, f.open(t, "ran", transfer).ID, true)
	fence, err := f.run(t, run, transfer)
	must(t, err)
	must(t, f.Finish(t.Context(), finish("ran", fence, sallyport.Done)))
	old := f.now()
	f.pass(time.Minute)
	fence, err = f.Begin(t.Context(), begin("recent", transfer))
	must(t, err)
	must(t, f.Finish(t.Context(), finish("recent", fence, sallyport.Done)))
	n, err := f.Prune(t.Context(), old) // nothing is that old
	if n != 0 || err != nil {
		t.Errorf("Prune = %d, %v", n, err)
	}
	n, err = f.Prune(t.Context(), f.now())
	if n != 6 || err != nil { // done, failed, ran, rejected and two tickets
		t.Errorf("Prune = %d, %v; want 6", n, err)
	}
	for k, want := range map[string]sallyport.ReservationState{"done": "", "failed": "", "rejected": "", "ran": "",
		"unknown": sallyport.Unknown, "waiting": sallyport.AwaitingApproval, "recent": sallyport.Done} {
		if s := f.state(t, k); s != want {
			t.Errorf("%s is %q, want %q", k, s, want)
		}
	}
	b := begin("ran", transfer) // a pruned ticket does not come back to life
	b.Ticket, b.TicketHash = run.ID, run.Hash
	_, err = f.Begin(t.Context(), b)
	wantCode(t, "a pruned ticket", err, sallyport.NotFound)
	left, err := f.Reservations(t.Context(), store.ReservationFilter{Tenant: "t", States: []sallyport.ReservationState{sallyport.Unknown}})
	if err != nil || len(left) != 1 || left[0].Key != "unknown" || left[0].Output != nil {
		t.Errorf("Reservations(unknown) = %+v, %v", left, err)
	}
}

func testTenants(t *testing.T, f *fixture) {
	tk := f.decide(t, f.open(t, "k", transfer).ID, true)
	_, err := f.Ticket(t.Context(), "u", tk.ID)
	wantCode(t, "another tenant's ticket", err, sallyport.NotFound)
	_, err = f.Decide(t.Context(), "u", sallyport.Decision{Ticket: tk.ID, Approve: true, By: "eve"}, 0)
	wantCode(t, "another tenant's decision", err, sallyport.NotFound)
	b := begin("k", transfer)
	b.Key.Tenant, b.Ticket, b.TicketHash = "u", tk.ID, tk.Hash
	_, err = f.Begin(t.Context(), b)
	wantCode(t, "another tenant's Begin", err, sallyport.NotFound)
	b.Ticket, b.TicketHash = "", ""
	_, err = f.Begin(t.Context(), b) // the key means nothing to another tenant
	wantCode(t, "the same key of another tenant", err, "")
	wantCode(t, "Finish across tenants", f.Finish(t.Context(), finish("k", 1, sallyport.Done)), sallyport.Conflict)
}

// A list tells how a call's ticket ended, also where only the clock has ended
// it, and can be asked for by that.
func testReservationsOfClosedTickets(t *testing.T, f *fixture) {
	f.decide(t, f.open(t, "rejected", transfer).ID, false)
	f.decide(t, f.open(t, "void", transfer).ID, true)
	_, err := f.Begin(t.Context(), begin("executing", transfer))
	must(t, err)
	f.open(t, "expired", transfer)
	f.pass(2 * time.Hour)
	f.decide(t, f.open(t, "approved", transfer).ID, true)
	f.open(t, "pending", transfer)
	want := map[string]sallyport.ReservationState{"rejected": "rejected", "void": "void", "expired": "expired", "executing": sallyport.Unknown,
		"approved": sallyport.AwaitingApproval, "pending": sallyport.AwaitingApproval}
	all, err := f.Reservations(t.Context(), store.ReservationFilter{Tenant: "t"})
	must(t, err)
	got := map[string]sallyport.ReservationState{}
	for _, r := range all {
		got[r.Key] = r.State
		one, err := f.Reservations(t.Context(), store.ReservationFilter{Tenant: "t", Principal: "agent", States: []sallyport.ReservationState{r.State}})
		if n := len(one); err != nil || n == 0 || n > 2 || one[0].State != r.State {
			t.Errorf("asked for %s: %+v, %v", r.State, one, err)
		}
	}
	same(t, "shown", got, want)
}
