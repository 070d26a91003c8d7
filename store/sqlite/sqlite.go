// Package sqlite keeps the gateway's state in one SQLite file: reservations and
// tickets, agents and admins, pins, servers, secrets, and the audit log. Each
// change is one transaction, with its audit entry in it, and is on disk when
// the method returns (WAL, synchronous=FULL).
//
// One process has one writing connection and a few reading ones. Several
// processes may have the file open: transactions take the write lock first, and
// wait for it. Nothing in a method survives an error, but for what only records
// that time has passed (a ticket expired, a lease ran out).
package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"time"

	sqlite "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
)

// A Store is an open database. Its methods may be called from any goroutine.
type Store struct {
	seal         *audit.Sealer // nil in a store opened for reading
	clock        func() time.Time
	writer       string
	maxOutput    int
	decideWithin time.Duration
	runWithin    time.Duration

	lock  chan struct{} // capacity 1: held while this process writes
	wdb   *sql.DB
	conn  *sql.Conn            // guarded by lock
	stmts map[string]*sql.Stmt // on conn, guarded by lock
	logID int64                // of seal's log, 0 = not yet known; guarded by lock

	rdb  *sql.DB
	rmu  sync.RWMutex
	read map[string]*sql.Stmt // on rdb, guarded by rmu
}

// An Option changes how a store is opened.
type Option func(*Store)

// WithClock replaces time.Now.
func WithClock(now func() time.Time) Option { return func(s *Store) { s.clock = now } }

// WithMaxOutput bounds the output kept for replay; the default is 4 MiB. What
// is larger is not kept: a replay then says so.
func WithMaxOutput(bytes int) Option { return func(s *Store) { s.maxOutput = bytes } }

// WithTicketTimes sets how long a ticket waits for a decision, and an approved
// one for its execution, where the caller does not say; defaults 1 h and 15 min.
func WithTicketTimes(decide, run time.Duration) Option {
	return func(s *Store) { s.decideWithin, s.runWithin = decide, run }
}

// Open opens the database at path, or makes it (mode 0600), and brings its
// schema up to date. Every change that the store makes is sealed by seal; a
// log that was altered at rest is refused.
func Open(path string, seal *audit.Sealer, opts ...Option) (*Store, error) {
	if seal == nil {
		return nil, errors.New("sqlite.Open needs an audit sealer: no record, no change")
	}
	if err := makePrivate(path); err != nil {
		return nil, err
	}
	s := newStore(opts)
	s.seal = seal
	var err error
	if s.wdb, err = open(path, "rw", 1); err != nil {
		return nil, err
	}
	ctx := context.Background()
	if s.conn, err = s.wdb.Conn(ctx); err == nil {
		if err = migrate(ctx, s.conn); err == nil {
			if s.rdb, err = open(path, "ro", 4); err == nil {
				err = s.checkLog(ctx)
			}
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), s.Close())
	}
	return s, nil
}

// OpenReadOnly opens an existing database for lists, audit verification, search
// and export. It works while a gateway has the file open.
func OpenReadOnly(path string, opts ...Option) (*Store, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("open the state database: %w", err)
	}
	s := newStore(opts)
	var err error
	if s.rdb, err = open(path, "ro", 4); err == nil {
		err = checkVersion(context.Background(), s.rdb)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s for reading: %w", path, err), s.Close())
	}
	return s, nil
}

func newStore(opts []Option) *Store {
	id := make([]byte, 8)
	rand.Read(id)
	s := &Store{
		clock: time.Now, writer: hex.EncodeToString(id), maxOutput: 4 << 20,
		decideWithin: time.Hour, runWithin: 15 * time.Minute,
		lock: make(chan struct{}, 1), stmts: map[string]*sql.Stmt{}, read: map[string]*sql.Stmt{},
	}
	for _, o := range opts {
		o(s)
	}
	return s
}

// busyTimeout is how long a transaction waits for another process.
const busyTimeout = 15 * time.Second

func open(path, mode string, conns int) (*sql.DB, error) {
	q := url.Values{"mode": {mode}, "_txlock": {"immediate"}, "_pragma": {
		fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()),
		"foreign_keys(1)", "synchronous(FULL)", "trusted_schema(0)", "temp_store(MEMORY)",
	}}
	if mode == "rw" {
		q.Add("_pragma", "journal_mode(WAL)")
		q.Add("_pragma", "secure_delete(1)") // what is erased is gone
	} else {
		q.Add("_pragma", "query_only(1)")
	}
	u := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: q.Encode()}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	if err := db.PingContext(context.Background()); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// makePrivate creates the file with mode 0600, or takes what others may do with it away.
func makePrivate(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open the state database: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("open the state database: %w", err)
	}
	if st.Mode().Perm()&0o077 != 0 {
		if err := f.Chmod(0o600); err != nil {
			return fmt.Errorf("make the state database private: %w", err)
		}
	}
	return nil
}

// Close closes the database. The sealer stays open.
func (s *Store) Close() error {
	s.lock <- struct{}{}
	defer func() { <-s.lock }()
	// Statements keep connections open. Readers go before the writer: only the
	// last connection can fold the write-ahead log into the file, and a reader
	// may not write.
	s.rmu.Lock()
	defer s.rmu.Unlock()
	var err error
	for _, all := range []map[string]*sql.Stmt{s.read, s.stmts} {
		for _, stmt := range all {
			err = errors.Join(err, stmt.Close())
		}
		clear(all)
	}
	if s.rdb != nil {
		err = errors.Join(err, s.rdb.Close())
	}
	if s.conn != nil {
		err = errors.Join(err, s.conn.Close())
	}
	if s.wdb != nil {
		err = errors.Join(err, s.wdb.Close())
	}
	return err
}

// Writer names this process in reservations.
func (s *Store) Writer() string { return s.writer }

// Healthy reports why the record is no longer complete, or nil.
func (s *Store) Healthy() error {
	if s.seal == nil {
		return errReadOnly
	}
	return s.seal.Healthy()
}

// Fail makes Healthy return an error from now on.
func (s *Store) Fail(err error) {
	if s.seal != nil {
		s.seal.Fail(err)
	}
}

var errReadOnly = &sallyport.Error{Code: sallyport.Unavailable, Step: sallyport.Receive,
	Message: "the state database is open for reading only"}

// storeError turns a database's error into one that may be shown.
func storeError(step sallyport.Step, err error) error {
	if err == nil {
		return nil
	}
	if _, ours := errors.AsType[*sallyport.Error](err); ours {
		return err
	}
	e := &sallyport.Error{Code: sallyport.Unavailable, Step: step, Message: "the gateway could not read or write its state",
		Hint: "the operator finds the cause in the gateway's log", Err: err}
	if errors.Is(err, context.Canceled) {
		e.Code, e.Message, e.Hint = sallyport.Canceled, "canceled while waiting for the gateway's state", ""
	}
	if se, ok := errors.AsType[*sqlite.Error](err); ok {
		switch se.Code() & 0xff {
		case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
			e.Message, e.Hint = "the gateway's state is busy", "try again"
			e.RetryAfter = time.Second
		case sqlite3.SQLITE_FULL:
			e.Message, e.Hint = "the disk of the gateway's state is full", "the operator must make room"
		}
	}
	return e
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func timeAt(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
