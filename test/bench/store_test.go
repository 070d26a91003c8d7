package bench

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/store/postgres"
	"sallyport.dev/sallyport/store/postgres/postgrestest"
	"sallyport.dev/sallyport/store/relational"
	"sallyport.dev/sallyport/store/sqlite"
)

const (
	stretch = 500 * time.Millisecond // of one kind of work
	rounds  = 6                      // of stretches, in turns: a noisy machine is noisy for all
)

// What the state costs: reservations (Begin and Finish of a call: two changes,
// each with its audit entry) and approvals (Open and Decide of a ticket: two
// changes) a second, beside what the same database does when each caller
// commits one row of its own, in one run. Everything is on disk when it counts.
func BenchmarkStore(b *testing.B) {
	for name, open := range map[string]func(b *testing.B, seal *audit.Sealer) (*relational.Store, func(i int64) error){
		"sqlite": onSQLite, "postgres": onPostgres,
	} {
		for _, callers := range []int{16, 64} { // at the same time
			b.Run(fmt.Sprint(name, "/", callers), func(b *testing.B) { measure(b, open, callers) })
		}
	}
}

func measure(b *testing.B, open func(b *testing.B, seal *audit.Sealer) (*relational.Store, func(i int64) error), callers int) {
	dir := b.TempDir()
	key, err := audit.CreateKey(dir)
	if err != nil {
		b.Fatal(err)
	}
	seal, err := audit.NewSealer(key, filepath.Join(dir, "heads"))
	if err != nil {
		b.Fatal(err)
	}
	defer seal.Close()
	s, commit := open(b, seal)
	defer s.Close()
	kinds := []func(int64) error{commit, reserve(s), approve(s)}
	var n atomic.Int64
	for b.Loop() {
		var done [3]int64
		for range rounds {
			for k, work := range kinds {
				done[k] += during(b, callers, stretch, func() error { return work(n.Add(1)) })
			}
		}
		per := func(k int) float64 { return float64(done[k]) / (rounds * stretch).Seconds() }
		b.ReportMetric(per(0), "commits/s")
		b.ReportMetric(per(1), "reservations/s")
		b.ReportMetric(per(2), "approvals/s")
		b.ReportMetric(2*per(1)/per(0), "reservation-changes/commit")
		b.ReportMetric(2*per(2)/per(0), "approval-changes/commit")
		b.ReportMetric(0, "ns/op")
	}
}

// during has all callers work for a while, and returns how often work was done.
func during(b *testing.B, callers int, d time.Duration, work func() error) int64 {
	var done atomic.Int64
	var wg sync.WaitGroup
	end := time.Now().Add(d)
	for range callers {
		wg.Go(func() {
			for time.Now().Before(end) {
				if err := work(); err != nil {
					b.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	return done.Load()
}

var args = json.RawMessage(`{"amount":82000,"currency":"EUR","to":"DE02120300000000202051"}`)

func keyOf(i int64) sallyport.ReservationKey {
	return sallyport.ReservationKey{Tenant: "t", Principal: fmt.Sprint("agent", i%16), Tool: "bank__transfer", Key: fmt.Sprint("key-", i)}
}

func entryOf(kind sallyport.EntryKind, key sallyport.ReservationKey) sallyport.Entry {
	p, err := json.Marshal(sallyport.Record{CallID: key.Key, Principal: key.Principal, Target: key.Tool, Args: args})
	if err != nil {
		panic(err) // strings marshal
	}
	return sallyport.Entry{Tenant: "t", Kind: kind, CallID: key.Key, Payload: p}
}

func reserve(s *relational.Store) func(int64) error {
	return func(i int64) error {
		key := keyOf(i)
		fence, err := s.Begin(context.Background(), gateway.Begin{Key: key, Fingerprint: "f", CallID: key.Key, Lease: time.Minute, Intent: entryOf(sallyport.EntryIntent, key)})
		if err != nil {
			return err
		}
		return s.Finish(context.Background(), gateway.Finish{Key: key, Fence: fence, State: sallyport.Done,
			Output: json.RawMessage(`{"content":[{"type":"text","text":"transferred"}]}`), Outcome: entryOf(sallyport.EntryOutcome, key)})
	}
}

func approve(s *relational.Store) func(int64) error {
	return func(i int64) error {
		key := keyOf(i)
		binding := sallyport.Binding{Tenant: "t", Principal: key.Principal, Tool: key.Tool, Args: args}
		tk, err := s.Open(context.Background(), sallyport.Ticket{CallID: key.Key, Key: key.Key, Binding: binding, Hash: binding.Hash()}, key, "f",
			entryOf(sallyport.EntryTicket, key))
		if err != nil {
			return err
		}
		_, err = s.Decide(context.Background(), "t", sallyport.Decision{Ticket: tk.ID, Approve: true, By: "ada", Reason: "checked"}, time.Hour)
		return err
	}
}

const oneRow = "CREATE TABLE one_row (id BIGINT PRIMARY KEY, v TEXT NOT NULL)"

func onSQLite(b *testing.B, seal *audit.Sealer) (*relational.Store, func(int64) error) {
	dir := b.TempDir()
	s, err := sqlite.Open(filepath.Join(dir, "db"), seal)
	if err != nil {
		b.Fatal(err)
	}
	raw, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "raw")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		b.Fatal(err)
	}
	raw.SetMaxOpenConns(1) // SQLite has one writer; more of them would only wait for each other
	return s, commits(b, raw, "INSERT INTO one_row VALUES (?, ?)")
}

func onPostgres(b *testing.B, seal *audit.Sealer) (*relational.Store, func(int64) error) {
	url := postgrestest.New(b, "fsync=on", "full_page_writes=on").Database(b)
	s, err := postgres.Open(context.Background(), url, seal)
	if err != nil {
		b.Fatal(err)
	}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		b.Fatal(err)
	}
	raw := stdlib.OpenDB(*config)
	raw.SetMaxOpenConns(64)
	raw.SetMaxIdleConns(64)
	return s, commits(b, raw, "INSERT INTO one_row VALUES ($1, $2)")
}

// commits commits one row at a time.
func commits(b *testing.B, db *sql.DB, q string) func(int64) error {
	b.Cleanup(func() { db.Close() })
	if _, err := db.ExecContext(context.Background(), oneRow); err != nil {
		b.Fatal(err)
	}
	st, err := db.PrepareContext(context.Background(), q)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { st.Close() })
	return func(i int64) error {
		_, err := st.ExecContext(context.Background(), i, "a row")
		return err
	}
}
