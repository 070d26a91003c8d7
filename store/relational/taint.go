package relational

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"sallyport.dev/sallyport"
)

// Taint keeps a taint. One of the same principal that lasts longer stays; those
// that are over are forgotten.
func (s *Store) Taint(ctx context.Context, t sallyport.Taint) error {
	return s.update(ctx, sallyport.Sanitise, func(tx *txn) error {
		if _, err := tx.exec("DELETE FROM taints WHERE until <= ?", nanos(t.At)); err != nil {
			return err
		}
		_, err := tx.exec(`INSERT INTO taints (tenant, principal, tool, call_id, reason, at, until) VALUES (?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (tenant, principal) DO UPDATE SET tool = excluded.tool, call_id = excluded.call_id, reason = excluded.reason,
				at = excluded.at, until = excluded.until WHERE excluded.until > taints.until`,
			t.Tenant, t.Principal, t.Tool, t.CallID, t.Reason, nanos(t.At), nanos(t.Until))
		return err
	})
}

// Tainted returns the taint of a principal that holds at a time, or nil.
func (s *Store) Tainted(ctx context.Context, tenant, principal string, at time.Time) (*sallyport.Taint, error) {
	t := sallyport.Taint{Tenant: tenant, Principal: principal}
	var since, until int64
	err := s.row(ctx, "SELECT tool, call_id, reason, at, until FROM taints WHERE tenant = ? AND principal = ? AND until > ?",
		tenant, principal, nanos(at)).Scan(&t.Tool, &t.CallID, &t.Reason, &since, &until)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, s.storeError(sallyport.Authorize, err)
	}
	t.At, t.Until = timeAt(since), timeAt(until)
	return &t, nil
}
