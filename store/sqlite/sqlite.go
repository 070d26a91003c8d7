// Package sqlite opens the gateway's state in one SQLite file (WAL,
// synchronous=FULL). Several processes may have the file open: transactions take
// the write lock first, and wait for it.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	sqlite "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/store/relational"
	"sallyport.dev/sallyport/store/transact"
)

// A Store is an open database.
type Store = relational.Store

// Open opens the database at path, or makes it (mode 0600), and brings its
// schema up to date. Every change that the store makes is sealed by seal; a
// log that was altered at rest is refused.
func Open(path string, seal *audit.Sealer, opts ...relational.Option) (*Store, error) {
	if err := makePrivate(path); err != nil {
		return nil, err
	}
	ctx := context.Background()
	var pools transact.Pools
	var err error
	if pools.Write, err = open(path, "rw", 1); err != nil {
		return nil, err
	}
	if pools.Read, err = open(path, "ro", 4); err != nil { // after the writer, which makes the file
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), pools.Write.Close())
	}
	s, err := relational.Open(ctx, dialect(), pools, seal, opts...)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return s, nil
}

// OpenReadOnly opens an existing database for lists, audit verification, search
// and export. It works while a gateway has the file open.
func OpenReadOnly(path string, opts ...relational.Option) (*Store, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("open the state database: %w", err)
	}
	db, err := open(path, "ro", 4)
	if err != nil {
		return nil, fmt.Errorf("open %s for reading: %w", path, err)
	}
	s, err := relational.OpenReadOnly(context.Background(), dialect(), transact.Pools{Read: db}, opts...)
	if err != nil {
		return nil, fmt.Errorf("open %s for reading: %w", path, err)
	}
	return s, nil
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
	if err := connect(db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// connect makes a first connection. SQLite does not wait by itself where several
// processes turn a new file to WAL at once, so this does.
func connect(db *sql.DB) error {
	for deadline := time.Now().Add(busyTimeout); ; time.Sleep(10 * time.Millisecond) {
		err := db.PingContext(context.Background())
		se, ok := errors.AsType[*sqlite.Error](err)
		if !ok || se.Code()&0xff != sqlite3.SQLITE_BUSY || time.Now().After(deadline) {
			return err
		}
	}
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

func dialect() transact.Dialect {
	return transact.Dialect{
		Begin:        []string{"BEGIN IMMEDIATE"},
		Migrate:      migrate,
		CheckVersion: checkVersion,
		Member: func(column, name string) string {
			return "CASE WHEN json_valid(" + column + ") THEN " + column + " ->> '$." + name + "' END"
		},
		Contains: func(column string) string { return "instr(" + column + ", ?) > 0" },
		Explain:  explain,
		Compact:  checkpoint,
	}
}

// checkpoint moves everything into the database file and empties the WAL, which
// would otherwise keep what was erased for a while.
func checkpoint(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	return err
}

func explain(err error, e *sallyport.Error) {
	se, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return
	}
	switch se.Code() & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		e.Message, e.Hint = "the gateway's state is busy", "try again"
		e.RetryAfter = time.Second
	case sqlite3.SQLITE_FULL:
		e.Message, e.Hint = "the disk of the gateway's state is full", "the operator must make room"
	}
}
