package transact

import "database/sql/driver"

// A Fact is a row that an update will read. The facts of all updates that share a
// transaction are read together, in the round trip that begins it. What was read
// ahead is forgotten as soon as something is written that may change it: a
// statement that does not say what it changes (Alter) changes everything.
type Fact struct {
	Name any // comparable: of what, and of whom
	SQL  string
	Args []any
}

// Know returns the row of a fact, as it is now.
func (t *Tx) Know(f Fact) Scanner {
	if row, ok := t.facts[f.Name]; ok {
		return row
	}
	return t.Row(f.SQL, f.Args...)
}

// Known returns the row of a fact if that need not be read.
func (t *Tx) Known(name any) (row Scanner, ok bool) {
	if row, ok := t.facts[name]; ok {
		return row, true
	}
	return nil, false
}

// Alter is Later for a statement that changes no fact but the named ones, and
// exactly so many rows (0: any number).
func (t *Tx) Alter(names []any, rows int64, q string, args ...any) error {
	for _, name := range names {
		delete(t.facts, name)
	}
	return t.later(Statement{SQL: q, Args: args, Rows: rows})
}

// Learn says what the row of a fact is from now on.
func (t *Tx) Learn(name any, row ...driver.Value) { t.facts[name] = row }

// foresee reads what the updates will, with the statements that begin the
// transaction.
func (t *Tx) foresee(begin []string, batch []*work) error {
	var all []Statement
	for _, q := range begin {
		all = append(all, Statement{SQL: q})
	}
	var names []any
	add := func(f Fact) {
		if _, ok := t.facts[f.Name]; !ok {
			t.facts[f.Name] = nil
			names = append(names, f.Name)
			all = append(all, Statement{SQL: t.db.pen.bind(f.SQL), Args: f.Args, Read: true})
		}
	}
	add(t.logFact())
	for _, w := range batch {
		for _, f := range w.facts {
			add(f)
		}
	}
	rows, err := t.send(all...)
	if err != nil {
		return err
	}
	for i, name := range names {
		t.facts[name] = rows[len(begin)+i]
	}
	return nil
}
