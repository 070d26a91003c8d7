package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/store/postgres/postgrestest"
)

// While the server is down, everything is refused as unavailable; when it is
// back, the gateway goes on by itself, and the record has no gap.
func TestServerGoesAndComesBack(t *testing.T) {
	server := postgrestest.New(t)
	p := newPlace(t, server)
	s := p.start(t, time.Hour)
	log := audit.NewLog(s, audit.LogOptions{Flush: 10 * time.Millisecond})
	entry := func(k string) sallyport.Entry {
		return sallyport.Entry{Tenant: "t", Kind: sallyport.EntryOutcome, CallID: k, Payload: []byte(`{}`)}
	}
	before := must[int64](t)(s.Begin(t.Context(), begin("before")))

	if err := server.Down(); err != nil {
		t.Fatal(err)
	}
	unavailable := func(what string, err error) {
		t.Helper()
		e, ok := errors.AsType[*sallyport.Error](err)
		if !ok || e.Code != sallyport.Unavailable || e.RetryAfter <= 0 {
			t.Errorf("%s: %v, want unavailable, and to be tried again", what, err)
		}
	}
	_, err := s.Begin(t.Context(), begin("down"))
	unavailable("Begin", err)
	_, err = s.Find(t.Context(), begin("before").Key)
	unavailable("Find", err)
	_, err = s.Beat(t.Context())
	unavailable("Beat", err)
	unavailable("Reachable", s.Reachable(t.Context()))
	if err := log.Append(entry("queued")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no record, no call", func() error {
		if log.Healthy() == nil {
			return errors.New("it still takes calls")
		}
		return nil
	})
	finished := make(chan error)
	go func() { finished <- s.Finish(context.Background(), finish("before", before)) }() // waits for the server

	if err := server.Up(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the record goes on", log.Healthy)
	if err := <-finished; err != nil {
		t.Errorf("an outcome that came while the server was down: %v", err)
	}
	must[int64](t)(s.Begin(t.Context(), begin("after")))
	if err := log.Close(); err != nil {
		t.Error(err)
	}
	rows := must[[]audit.Row](t)(audit.Search(t.Context(), s, audit.Filter{CallID: "queued"}, 10))
	if len(rows) != 1 || stateOf(t, s, "before") != sallyport.Done || stateOf(t, s, "after") != sallyport.Executing {
		t.Errorf("%d entries, before %s, after %s", len(rows), stateOf(t, s, "before"), stateOf(t, s, "after"))
	}
	rep := must[audit.Report](t)(audit.Verify(t.Context(), s, audit.Options{PublicKeys: p.PublicKeys(), Head: p.Heads(t)}))
	if !rep.OK() {
		t.Error(rep.Problems)
	}
}

// Connections break at any moment, also between a commit and its answer. What
// was confirmed is there, what was refused did not begin, and nothing is there
// twice.
func TestConnectionsBreak(t *testing.T) {
	server := postgrestest.New(t)
	p := newPlace(t, server)
	s := p.start(t, time.Hour)
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	var breaker, workers sync.WaitGroup
	var breaks atomic.Int64
	breaker.Go(func() {
		for ctx.Err() == nil {
			out := server.SQL(t, p.url, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'sallyport' AND datname = current_database()")
			if out != "0" {
				breaks.Add(1)
			}
			time.Sleep(15 * time.Millisecond)
		}
	})
	var mu sync.Mutex
	confirmed, refused := map[string]bool{}, map[string]error{}
	var n atomic.Int64
	for range 8 {
		workers.Go(func() {
			for ctx.Err() == nil {
				k := fmt.Sprint("k", n.Add(1))
				_, err := s.Begin(context.Background(), begin(k))
				mu.Lock()
				if err == nil {
					confirmed[k] = true
				} else {
					refused[k] = err
				}
				if breaks.Load() >= 25 && len(confirmed) >= 50 {
					stop() // that shows something
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	breaker.Wait()
	if breaks.Load() < 25 || len(confirmed) < 50 {
		t.Fatalf("%d breaks, %d confirmed: this shows nothing", breaks.Load(), len(confirmed))
	}
	t.Logf("%d breaks, %d confirmed, %d refused", breaks.Load(), len(confirmed), len(refused))
	intents := map[string]int{}
	rows := must[[]audit.Row](t)(audit.Search(t.Context(), s, audit.Filter{Kind: sallyport.EntryIntent}, audit.MaxSearch))
	for _, r := range rows {
		intents[r.CallID]++
	}
	found := 0
	for k := range confirmed {
		if stateOf(t, s, k) != sallyport.Executing {
			t.Errorf("%s was confirmed, and is not there", k)
		}
		found += intents[k]
	}
	if len(rows) < audit.MaxSearch && found != len(confirmed) {
		t.Errorf("%d intents of %d confirmed calls", found, len(confirmed))
	}
	for k, err := range refused {
		if r, _ := s.Find(t.Context(), begin(k).Key); r != nil && !strings.Contains(fmt.Sprint(errors.Unwrap(err)), "is not known") {
			t.Errorf("%s was refused (%v), and began", k, errors.Unwrap(err))
		}
	}
	rep := must[audit.Report](t)(audit.Verify(t.Context(), s, audit.Options{PublicKeys: p.PublicKeys(), Head: p.Heads(t)}))
	if !rep.OK() {
		t.Error(rep.Problems)
	}
}
