package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/store/relational"
)

func begin(k string) gateway.Begin {
	return gateway.Begin{Key: sallyport.ReservationKey{Tenant: "t", Principal: "agent", Tool: "pay", Key: k}, Fingerprint: "f", CallID: k, Lease: time.Hour,
		Intent: sallyport.Entry{Tenant: "t", Kind: sallyport.EntryIntent, CallID: k, Payload: json.RawMessage(`{}`)}}
}

func finish(k string, fence int64) gateway.Finish {
	return gateway.Finish{Key: begin(k).Key, Fence: fence, State: sallyport.Done, Output: json.RawMessage(`{}`),
		Outcome: sallyport.Entry{Tenant: "t", Kind: sallyport.EntryOutcome, CallID: k, Payload: json.RawMessage(`{}`)}}
}

// start opens a gateway's store and lets it tell that it lives for sign.
func (p *place) start(t *testing.T, sign time.Duration) *relational.Store {
	t.Helper()
	s, err := p.open(t, relational.WithSignOfLife(sign))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := s.Recover(t.Context(), s.Writer()); err != nil {
		t.Fatal(err)
	}
	return s
}

func stateOf(t *testing.T, s *relational.Store, k string) sallyport.ReservationState {
	t.Helper()
	r, err := s.Find(t.Context(), begin(k).Key)
	if err != nil || r == nil {
		t.Fatalf("%s: %+v, %v", k, r, err)
	}
	return r.State
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// patience is for what has no deadline of its own.
func eventually(t *testing.T, what string, ok func() error) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for err := ok(); err != nil; err = ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestGatewaysMissEachOther(t *testing.T) {
	server := running(t)
	one := newPlace(t, server)
	two := joinPlace(t, one.url)

	t.Run("alive", func(t *testing.T) {
		a, b := one.start(t, time.Hour), two.start(t, time.Hour)
		fence := must[int64](t)(a.Begin(t.Context(), begin("alive")))
		must[int](t)(b.Recover(t.Context(), b.Writer())) // b starts again
		for range 3 {
			if left := must[int](t)(b.Beat(t.Context())); left != 0 {
				t.Errorf("%d calls of a gateway that lives were given up", left)
			}
		}
		if s := stateOf(t, b, "alive"); s != sallyport.Executing {
			t.Errorf("a call of a gateway that lives is %s", s)
		}
		if err := a.Finish(t.Context(), finish("alive", fence)); err != nil {
			t.Error(err)
		}
	})
	t.Run("stopped", func(t *testing.T) {
		a, b := one.start(t, 200*time.Millisecond), two.start(t, time.Hour)
		must[int64](t)(a.Begin(t.Context(), begin("stopped")))
		mine := must[int64](t)(b.Begin(t.Context(), begin("mine")))
		eventually(t, "it is missed", func() error {
			must[int](t)(b.Beat(t.Context()))
			if s := stateOf(t, b, "stopped"); s != sallyport.Unknown {
				return errors.New(string(s))
			}
			return nil
		})
		if _, err := b.Begin(t.Context(), begin("stopped")); sallyport.CodeOf(err) != sallyport.OutcomeUnknown {
			t.Errorf("a retry of what it left: %v", err)
		}
		if err := b.Finish(t.Context(), finish("mine", mine)); err != nil {
			t.Errorf("the one that lives: %v", err)
		}
	})
	t.Run("left", func(t *testing.T) {
		a, b := one.start(t, time.Hour), two.start(t, time.Hour)
		must[int64](t)(a.Begin(t.Context(), begin("left")))
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if left := must[int](t)(b.Beat(t.Context())); left != 1 || stateOf(t, b, "left") != sallyport.Unknown {
			t.Errorf("%d calls given up, it is %s", left, stateOf(t, b, "left"))
		}
	})
	t.Run("restarted", func(t *testing.T) { // from the same data folder: the earlier process has certainly ended
		a := one.start(t, time.Hour)
		must[int64](t)(a.Begin(t.Context(), begin("restarted")))
		b := one.start(t, time.Hour)
		if s := stateOf(t, b, "restarted"); s != sallyport.Unknown {
			t.Errorf("a call of the process before is %s", s)
		}
	})
	t.Run("away", func(t *testing.T) { // all were cut off: who is back first judges nobody
		a, b := one.start(t, 300*time.Millisecond), two.start(t, 300*time.Millisecond)
		fence := must[int64](t)(a.Begin(t.Context(), begin("away")))
		time.Sleep(400 * time.Millisecond)
		if left := must[int](t)(b.Beat(t.Context())); left != 0 || stateOf(t, b, "away") != sallyport.Executing {
			t.Errorf("%d calls given up by one that was away itself", left)
		}
		must[int](t)(a.Beat(t.Context()))
		must[int](t)(b.Beat(t.Context()))
		if err := a.Finish(t.Context(), finish("away", fence)); err != nil {
			t.Error(err)
		}
	})
	ro := must[*relational.Store](t)(one.open(t))
	defer ro.Close()
	heads := audit.Heads(one.Heads(t), two.Heads(t))
	rep, err := audit.Verify(t.Context(), ro, audit.Options{PublicKeys: append(one.PublicKeys(), two.PublicKeys()...), Head: heads})
	if err != nil || !rep.OK() || len(rep.Logs) != 2 {
		t.Errorf("the record of both: %+v, %v", rep, err)
	}
}

// What one gateway decides, the other is told of.
func TestWatch(t *testing.T) {
	server := running(t)
	one := newPlace(t, server)
	a, b := one.start(t, time.Hour), joinPlace(t, one.url).start(t, time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	moved, ended := make(chan struct{}, 100), make(chan struct{})
	go func() {
		defer close(ended)
		b.Watch(ctx, func() { moved <- struct{}{} }, func(err error) { t.Log("told:", err) })
	}()
	next := func(what string) {
		t.Helper()
		select {
		case <-moved:
		case <-time.After(time.Minute):
			t.Fatalf("not told: %s", what)
		}
	}
	next("that it listens")
	open := func(k string) {
		t.Helper()
		binding := sallyport.Binding{Tenant: "t", Principal: "agent", Tool: "pay", Args: json.RawMessage(`{}`)}
		tk := sallyport.Ticket{ID: k, CallID: k, Key: k, Binding: binding, Hash: binding.Hash()}
		must[sallyport.Ticket](t)(a.Open(t.Context(), tk, begin(k).Key, "f", sallyport.Entry{Tenant: "t", Kind: sallyport.EntryTicket, Payload: []byte("{}")}))
	}
	open("k1")
	if len(moved) != 0 {
		t.Error("told of a ticket that has not moved")
	}
	must[sallyport.Ticket](t)(a.Decide(t.Context(), "t", sallyport.Decision{Ticket: "k1", Approve: true, By: "ada"}, time.Hour))
	next("of a decision")
	open("k2")
	server.SQL(t, one.url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'sallyport listener'")
	must[sallyport.Ticket](t)(a.Withdraw(t.Context(), "t", "k2", "agent", "")) // while nobody listens
	next("that it listens again, and may have missed something")
	cancel()
	<-ended
}

func TestAppendOnly(t *testing.T) {
	server := running(t)
	p := newPlace(t, server)
	s := p.start(t, time.Hour)
	for i := range 10 {
		if err := s.AppendEntries(t.Context(), sallyport.Entry{Tenant: "t", Kind: sallyport.EntryOutcome, Payload: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))}); err != nil {
			t.Fatal(err)
		}
	}
	verify := func() audit.Report {
		t.Helper()
		return must[audit.Report](t)(audit.Verify(t.Context(), s, audit.Options{PublicKeys: p.PublicKeys(), Head: p.Heads(t)}))
	}
	if rep := verify(); !rep.OK() {
		t.Fatal(rep)
	}
	for _, q := range []string{"UPDATE audit_entries SET tenant = 'u'", "DELETE FROM audit_entries", "DELETE FROM audit_hashes", "TRUNCATE audit_hashes"} {
		if out, err := server.Run(q, "psql", "-v", "ON_ERROR_STOP=1", "-q", p.url); err == nil {
			t.Errorf("%s is possible: %s", q, out)
		}
	}
	server.SQL(t, p.url, "ALTER TABLE audit_entries DISABLE TRIGGER ALL; UPDATE audit_entries SET tenant = 'u' WHERE seq = 3; UPDATE audit_payloads SET payload = '{}' WHERE seq = 5")
	if rep := verify(); len(rep.Problems) < 2 {
		t.Errorf("what somebody with the database in hands altered: %v", rep.Problems)
	}
}
