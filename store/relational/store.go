// Package relational keeps the gateway's state in a database that speaks SQL:
// reservations and tickets, sagas, agents and admins, passkeys, what webhooks
// send and get, pins, servers, secrets, and the audit log. Each change is one transaction, with its audit entry in it, and is
// on disk when the method returns.
//
// What the kinds of database do not have in common is a transact.Dialect;
// store/sqlite and store/postgres open theirs and return a Store. The SQL here
// is what all of them understand: `?` for each argument in order, times as
// nanoseconds in an INTEGER (0 = not set), booleans as 0 and 1, JSON as TEXT,
// and as BLOB whatever must stay byte-exact.
//
// Nothing in a method survives an error, but for what only records that time
// has passed (a ticket expired, a lease ran out).
package relational

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync/atomic"
	"time"

	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/store"
	"sallyport.dev/sallyport/store/transact"
)

// A Store is an open database. Its methods may be called from any goroutine.
type Store struct {
	*transact.DB

	clock        func() time.Time
	writer       string
	maxOpen      int
	maxKept      int64
	box          store.Box // nil: rows are kept as they are
	decideWithin time.Duration
	runWithin    time.Duration
	sign         time.Duration // of life, how long it is good for
	address      string        // where other gateways reach this one
	started      atomic.Bool   // by Recover
	judgeFrom    time.Time     // when others may be missed; used in transactions only
	rules        store.TicketRules
}

// An Option changes how a store is opened.
type Option func(*Store)

// WithClock replaces time.Now.
func WithClock(now func() time.Time) Option { return func(s *Store) { s.clock = now } }

// maxOutput bounds the output kept for replay, in bytes. What is larger is not
// kept: a replay then says so.
const maxOutput = 4 << 20

// WithTicketTimes sets how long a ticket waits for a decision, and an approved
// one for its execution, where the caller does not say; defaults 1 h and 15 min.
func WithTicketTimes(decide, run time.Duration) Option {
	return func(s *Store) { s.decideWithin, s.runWithin = decide, run }
}

// Open returns a store on pools, which belong to it from now on, and brings the
// schema up to date. Every change that the store makes is sealed by seal; a log
// that was altered at rest is refused.
func Open(ctx context.Context, d transact.Dialect, pools transact.Pools, seal *audit.Sealer, opts ...Option) (*Store, error) {
	s := newStore(opts)
	var err error
	s.DB, err = transact.Open(ctx, d, pools, seal, s.clock)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// OpenReadOnly returns a store on pools.Read, for lists, audit verification,
// search and export.
func OpenReadOnly(ctx context.Context, d transact.Dialect, pools transact.Pools, opts ...Option) (*Store, error) {
	s := newStore(opts)
	var err error
	s.DB, err = transact.OpenReadOnly(ctx, d, pools, s.clock)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func newStore(opts []Option) *Store {
	id := make([]byte, 8)
	rand.Read(id)
	s := &Store{
		clock: time.Now, writer: hex.EncodeToString(id), maxOpen: 1000, maxKept: 64 << 20,
		decideWithin: time.Hour, runWithin: 15 * time.Minute, sign: defaultSign,
	}
	for _, o := range opts {
		o(s)
	}
	return s
}

// Close closes the database. The sealer stays open.
func (s *Store) Close() error {
	s.leave()
	return s.DB.Close()
}

// Writer names this process in reservations.
func (s *Store) Writer() string { return s.writer }
