package relational

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/failpoint"
	"sallyport.dev/sallyport/store/transact"
)

// A txn is one writing transaction of a store. Entries logged in it are sealed
// and written as its last act.
type txn struct {
	*transact.Tx
	s   *Store
	now time.Time
}

// update runs fn in a transaction and commits it, unless fn fails. fn may run
// more than once, so it sets its results rather than adding to them. ctx bounds
// the wait for the writing connection; once begun, a transaction runs to its
// end. step is named in errors that are not ours. facts are what fn reads first.
func (s *Store) update(ctx context.Context, step sallyport.Step, fn func(*txn) error, facts ...transact.Fact) error {
	return s.Update(ctx, step, func(t *transact.Tx) error { return fn(&txn{t, s, t.Now}) }, facts...)
}

// insistence is how long insist tries.
const insistence = 20 * time.Second

// insist is update for what must not be lost because the database is away for a
// moment. fn is told when an earlier try may have been committed.
func (s *Store) insist(ctx context.Context, step sallyport.Step, fn func(t *txn, again bool) error, facts ...transact.Fact) error {
	again := false
	for deadline := time.Now().Add(insistence); ; again = true {
		err := s.update(ctx, step, func(t *txn) error { return fn(t, again) }, facts...)
		e, ok := errors.AsType[*sallyport.Error](err)
		if !ok || e.Code != sallyport.Unavailable || e.RetryAfter <= 0 || s.Dialect().Patience == 0 || time.Now().After(deadline) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// reached marks the moment after a transaction that was committed.
func reached(point string, err error) error {
	if err == nil {
		failpoint.Hit(point)
	}
	return err
}

// log appends an entry to the audit log, at the transaction's end.
func (t *txn) log(e sallyport.Entry) { t.Log(e) }

// exec returns how many rows changed.
func (t *txn) exec(q string, args ...any) (int64, error) { return t.Exec(q, args...) }

func (t *txn) row(q string, args ...any) scanner { return t.Row(q, args...) }

// rows must be read to their end, or closed, before the next statement.
func (t *txn) rows(q string, args ...any) (*sql.Rows, error) { return t.Rows(q, args...) }

// kept wraps an error that refuses a request and yet lets what the transaction
// wrote stand: it only noted that time has passed.
type kept struct{ error }

func (k kept) Unwrap() error { return transact.Keep(k.error) }

type scanner = transact.Scanner

// row reads one row on a reading connection.
func (s *Store) row(ctx context.Context, q string, args ...any) scanner {
	return s.Row(ctx, q, args...)
}

// list runs q on a reading connection and scans each row.
func list[T any](ctx context.Context, s *Store, scan func(scanner) (T, error), q string, args ...any) ([]T, error) {
	return transact.List(ctx, s.DB, scan, q, args...)
}

func scanAll[T any](rows *sql.Rows, scan func(scanner) (T, error)) ([]T, error) {
	return transact.ScanAll(rows, scan)
}

// storeError turns a database's error into one that may be shown.
func (s *Store) storeError(step sallyport.Step, err error) error { return s.Error(step, err) }

func marks(n int) string { return transact.Marks(n) }

func nanos(t time.Time) int64 { return transact.Nanos(t) }

func timeAt(n int64) time.Time { return transact.TimeAt(n) }
