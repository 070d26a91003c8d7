package relational

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/failpoint"
	"sallyport.dev/sallyport/store"
)

// MovedTickets returns the tickets of a tenant that moved at since or later,
// in the order in which they moved last, and when the last of them did.
func (s *Store) MovedTickets(ctx context.Context, tenant string, since time.Time, most int) ([]sallyport.Ticket, time.Time, error) {
	const moved = " WHERE tenant = ? AND updated_at >= ? ORDER BY updated_at, id LIMIT ?"
	// The time is read first: a ticket that moves in between comes again, where
	// a time that is read last could lead past others.
	var last sql.NullInt64
	err := s.row(ctx, "SELECT max(updated_at) FROM (SELECT updated_at FROM tickets"+moved+") AS page", tenant, nanos(since), limit(most)).Scan(&last)
	if err != nil || !last.Valid {
		return nil, time.Time{}, s.storeError(sallyport.Approve, err)
	}
	out, err := list(ctx, s, scanTicket, "SELECT "+ticketColumns+moved, tenant, nanos(since), limit(most))
	if err == nil {
		err = s.openTickets(out)
	}
	return out, timeAt(last.Int64), s.storeError(sallyport.Approve, err)
}

// Swept tells since when a hook is there, and how far it has looked for tickets
// that moved; zero times for a hook that never has.
func (s *Store) Swept(ctx context.Context, tenant, hook string) (began, swept time.Time, err error) {
	var from, to int64
	err = s.row(ctx, "SELECT began_at, swept_at FROM webhook_hooks WHERE tenant = ? AND hook = ?", tenant, hook).Scan(&from, &to)
	if errors.Is(err, sql.ErrNoRows) {
		return began, swept, nil
	}
	return timeAt(from), timeAt(to), s.storeError(sallyport.Approve, err)
}

// farAhead is further in the future than any pause and any skew between gateways:
// such a time was written by a clock that has been set back since, and means now.
const farAhead = 2 * time.Hour

// PutNotices puts those notices of a hook into the outbox that are not in it,
// while fewer than most wait there, and notes how far the hook has looked. It
// returns how many found no place; they are kept as dead.
func (s *Store) PutNotices(ctx context.Context, tenant, hook string, swept time.Time, all []store.Notice, most int) (dropped int, err error) {
	err = s.update(ctx, sallyport.Approve, func(t *txn) error {
		dropped = 0
		var waiting int
		if err := t.row("SELECT count(*) FROM webhook_notices WHERE tenant = ? AND hook = ? AND state = 'waiting'", tenant, hook).Scan(&waiting); err != nil {
			return err
		}
		for _, n := range all {
			state, why := store.NoticeWaiting, ""
			if waiting >= most {
				state, why = store.NoticeDead, "the outbox is full"
			}
			added, err := t.exec(`INSERT INTO webhook_notices (tenant, hook, id, type, ticket, body, state, tries, next_at, created_at, updated_at, error)
				VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?) ON CONFLICT (tenant, hook, id) DO NOTHING`,
				tenant, hook, n.ID, n.Type, n.Ticket, n.Body, state, nanos(n.NextAt), nanos(t.now), nanos(t.now), why)
			if err != nil {
				return err
			}
			if state == store.NoticeDead {
				dropped += int(added)
			}
			waiting += int(added)
		}
		_, err := t.exec(`INSERT INTO webhook_hooks (tenant, hook, swept_at, began_at) VALUES (?, ?, ?, ?)
			ON CONFLICT (tenant, hook) DO UPDATE SET swept_at = excluded.swept_at
			WHERE webhook_hooks.swept_at < excluded.swept_at OR webhook_hooks.swept_at > ?`,
			tenant, hook, nanos(swept), nanos(swept), nanos(t.now.Add(farAhead)))
		return err
	})
	if len(all) > 0 {
		err = reached(failpoint.Noticed, err)
	}
	return dropped, err
}

func scanNotice(r scanner) (store.Notice, error) {
	var n store.Notice
	var next, created int64
	err := r.Scan(&n.Tenant, &n.Hook, &n.ID, &n.Type, &n.Ticket, &n.Body, &n.State, &n.Tries, &next, &created, &n.Error)
	n.NextAt, n.CreatedAt = timeAt(next), timeAt(created)
	return n, err
}

// ClaimNotices takes notices of a hook that are due: nobody else gets them
// before lease has passed, unless they are settled. A claim counts as a try.
func (s *Store) ClaimNotices(ctx context.Context, tenant, hook string, now time.Time, lease time.Duration, most int) ([]store.Notice, error) {
	const due = " WHERE tenant = ? AND hook = ? AND state = 'waiting' AND (next_at <= ? OR next_at > ?)"
	far := nanos(now.Add(farAhead))
	var n int
	err := s.row(ctx, "SELECT count(*) FROM webhook_notices"+due, tenant, hook, nanos(now), far).Scan(&n)
	if err != nil || n == 0 {
		return nil, s.storeError(sallyport.Approve, err) // no write lock taken for nothing
	}
	var out []store.Notice
	err = s.update(ctx, sallyport.Approve, func(t *txn) error {
		rows, err := t.rows(`SELECT tenant, hook, id, type, ticket, body, state, tries, next_at, created_at, error FROM webhook_notices`+due+
			" ORDER BY next_at, created_at, id LIMIT ?", tenant, hook, nanos(now), far, most)
		if err != nil {
			return err
		}
		if out, err = scanAll(rows, scanNotice); err != nil {
			return err
		}
		for i := range out {
			out[i].Tries++
			out[i].NextAt = now.Add(lease)
			if _, err := t.exec("UPDATE webhook_notices SET tries = ?, next_at = ?, updated_at = ? WHERE tenant = ? AND hook = ? AND id = ?",
				out[i].Tries, nanos(out[i].NextAt), nanos(t.now), tenant, hook, out[i].ID); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// SettleNotice stores what came of a try: State, NextAt and Error. A claim
// that was lost to somebody else settles nothing.
func (s *Store) SettleNotice(ctx context.Context, n store.Notice) error {
	failpoint.Hit(failpoint.Settle)
	return s.update(ctx, sallyport.Approve, func(t *txn) error {
		_, err := t.exec(`UPDATE webhook_notices SET state = ?, next_at = ?, error = ?, updated_at = ?
			WHERE tenant = ? AND hook = ? AND id = ? AND state = 'waiting' AND tries = ?`,
			n.State, nanos(n.NextAt), n.Error, nanos(t.now), n.Tenant, n.Hook, n.ID, n.Tries)
		return err
	})
}

// RetryNotices gives the dead notices of a hook another life, and returns how
// many there were.
func (s *Store) RetryNotices(ctx context.Context, tenant, hook string, e sallyport.Entry) (int, error) {
	var n int64
	err := s.change(ctx, e, func(t *txn) (err error) {
		n, err = t.exec(`UPDATE webhook_notices SET state = 'waiting', tries = 0, next_at = ?, created_at = ?, updated_at = ?
			WHERE tenant = ? AND hook = ? AND state = 'dead'`, nanos(t.now), nanos(t.now), nanos(t.now), tenant, hook)
		return err
	})
	return int(n), err
}

// CountNotices counts the outbox, by hook and state.
func (s *Store) CountNotices(ctx context.Context, tenant string) ([]store.NoticeCount, error) {
	scan := func(r scanner) (c store.NoticeCount, err error) {
		var since int64
		err = r.Scan(&c.Hook, &c.State, &c.Count, &since)
		c.Since = timeAt(since)
		return c, err
	}
	out, err := list(ctx, s, scan, `SELECT hook, state, count(*), min(created_at) FROM webhook_notices WHERE tenant = ?
		GROUP BY hook, state ORDER BY hook, state`, tenant)
	for i, c := range out {
		if err == nil && c.State != store.NoticeSent {
			err = s.row(ctx, `SELECT error FROM webhook_notices WHERE tenant = ? AND hook = ? AND state = ? ORDER BY updated_at DESC, id LIMIT 1`,
				tenant, c.Hook, c.State).Scan(&out[i].Error)
		}
		if errors.Is(err, sql.ErrNoRows) {
			err = nil // settled in between
		}
	}
	return out, s.storeError(sallyport.Receive, err)
}

// TakeMessage notes a message that came in, with the entry that tells of it.
// Code Conflict if its id came before.
func (s *Store) TakeMessage(ctx context.Context, tenant, hook, id string, e sallyport.Entry) error {
	return s.change(ctx, e, func(t *txn) error {
		n, err := t.exec("INSERT INTO webhook_seen (tenant, hook, id, at) VALUES (?, ?, ?, ?) ON CONFLICT (tenant, hook, id) DO NOTHING", tenant, hook, id, nanos(t.now))
		if err == nil && n == 0 {
			return &sallyport.Error{Code: sallyport.Conflict, Step: sallyport.Approve, Message: "a message with this webhook-id came before",
				Hint: "send each decision once, under an id of its own"}
		}
		return err
	})
}

// ForgetMessage lets a message come again: it could not be looked at.
func (s *Store) ForgetMessage(ctx context.Context, tenant, hook, id string) error {
	return s.update(ctx, sallyport.Approve, func(t *txn) error {
		_, err := t.exec("DELETE FROM webhook_seen WHERE tenant = ? AND hook = ? AND id = ?", tenant, hook, id)
		return err
	})
}

// PruneWebhooks forgets what was sent, given up or taken before a time.
func (s *Store) PruneWebhooks(ctx context.Context, before time.Time) error {
	return s.update(ctx, sallyport.Receive, func(t *txn) error {
		_, err1 := t.exec("DELETE FROM webhook_notices WHERE state <> 'waiting' AND updated_at < ?", nanos(before))
		_, err2 := t.exec("DELETE FROM webhook_seen WHERE at < ?", nanos(before))
		return errors.Join(err1, err2)
	})
}
