// Package transact runs the transactions of the gateway's state: on one of
// several kinds of database, each with its audit entries sealed in it, and with
// one commit for those that come together.
//
// One process has one writing connection and a few reading ones. A transaction
// holds the database's write lock from its first statement on, so that what it
// has read stays true until it commits, also beside other processes. It is on
// disk when Update returns.
package transact

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
)

// A DB is an open database. Its methods may be called from any goroutine.
type DB struct {
	dialect Dialect
	seal    *audit.Sealer // nil in one opened for reading
	clock   func() time.Time

	waiting queue
	lock    chan struct{} // capacity 1: held while this process writes
	pen     pen           // guarded by lock
	logID   int64         // of seal's log, 0 = not yet known; guarded by lock

	reader reader
}

// Pools are the connections of a DB. Write has room for one connection, and is
// nil in one opened for reading.
type Pools struct{ Write, Read *sql.DB }

// Open takes pools over and brings the schema up to date. Every change is sealed
// by seal; a log that was altered at rest is refused.
func Open(ctx context.Context, d Dialect, pools Pools, seal *audit.Sealer, clock func() time.Time) (*DB, error) {
	db := newDB(d, pools, clock)
	if seal == nil {
		return nil, errors.Join(errors.New("a store needs an audit sealer: no record, no change"), db.Close())
	}
	db.seal = seal
	err := db.pen.connect(ctx)
	if err == nil {
		err = d.Migrate(ctx, db.pen.conn)
	}
	if err == nil {
		err = db.checkLog(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// OpenReadOnly takes pools.Read over.
func OpenReadOnly(ctx context.Context, d Dialect, pools Pools, clock func() time.Time) (*DB, error) {
	db := newDB(d, pools, clock)
	if err := d.CheckVersion(ctx, pools.Read); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

func newDB(d Dialect, pools Pools, clock func() time.Time) *DB {
	db := &DB{dialect: d, clock: clock, lock: make(chan struct{}, 1)}
	db.pen = pen{dialect: &db.dialect, db: pools.Write, stmts: map[string]*sql.Stmt{}, bound: map[string]string{}}
	db.reader = reader{dialect: &db.dialect, db: pools.Read, stmts: map[string]*sql.Stmt{}, bound: map[string]string{}}
	return db
}

// Close closes the database. The sealer stays open.
func (db *DB) Close() error {
	db.lock <- struct{}{}
	defer func() { <-db.lock }()
	// Readers go before the writer: only the last connection to an SQLite file can
	// fold the write-ahead log into it, and a reader may not write.
	return errors.Join(db.reader.close(), db.pen.close())
}

// Dialect is what kind of database it is.
func (db *DB) Dialect() *Dialect { return &db.dialect }

// ReadOnly reports whether it was opened for reading.
func (db *DB) ReadOnly() bool { return db.seal == nil }

// LogWriter names the audit log that this gateway writes.
func (db *DB) LogWriter() string { return db.seal.Writer() }

// Healthy reports why the record is no longer complete, or nil.
func (db *DB) Healthy() error {
	if db.seal == nil {
		return errReadOnly
	}
	return db.seal.Healthy()
}

// Fail makes Healthy return an error from now on.
func (db *DB) Fail(err error) {
	if db.seal != nil {
		db.seal.Fail(err)
	}
}

// Reachable reports why the database does not answer, or nil.
func (db *DB) Reachable(ctx context.Context) error {
	var one int
	return db.Error(sallyport.Receive, db.Row(ctx, "SELECT 1").Scan(&one))
}

var errReadOnly = &sallyport.Error{Code: sallyport.Unavailable, Step: sallyport.Receive,
	Message: "the state database is open for reading only"}

// Error turns a database's error into one that may be shown.
func (db *DB) Error(step sallyport.Step, err error) error {
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
	db.dialect.Explain(err, e)
	return e
}

func notFound(msg string) error {
	return &sallyport.Error{Code: sallyport.NotFound, Step: sallyport.Respond, Message: msg}
}
