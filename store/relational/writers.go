package relational

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/failpoint"
)

// Gateways that share a database tell each other that they live: each has a row
// in the writers' table, good for a lease. Whose row is gone has ended, and what
// it was executing becomes unknown. That a gateway counts as dead when it only
// stalled is safe: an unknown call is never run again, and a fence keeps its
// late outcome out.

// defaultSign is how long a gateway counts as alive after a sign of life.
const defaultSign = 15 * time.Second

// WithSignOfLife replaces the 15 s for which a gateway counts as alive after
// each sign of life.
func WithSignOfLife(d time.Duration) Option { return func(s *Store) { s.sign = d } }

// Recover is the first act of a gateway: it tells that it lives, and what
// gateways left executing that no longer do becomes unknown. Those are every
// other one where a gateway has the database alone; else the earlier processes
// of its own data folder, those that left, and in time those that Live misses.
// It returns how many calls there were, and logs each of them and the start.
func (s *Store) Recover(ctx context.Context, writer string) (int, error) {
	n := 0
	failpoint.Hit(failpoint.Recover)
	err := s.update(ctx, sallyport.Execute, func(t *txn) error {
		now, err := t.databaseTime()
		if err != nil {
			return err
		}
		if s.Dialect().Shared {
			_, err = t.exec("DELETE FROM writers WHERE log = ?", s.LogWriter())
		} else {
			_, err = t.exec("DELETE FROM writers")
		}
		if err != nil {
			return err
		}
		if err := t.live(now); err != nil {
			return err
		}
		if n, err = t.abandon(writer); err != nil {
			return err
		}
		e, err := audit.NewEntry(sallyport.DefaultTenant, sallyport.EntryStart, "", map[string]any{"writer": writer, "left_executing": n})
		t.log(e)
		return err
	})
	if err == nil {
		s.started.Store(true)
	}
	return n, err
}

// live puts this process's row there, or makes it good for longer.
func (t *txn) live(now time.Time) error {
	_, err := t.exec(`INSERT INTO writers (id, log, started_at, alive_until, address) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET alive_until = excluded.alive_until`,
		t.s.writer, t.s.LogWriter(), nanos(now), nanos(now.Add(t.s.sign)), t.s.address)
	return err
}

// WithAddress tells the other gateways where they reach this one, HOST:PORT.
func WithAddress(address string) Option { return func(s *Store) { s.address = address } }

// Address says where the gateway with the given writer is, "" if it does not live
// or cannot be reached.
func (s *Store) Address(ctx context.Context, writer string) (address string, err error) {
	err = s.update(ctx, sallyport.Execute, func(t *txn) error {
		now, err := t.databaseTime()
		if err != nil {
			return err
		}
		err = t.row("SELECT address FROM writers WHERE id = ? AND alive_until > ?", writer, nanos(now)).Scan(&address)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return address, err
}

// abandon makes unknown what is executing by a writer that has no row and is
// not the given one.
func (t *txn) abandon(writer string) (int, error) {
	rows, err := t.rows("SELECT "+reservationColumns+` WHERE state = 'executing' AND writer <> ?
		AND NOT EXISTS (SELECT 1 FROM writers w WHERE w.id = reservations.writer)`, writer)
	if err != nil {
		return 0, err
	}
	left, err := scanAll(rows, scanReservation)
	if err != nil {
		return 0, err
	}
	for _, r := range left {
		r.State = sallyport.Unknown
		if err := t.putReservation(r); err != nil {
			return 0, err
		}
		if err := t.logUnknown(r, "its gateway ended while it was executing"); err != nil {
			return 0, err
		}
	}
	// So do the sagas that it drove: whoever looks next takes them over.
	_, err = t.exec(`UPDATE sagas SET lease = 0 WHERE lease > 0 AND owner <> ?
		AND NOT EXISTS (SELECT 1 FROM writers w WHERE w.id = sagas.owner)`, writer)
	return len(left), err
}

// databaseTime is by the one clock that all gateways have.
func (t *txn) databaseTime() (time.Time, error) {
	if t.s.Dialect().Now == "" {
		return t.now, nil
	}
	var n int64
	err := t.row(t.s.Dialect().Now).Scan(&n)
	return timeAt(n), err
}

// Beat is a sign of life of a gateway that shares its database. It also looks
// whether others still give theirs, and returns how many calls the dead left
// executing. A gateway that was itself away for too long (stalled, or cut off
// from the database, as all of them may have been) only tells that it is back,
// and gives the others the time to do so too.
func (s *Store) Beat(ctx context.Context) (left int, err error) {
	err = s.update(ctx, sallyport.Execute, func(t *txn) error {
		left = 0
		now, err := t.databaseTime()
		if err != nil {
			return err
		}
		var mine int
		if err := t.row("SELECT count(*) FROM writers WHERE id = ? AND alive_until > ?", s.writer, nanos(now)).Scan(&mine); err != nil {
			return err
		}
		if err := t.live(now); err != nil {
			return err
		}
		if mine == 0 {
			s.judgeFrom = now.Add(s.sign)
		}
		if now.Before(s.judgeFrom) {
			return nil
		}
		if _, err := t.exec("DELETE FROM writers WHERE alive_until <= ?", nanos(now)); err != nil {
			return err
		}
		left, err = t.abandon(s.writer)
		return err
	})
	return left, err
}

// Live gives signs of life until ctx ends. report receives what goes wrong. It
// returns at once where a gateway has the database alone.
func (s *Store) Live(ctx context.Context, report func(error)) {
	if !s.Dialect().Shared {
		return
	}
	t := time.NewTicker(s.sign / 5)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if _, err := s.Beat(ctx); err != nil && ctx.Err() == nil {
				report(err)
			}
		}
	}
}

// leave tells the others that this gateway ends, so that they need not
// miss it. Where that fails, they will.
func (s *Store) leave() {
	if !s.Dialect().Shared || !s.started.Swap(false) {
		return
	}
	_ = s.update(context.Background(), sallyport.Execute, func(t *txn) error {
		_, err := t.exec("DELETE FROM writers WHERE id = ?", s.writer)
		return err
	})
}

// Watch calls moved whenever a ticket may have been moved by another gateway,
// until ctx ends. report receives what goes wrong, and Watch goes on. It returns
// at once where a gateway has the database alone.
func (s *Store) Watch(ctx context.Context, moved func(), report func(error)) {
	if s.Dialect().Listen == nil {
		return
	}
	const pause = time.Second
	for ctx.Err() == nil {
		if err := s.Dialect().Listen(ctx, moved); err != nil && ctx.Err() == nil {
			report(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}
