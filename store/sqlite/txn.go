package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"sallyport.dev/sallyport"
)

// A txn is one writing transaction. Entries logged in it are sealed and
// written as its last act.
type txn struct {
	s       *Store
	now     time.Time
	entries []sallyport.Entry
}

// kept wraps an error that refuses a request and yet lets what the transaction
// wrote stand: it only noted that time has passed.
type kept struct{ error }

func (k kept) Unwrap() error { return k.error }

// update runs fn in one transaction and commits it, unless fn fails. ctx bounds
// the wait for the write lock of this process; once begun, a transaction runs
// to its end. step is named in errors that are not ours.
func (s *Store) update(ctx context.Context, step sallyport.Step, fn func(*txn) error) error {
	if s.seal == nil {
		return errReadOnly
	}
	select {
	case s.lock <- struct{}{}:
	case <-ctx.Done():
		return storeError(step, ctx.Err())
	}
	size, head, err := s.locked(fn)
	<-s.lock
	if head != nil {
		s.seal.Publish(size, head)
	}
	if k, ok := errors.AsType[kept](err); ok {
		err = k.error
	}
	return storeError(step, err)
}

// Preconditions: s.lock is held.
func (s *Store) locked(fn func(*txn) error) (size int64, head []byte, err error) {
	t := &txn{s: s, now: s.clock().UTC()}
	if _, err := t.exec("BEGIN IMMEDIATE"); err != nil {
		_, _ = t.exec("ROLLBACK") // what a failed rollback may have left open
		return 0, nil, err
	}
	done := false
	defer func() {
		if !done { // fn failed or panicked, or the commit did not take
			_, _ = t.exec("ROLLBACK") // fails where SQLite has already rolled back
		}
	}()
	ferr := fn(t)
	if _, keep := errors.AsType[kept](ferr); ferr != nil && !keep {
		return 0, nil, ferr
	}
	if len(t.entries) == 0 {
		_, err := t.exec("COMMIT")
		done = err == nil
		return 0, nil, errors.Join(err, ferr)
	}
	b, err := t.seal()
	if err != nil {
		return 0, nil, err
	}
	if _, err := t.exec("COMMIT"); err != nil {
		return 0, nil, err
	}
	done = true
	s.seal.Committed(b)
	return b.Size, b.Head, ferr
}

// log appends an entry to the audit log, at the transaction's end.
func (t *txn) log(e sallyport.Entry) { t.entries = append(t.entries, e) }

// stmt returns q prepared on the writing connection.
func (t *txn) stmt(q string) (*sql.Stmt, error) {
	if st := t.s.stmts[q]; st != nil {
		return st, nil
	}
	st, err := t.s.conn.PrepareContext(context.Background(), q)
	if err == nil {
		t.s.stmts[q] = st
	}
	return st, err
}

// exec returns how many rows changed.
func (t *txn) exec(q string, args ...any) (int64, error) {
	st, err := t.stmt(q)
	if err != nil {
		return 0, err
	}
	res, err := st.ExecContext(context.Background(), args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (t *txn) row(q string, args ...any) scanner {
	st, err := t.stmt(q)
	if err != nil {
		return failed{err}
	}
	return st.QueryRowContext(context.Background(), args...)
}

func (t *txn) rows(q string, args ...any) (*sql.Rows, error) {
	st, err := t.stmt(q)
	if err != nil {
		return nil, err
	}
	return st.QueryContext(context.Background(), args...)
}

// A scanner is a row.
type scanner interface{ Scan(dest ...any) error }

type failed struct{ err error }

func (f failed) Scan(...any) error { return f.err }

// reading returns q prepared on the reading connections.
func (s *Store) reading(ctx context.Context, q string) (*sql.Stmt, error) {
	s.rmu.RLock()
	st := s.read[q]
	s.rmu.RUnlock()
	if st != nil {
		return st, nil
	}
	s.rmu.Lock()
	defer s.rmu.Unlock()
	if st := s.read[q]; st != nil {
		return st, nil
	}
	st, err := s.rdb.PrepareContext(ctx, q)
	if err == nil {
		s.read[q] = st
	}
	return st, err
}

func (s *Store) row(ctx context.Context, q string, args ...any) scanner {
	st, err := s.reading(ctx, q)
	if err != nil {
		return failed{err}
	}
	return st.QueryRowContext(ctx, args...)
}

// list runs q on a reading connection and scans each row.
func list[T any](ctx context.Context, s *Store, scan func(scanner) (T, error), q string, args ...any) ([]T, error) {
	st, err := s.reading(ctx, q)
	if err != nil {
		return nil, err
	}
	rows, err := st.QueryContext(ctx, args...)
	if err != nil {
		return nil, err
	}
	return scanAll(rows, scan)
}

func scanAll[T any](rows *sql.Rows, scan func(scanner) (T, error)) ([]T, error) {
	defer rows.Close()
	out := []T{}
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}
