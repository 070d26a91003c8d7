package transact

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/failpoint"
)

// A Tx is one writing transaction. Entries logged in it are sealed and
// written as its last act.
type Tx struct {
	Now time.Time // of the present update, by the gateway's clock

	db      *DB
	ctx     context.Context //nolint:containedctx // the transaction's own life, not a caller's
	entries []sallyport.Entry
	waiting []Statement     // not sent yet
	facts   map[any]fetched // read ahead, and still true
	wrote   bool            // since the present update began
	moved   bool            // a ticket did
}

// Log appends an entry to the audit log, at the transaction's end.
func (t *Tx) Log(e sallyport.Entry) { t.entries = append(t.entries, e) }

// Exec returns how many rows changed.
func (t *Tx) Exec(q string, args ...any) (int64, error) {
	t.wrote = true
	clear(t.facts)
	if err := t.flush(); err != nil {
		return 0, err
	}
	res, err := t.db.pen.exec(t.ctx, q, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// Rows must be read to their end, or closed, before the next statement.
func (t *Tx) Rows(q string, args ...any) (*sql.Rows, error) {
	if !onlyReads(q) {
		t.wrote = true
		clear(t.facts)
	}
	if err := t.flush(); err != nil {
		return nil, err
	}
	return t.db.pen.rows(t.ctx, q, args...)
}

// onlyReads tells a query from an INSERT … RETURNING.
func onlyReads(q string) bool { return strings.HasPrefix(q, "SELECT ") }

// Kept wraps an error that refuses a request and yet lets what the transaction
// wrote stand: it only noted that time has passed.
type Kept struct{ error }

func (k Kept) Unwrap() error { return k.error }

// Keep returns err as a Kept.
func Keep(err error) error { return Kept{err} }

// Moved tells the other gateways, at the commit, that a ticket has moved.
func (t *Tx) Moved() { t.moved = true }

// A work is one update. Several that wait for the writing connection at the
// same moment share a transaction, and so its commit: they run one after the
// other, and each sees what those before it did.
type work struct {
	fn    func(*Tx) error
	facts []Fact
	own   bool // it touches nothing but this process's own audit log
	err   error
	done  chan struct{} // closed when err is what came of it, for good

	panicked any
}

// Update runs fn in a transaction and commits it, unless fn fails. fn may run
// more than once, so it sets its results rather than adding to them. ctx bounds
// the wait for the writing connection; once begun, a transaction runs to its
// end. step is named in errors that are not ours. facts are what fn is going to
// Know.
func (db *DB) Update(ctx context.Context, step sallyport.Step, fn func(*Tx) error, facts ...Fact) error {
	return db.submit(ctx, step, &work{fn: fn, facts: facts})
}

func (db *DB) submit(ctx context.Context, step sallyport.Step, w *work) error {
	if db.seal == nil {
		return errReadOnly
	}
	w.done = make(chan struct{})
	db.waiting.add(w)
	for {
		select {
		case <-w.done:
			if w.panicked != nil {
				panic(w.panicked)
			}
			return db.Error(step, w.err)
		case db.lock <- struct{}{}:
			db.lead()
		case <-ctx.Done():
			if db.waiting.remove(w) {
				return db.Error(step, ctx.Err())
			}
			<-w.done // it runs already
		}
	}
}

// lead runs what waits. Preconditions: db.lock is held; lead releases it.
func (db *DB) lead() {
	batch := db.waiting.take()
	b := db.runLocked(batch)
	if b.Head != nil {
		db.seal.Publish(b.Size, b.Head)
		failpoint.Hit(failpoint.Published)
	}
	for _, w := range batch {
		close(w.done)
	}
}

func (db *DB) runLocked(batch []*work) (last audit.Batch) {
	defer func() { <-db.lock }()
	if len(batch) == 0 {
		return last // another led
	}
	ctx := context.Background()
	if db.dialect.Patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, db.dialect.Patience)
		defer cancel()
	}
	last, err := db.persist(ctx, batch)
	if !errors.Is(err, errSingly) {
		return last
	}
	for _, w := range batch {
		if b, _ := db.persist(ctx, []*work{w}); b.Head != nil {
			last = b
		}
	}
	return last
}

// errSingly says that an update of several must be undone without the others.
var errSingly = errors.New("to be run one by one")

// errUnsure says that nobody knows whether a transaction was committed.
var errUnsure = errors.New("whether this was committed is not known")

// attempts bounds how often a transaction is tried that others, or a lost
// connection, kept from being committed.
const attempts = 5

// persist runs a batch, again if need be. What came of each update is in it,
// unless the error is errSingly.
func (db *DB) persist(ctx context.Context, batch []*work) (audit.Batch, error) {
	for n := 1; ; n++ {
		b, err := db.attempt(ctx, batch)
		if err == nil || errors.Is(err, errSingly) {
			return b, err
		}
		if db.dialect.lost(err) {
			db.pen.drop()
		}
		unsure := errors.Is(err, errUnsure)
		if !unsure && len(batch) > 1 && db.dialect.refused(err) {
			return audit.Batch{}, errSingly // one of them; the others are to go on
		}
		if unsure || n == attempts || ctx.Err() != nil || !db.dialect.again(err) {
			for _, w := range batch {
				w.err = err
			}
			return audit.Batch{}, err
		}
		time.Sleep(time.Duration(n*n) * 2 * time.Millisecond)
	}
}

// attempt runs a batch in one transaction. An error means that nothing of it is
// in the database, as far as anybody can know.
func (db *DB) attempt(ctx context.Context, batch []*work) (b audit.Batch, err error) {
	if err := db.pen.connect(ctx); err != nil {
		return b, err
	}
	t := &Tx{db: db, ctx: ctx, facts: map[any]fetched{}}
	if err := t.begin(batch); err != nil {
		return b, err
	}
	committed := false
	defer func() {
		if !committed { // something failed or panicked, or the commit did not take
			t.rollback()
		}
	}()
	refused := false
	for _, w := range batch {
		t.Now = db.clock().UTC() // who had to wait for the lock, or for others of the batch, does not act in the past
		if refused, err = t.run(w, len(batch) == 1); err != nil {
			return b, err
		}
	}
	if refused && len(batch) == 1 {
		return b, nil
	}
	if len(t.entries) > 0 {
		if b, err = t.seal(); err != nil {
			return audit.Batch{}, err
		}
	}
	failpoint.Hit(failpoint.Commit)
	if err := t.commit(b); err != nil {
		return audit.Batch{}, err
	}
	committed = true
	failpoint.Hit(failpoint.Committed)
	if b.Head != nil {
		db.seal.Committed(b)
	}
	return b, nil
}

func (t *Tx) begin(batch []*work) error {
	own := t.db.dialect.BeginOwn != nil
	for _, w := range batch {
		own = own && w.own
	}
	q := t.db.dialect.Begin
	if own {
		q = t.db.dialect.BeginOwn
	}
	var err error
	if t.db.dialect.Pipeline != nil {
		err = t.foresee(q, batch)
	} else {
		err = t.execAll(q)
	}
	if err != nil {
		t.rollback() // what a failed rollback may have left open
	}
	return err
}

func (t *Tx) execAll(statements []string) error {
	for _, q := range statements {
		if _, err := t.Exec(q); err != nil {
			return err
		}
	}
	return nil
}

// run runs one update of the transaction. refused says that it failed and
// changed nothing; an error, that the transaction cannot be committed.
func (t *Tx) run(w *work, alone bool) (refused bool, err error) {
	mark := len(t.entries)
	t.Now = t.db.clock().UTC() // only now: who waited for the lock, or was paused, does not act in the past
	t.wrote, w.err, w.panicked = false, nil, nil
	w.err = w.call(t)
	if k, keep := errors.AsType[Kept](w.err); keep {
		w.err = k.error
		return false, nil
	}
	if w.err == nil && w.panicked == nil {
		return false, nil
	}
	t.entries = t.entries[:mark]
	if _, ours := errors.AsType[*sallyport.Error](w.err); ours && !t.wrote {
		return true, nil // it only looked
	}
	if !alone {
		return false, errSingly
	}
	if w.panicked == nil && (t.db.dialect.again(w.err) || t.db.dialect.lost(w.err)) {
		return false, w.err
	}
	return true, nil
}

// call runs fn. What it panics with belongs to who asked, not to who leads.
func (w *work) call(t *Tx) error {
	defer func() { w.panicked = recover() }()
	return w.fn(t)
}

func (t *Tx) rollback() {
	if t.db.pen.conn == nil {
		return // with the connection, the transaction is gone
	}
	t.waiting = nil
	if _, err := t.Exec("ROLLBACK"); err != nil && t.db.dialect.lost(err) { // it also fails where the database has already rolled back
		t.db.pen.drop()
	}
}

// commit makes the transaction durable. Where the connection breaks in it, the
// audit log tells whether it took: b, if there is one, has changed its head.
func (t *Tx) commit(b audit.Batch) error {
	if t.moved && t.db.dialect.Notify != "" {
		if err := t.Later(t.db.dialect.Notify); err != nil {
			return err
		}
	}
	err := t.Later("COMMIT")
	if err == nil {
		err = t.flush()
	}
	if err == nil || b.Head == nil || !t.db.dialect.lost(err) {
		return err
	}
	t.db.pen.drop()
	took, err2 := t.took(b)
	if err2 != nil {
		return fmt.Errorf("%w: %w", errUnsure, errors.Join(err, err2))
	}
	if !took {
		return err
	}
	return nil
}

// took looks, over a new connection, whether b is in the log. It waits for what
// the old connection may still be doing.
func (t *Tx) took(b audit.Batch) (bool, error) {
	if err := t.db.pen.connect(t.ctx); err != nil {
		return false, err
	}
	if err := t.execAll(t.db.dialect.Begin); err != nil {
		return false, err
	}
	defer t.rollback()
	st, err := t.logState()
	return err == nil && string(st.Head) == string(b.Head), err
}
