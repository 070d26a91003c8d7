package transact

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"reflect"
)

// A Statement is one that is sent with others.
type Statement struct {
	SQL  string // with its arguments as the database wants them
	Args []any
	Read bool  // its first row is wanted
	Rows int64 // that it must change; 0: any number
}

// Later is Exec for a statement whose answer nobody needs. Where that saves a
// round trip, it is sent with the next statement, or with the commit; what fails
// in it fails there. All that was read ahead is forgotten.
func (t *Tx) Later(q string, args ...any) error {
	clear(t.facts)
	return t.later(Statement{SQL: q, Args: args})
}

func (t *Tx) later(s Statement) error {
	t.wrote = true
	if t.db.dialect.Pipeline != nil {
		s.SQL = t.db.pen.bind(s.SQL)
		t.waiting = append(t.waiting, s)
		return nil
	}
	res, err := t.db.pen.exec(t.ctx, s.SQL, s.Args...)
	if err != nil || s.Rows == 0 {
		return err
	}
	n, err := res.RowsAffected()
	if err == nil {
		err = s.Changed(n)
	}
	return err
}

// Changed reports why n is not the number of rows that had to change, or nil.
func (s Statement) Changed(n int64) error {
	if s.Rows == 0 || n == s.Rows {
		return nil
	}
	return fmt.Errorf("a statement changed %d rows, not %d: %s", n, s.Rows, s.SQL)
}

// flush sends what waits.
func (t *Tx) flush() error {
	if len(t.waiting) == 0 {
		return nil
	}
	_, err := t.send()
	return err
}

// send sends what waits, and more.
func (t *Tx) send(more ...Statement) ([][]driver.Value, error) {
	all := append(t.waiting, more...)
	t.waiting = nil
	return t.db.dialect.Pipeline(t.ctx, t.db.pen.conn, all)
}

// Row reads one row.
func (t *Tx) Row(q string, args ...any) Scanner {
	if !onlyReads(q) {
		t.wrote = true
		clear(t.facts)
	}
	if len(t.waiting) == 0 {
		return t.db.pen.row(t.ctx, q, args...)
	}
	rows, err := t.send(Statement{SQL: t.db.pen.bind(q), Args: args, Read: true})
	if err != nil {
		return failed{err}
	}
	return fetched(rows[len(rows)-1])
}

// fetched is a row that was read, nil if there was none.
type fetched []driver.Value

func (f fetched) Scan(dest ...any) error {
	switch {
	case f == nil:
		return sql.ErrNoRows
	case len(dest) != len(f):
		return fmt.Errorf("a row of %d values, scanned into %d", len(f), len(dest))
	}
	for i, d := range dest {
		if err := assign(d, f[i]); err != nil {
			return fmt.Errorf("value %d of a row: %w", i, err)
		}
	}
	return nil
}

// assign is what database/sql does for the few types that our columns have:
// texts, integers (also for booleans) and bytes.
func assign(dest any, v driver.Value) error {
	if s, ok := dest.(sql.Scanner); ok {
		return s.Scan(v)
	}
	to := reflect.ValueOf(dest)
	if to.Kind() != reflect.Pointer || to.IsNil() {
		return fmt.Errorf("cannot scan into %T", dest)
	}
	to = to.Elem()
	bytes := to.Kind() == reflect.Slice && to.Type().Elem().Kind() == reflect.Uint8
	switch v := v.(type) {
	case nil:
		if bytes {
			to.SetZero()
			return nil
		}
	case string:
		if to.Kind() == reflect.String {
			to.SetString(v)
			return nil
		}
	case []byte:
		if bytes {
			to.SetBytes(v)
			return nil
		}
	case int64:
		switch {
		case to.CanInt() && !to.OverflowInt(v):
			to.SetInt(v)
			return nil
		case to.Kind() == reflect.Bool && (v == 0 || v == 1):
			to.SetBool(v == 1)
			return nil
		}
	}
	return fmt.Errorf("cannot scan %T into %T", v, dest)
}
