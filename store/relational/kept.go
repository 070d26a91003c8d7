package relational

import (
	"database/sql"
	"errors"
	"fmt"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/store/transact"
)

// WithOpenCalls bounds the open calls of one principal: running, waiting for a
// human, or of unknown outcome. The default is 1,000.
func WithOpenCalls(n int) Option { return func(s *Store) { s.maxOpen = n } }

// WithKeptOutputs bounds the outputs kept for one principal in bytes; the
// default is 64 MiB. The oldest make room: their calls stay done.
func WithKeptOutputs(bytes int64) Option { return func(s *Store) { s.maxKept = bytes } }

// room refuses one more open call of a principal that has too many, and returns
// how many there are.
func (t *txn) room(step sallyport.Step, key sallyport.ReservationKey) (n int, err error) {
	err = t.Know(t.s.openFact(key)).Scan(&n)
	if err != nil || n < t.s.maxOpen {
		return n, err
	}
	return n, &sallyport.Error{Code: sallyport.RateLimited, Step: step, RetryAfter: 10 * time.Second,
		Message: fmt.Sprintf("this agent has %d calls that run, wait for a human or are of unknown outcome", n),
		Hint:    "finish or withdraw some; an operator resolves the unknown ones with `sallyport reservations resolve`, and sets idempotency.open"}
}

// closed is called when an open call of a principal has just been stored as one
// that is not: where the number before is known, it is known after.
func (t *txn) closed(key sallyport.ReservationKey, before transact.Scanner) error {
	var n int
	if before == nil {
		return nil
	}
	if err := before.Scan(&n); err != nil || n >= t.s.maxOpen { // or more: they are counted up to there
		return err
	}
	t.Learn(openOf(key), int64(n-1))
	return nil
}

// dropAtOnce bounds how many old outputs one new one may push out.
const dropAtOnce = 200

// keep takes the output of a call that is done into account. Where the
// principal's outputs are too many, the oldest go; where that is not enough,
// this one is not kept.
func (t *txn) keep(r *sallyport.Reservation) error {
	size := int64(len(r.Output))
	if size == 0 {
		return nil
	}
	total, err := t.account(r.Tenant, r.Principal, size)
	if err != nil || total <= t.s.maxKept {
		return err
	}
	rows, err := t.rows(`SELECT tool, key, length(output) FROM reservations WHERE tenant = ? AND principal = ? AND output IS NOT NULL
		ORDER BY updated_at LIMIT ?`, r.Tenant, r.Principal, dropAtOnce)
	if err != nil {
		return err
	}
	type old struct {
		tool, key string
		size      int64
	}
	all, err := scanAll(rows, func(row scanner) (o old, err error) {
		err = row.Scan(&o.tool, &o.key, &o.size)
		return o, err
	})
	if err != nil {
		return err
	}
	freed := int64(0)
	for _, o := range all {
		if total-freed <= t.s.maxKept {
			break
		}
		if _, err := t.exec("UPDATE reservations SET output = NULL WHERE tenant = ? AND principal = ? AND tool = ? AND key = ?",
			r.Tenant, r.Principal, o.tool, o.key); err != nil {
			return err
		}
		freed += o.size
	}
	if total-freed > t.s.maxKept {
		r.Output, freed = nil, freed+size
	}
	_, err = t.account(r.Tenant, r.Principal, -freed)
	return err
}

// account adds to the bytes kept for a principal, and returns them.
func (t *txn) account(tenant, principal string, bytes int64) (total int64, err error) {
	err = t.Know(keptFact(tenant, principal)).Scan(&total)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, err
	}
	total += bytes
	name := keptName{tenant, principal}
	err = t.Alter([]any{name}, 1, `INSERT INTO kept_outputs (tenant, principal, bytes) VALUES (?, ?, ?) ON CONFLICT (tenant, principal) DO UPDATE
		SET bytes = excluded.bytes`, tenant, principal, total)
	t.Learn(name, total)
	return total, err
}
