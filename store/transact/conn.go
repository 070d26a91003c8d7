package transact

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
)

// A Scanner is a row.
type Scanner interface{ Scan(dest ...any) error }

type failed struct{ err error }

func (f failed) Scan(...any) error { return f.err }

// A pen is the connection that this process writes with. It is not safe for
// concurrent use.
type pen struct {
	dialect *Dialect
	db      *sql.DB
	conn    *sql.Conn            // nil until it is used, and after it was lost
	stmts   map[string]*sql.Stmt // prepared on conn; unused if the driver does that by itself
	bound   map[string]string    // queries as the database wants them
}

func (p *pen) connect(ctx context.Context) (err error) {
	if p.conn == nil {
		p.conn, err = p.db.Conn(ctx)
	}
	return err
}

// drop gives a connection up that is of no use any more; the next use makes
// another.
func (p *pen) drop() {
	if p.conn == nil {
		return
	}
	clear(p.stmts)
	_ = p.conn.Raw(func(any) error { return driver.ErrBadConn }) // the pool must not give it out again
	_ = p.conn.Close()
	p.conn = nil
}

func (p *pen) close() error {
	var err error
	for _, st := range p.stmts {
		err = errors.Join(err, st.Close())
	}
	clear(p.stmts)
	if p.conn != nil {
		err = errors.Join(err, p.conn.Close())
	}
	if p.db != nil {
		err = errors.Join(err, p.db.Close())
	}
	return err
}

// bind returns q with its arguments as the database wants them.
func (p *pen) bind(q string) string {
	if b, ok := p.bound[q]; ok {
		return b
	}
	p.bound[q] = p.dialect.bind(q)
	return p.bound[q]
}

func (p *pen) stmt(ctx context.Context, q string) (*sql.Stmt, error) {
	if st := p.stmts[q]; st != nil {
		return st, nil
	}
	st, err := p.conn.PrepareContext(ctx, p.bind(q))
	if err == nil {
		p.stmts[q] = st
	}
	return st, err
}

func (p *pen) exec(ctx context.Context, q string, args ...any) (sql.Result, error) {
	if p.dialect.Prepares {
		return p.conn.ExecContext(ctx, p.bind(q), args...)
	}
	st, err := p.stmt(ctx, q)
	if err != nil {
		return nil, err
	}
	return st.ExecContext(ctx, args...)
}

func (p *pen) row(ctx context.Context, q string, args ...any) Scanner {
	if p.dialect.Prepares {
		return p.conn.QueryRowContext(ctx, p.bind(q), args...)
	}
	st, err := p.stmt(ctx, q)
	if err != nil {
		return failed{err}
	}
	return st.QueryRowContext(ctx, args...)
}

func (p *pen) rows(ctx context.Context, q string, args ...any) (*sql.Rows, error) {
	if p.dialect.Prepares {
		return p.conn.QueryContext(ctx, p.bind(q), args...)
	}
	st, err := p.stmt(ctx, q)
	if err != nil {
		return nil, err
	}
	return st.QueryContext(ctx, args...)
}

// A reader is the pool of connections that this process reads with.
type reader struct {
	dialect *Dialect
	db      *sql.DB

	mu    sync.RWMutex
	stmts map[string]*sql.Stmt // guarded by mu; unused if the driver prepares by itself
	bound map[string]string    // guarded by mu
}

func (r *reader) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var err error
	for _, st := range r.stmts {
		err = errors.Join(err, st.Close())
	}
	clear(r.stmts)
	if r.db != nil {
		err = errors.Join(err, r.db.Close())
	}
	return err
}

func (r *reader) bind(q string) string {
	r.mu.RLock()
	b, ok := r.bound[q]
	r.mu.RUnlock()
	if ok {
		return b
	}
	b = r.dialect.bind(q)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bound[q] = b
	return b
}

func (r *reader) stmt(ctx context.Context, q string) (*sql.Stmt, error) {
	r.mu.RLock()
	st := r.stmts[q]
	r.mu.RUnlock()
	if st != nil {
		return st, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if st := r.stmts[q]; st != nil {
		return st, nil
	}
	st, err := r.db.PrepareContext(ctx, r.dialect.bind(q))
	if err == nil {
		r.stmts[q] = st
	}
	return st, err
}

func (r *reader) rows(ctx context.Context, q string, args ...any) (*sql.Rows, error) {
	if r.dialect.Prepares {
		return r.db.QueryContext(ctx, r.bind(q), args...)
	}
	st, err := r.stmt(ctx, q)
	if err != nil {
		return nil, err
	}
	return st.QueryContext(ctx, args...)
}

// row returns the first row.
func (r *reader) row(ctx context.Context, q string, args ...any) Scanner {
	if r.dialect.Prepares {
		return r.db.QueryRowContext(ctx, r.bind(q), args...)
	}
	st, err := r.stmt(ctx, q)
	if err != nil {
		return failed{err}
	}
	return st.QueryRowContext(ctx, args...)
}

// Row reads one row on a reading connection.
func (db *DB) Row(ctx context.Context, q string, args ...any) Scanner {
	if db.dialect.Patience == 0 {
		return db.reader.row(ctx, q, args...)
	}
	return scanFunc(func(dest ...any) error {
		ctx, cancel := context.WithTimeout(ctx, db.dialect.Patience)
		defer cancel()
		return db.reader.row(ctx, q, args...).Scan(dest...)
	})
}

type scanFunc func(dest ...any) error

func (f scanFunc) Scan(dest ...any) error { return f(dest...) }

// List runs q on a reading connection and scans each row.
func List[T any](ctx context.Context, db *DB, scan func(Scanner) (T, error), q string, args ...any) ([]T, error) {
	if db.dialect.Patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, db.dialect.Patience)
		defer cancel()
	}
	rows, err := db.reader.rows(ctx, q, args...)
	if err != nil {
		return nil, err
	}
	return ScanAll(rows, scan)
}

// ScanAll scans each row and closes rows.
func ScanAll[T any](rows *sql.Rows, scan func(Scanner) (T, error)) ([]T, error) {
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
