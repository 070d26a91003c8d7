package relational

import (
	"context"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/failpoint"
)

// pruneBatch bounds one transaction of Prune: calls in between wait no longer
// than for another call.
const pruneBatch = 200

// Prune forgets what ended before the given time: reservations that are done or
// failed, those whose ticket was closed without an execution, and closed
// tickets that no reservation speaks of; amounts, quotas and twins whose time
// is over; sagas that are over, with their steps. What runs, waits, has an unknown
// outcome or may still be asked for by a saga stays. After that, an old key may be
// used again.
func (s *Store) Prune(ctx context.Context, before time.Time) (total int, err error) {
	for _, batch := range []func(*txn, time.Time) (int, error){pruneSagas, pruneReservations, pruneTickets, pruneSpans} {
		for n := pruneBatch; n == pruneBatch; {
			if err := ctx.Err(); err != nil {
				return total, s.storeError(sallyport.Reserve, err)
			}
			err := s.update(ctx, sallyport.Reserve, func(t *txn) error {
				var err error
				n, err = batch(t, before)
				return err
			})
			if err != nil {
				return total, err
			}
			total += n
			if n > 0 {
				failpoint.Hit(failpoint.Pruned)
			}
		}
	}
	if total == 0 {
		return 0, nil
	}
	return total, s.update(ctx, sallyport.Reserve, func(t *txn) error {
		e, err := audit.AdminEntry(sallyport.DefaultTenant, sallyport.Change{Action: "reservations prune", By: "system",
			Detail: map[string]any{"before": before.UTC(), "rows": total}})
		t.log(e)
		return err
	})
}

func pruneReservations(t *txn, before time.Time) (int, error) {
	type row struct {
		key  sallyport.ReservationKey
		size int64
	}
	rows, err := t.rows(`SELECT tenant, principal, tool, key, COALESCE(length(output), 0) FROM reservations r
		WHERE updated_at < ?
		AND NOT EXISTS (SELECT 1 FROM saga_steps s WHERE s.tenant = r.tenant AND s.key = r.key AND s.key <> '')
		AND NOT EXISTS (SELECT 1 FROM saga_steps s WHERE s.tenant = r.tenant AND s.undo_key = r.key AND s.undo_key <> '')
		AND (state IN ('done', 'failed') OR state = 'awaiting_approval' AND EXISTS (
			SELECT 1 FROM tickets t WHERE t.tenant = r.tenant AND t.id = r.ticket
			AND t.state IN ('rejected', 'expired', 'withdrawn', 'void') AND t.updated_at < ?)) LIMIT ?`,
		nanos(before), nanos(before), pruneBatch)
	if err != nil {
		return 0, err
	}
	all, err := scanAll(rows, func(s scanner) (r row, err error) {
		err = s.Scan(&r.key.Tenant, &r.key.Principal, &r.key.Tool, &r.key.Key, &r.size)
		return r, err
	})
	if err != nil {
		return 0, err
	}
	for _, r := range all {
		if _, err := t.exec("DELETE FROM reservations WHERE tenant = ? AND principal = ? AND tool = ? AND key = ?",
			r.key.Tenant, r.key.Principal, r.key.Tool, r.key.Key); err != nil {
			return 0, err
		}
		if r.size > 0 {
			if _, err := t.account(r.key.Tenant, r.key.Principal, -r.size); err != nil {
				return 0, err
			}
		}
	}
	return len(all), nil
}

// ids reads rows of a tenant and an id.
func (t *txn) ids(q string, args ...any) ([][2]string, error) {
	rows, err := t.rows(q, args...)
	if err != nil {
		return nil, err
	}
	return scanAll(rows, func(s scanner) (id [2]string, err error) {
		err = s.Scan(&id[0], &id[1])
		return id, err
	})
}

func pruneSagas(t *txn, before time.Time) (int, error) {
	all, err := t.ids("SELECT tenant, id FROM sagas WHERE state IN ('succeeded', 'compensated', 'cancelled') AND updated_at < ? LIMIT ?", nanos(before), pruneBatch)
	if err != nil {
		return 0, err
	}
	for _, id := range all {
		for _, q := range []string{"DELETE FROM saga_steps WHERE tenant = ? AND saga = ?", "DELETE FROM sagas WHERE tenant = ? AND id = ?"} {
			if _, err := t.exec(q, id[0], id[1]); err != nil {
				return 0, err
			}
		}
	}
	return len(all), nil
}

func pruneTickets(t *txn, before time.Time) (int, error) {
	all, err := t.ids(`SELECT tenant, id FROM tickets t WHERE state NOT IN ('pending', 'approved') AND updated_at < ? AND NOT EXISTS (
			SELECT 1 FROM reservations r WHERE r.tenant = t.tenant AND r.principal = t.principal AND r.tool = t.tool AND r.key = t.key)
		LIMIT ?`, nanos(before), pruneBatch)
	if err != nil {
		return 0, err
	}
	for _, id := range all {
		if _, err := t.exec("DELETE FROM tickets WHERE tenant = ? AND id = ?", id[0], id[1]); err != nil {
			return 0, err
		}
	}
	return len(all), nil
}

// pruneSpans forgets counts that nothing looks at any more. They are narrow
// rows, and not worth a mention.
func pruneSpans(t *txn, before time.Time) (int, error) {
	const most = sallyport.MaxWindow
	for q, at := range map[string]time.Time{
		"DELETE FROM amounts WHERE at < ?":    t.now.Add(-most),
		"DELETE FROM quotas WHERE starts < ?": t.now.Add(-most),
		"DELETE FROM twins WHERE at < ?":      before,
	} {
		if _, err := t.exec(q, nanos(at)); err != nil {
			return 0, err
		}
	}
	return 0, nil
}
