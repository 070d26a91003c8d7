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
}

// Later is Exec for a statement whose answer nobody needs. Where that saves a
// round trip, it is sent with the next statement, or with the commit; what fails
// in it fails there.
func (t *Tx) Later(q string, args ...any) error {
	if t.db.dialect.Pipeline == nil {
		_, err := t.Exec(q, args...)
		return err
	}
	t.wrote = true
	t.later = append(t.later, Statement{t.db.pen.bind(q), args})
	return nil
}

// flush sends what waits.
func (t *Tx) flush() error {
	if len(t.later) == 0 {
		return nil
	}
	all := t.later
	t.later = nil
	_, err := t.db.dialect.Pipeline(t.ctx, t.db.pen.conn, all, false)
	return err
}

// Row reads one row.
func (t *Tx) Row(q string, args ...any) Scanner {
	t.wrote = t.wrote || !onlyReads(q)
	if len(t.later) == 0 {
		return t.db.pen.row(t.ctx, q, args...)
	}
	all := append(t.later, Statement{t.db.pen.bind(q), args})
	t.later = nil
	row, err := t.db.dialect.Pipeline(t.ctx, t.db.pen.conn, all, true)
	if err != nil {
		return failed{err}
	}
	return fetched(row)
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
