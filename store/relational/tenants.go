package relational

import (
	"context"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/limit/gcra"
	"sallyport.dev/sallyport/store"
)

// EnterCall counts a call that begins now, unless a bound of its tenant says no.
// Calls of one tenant are counted one after the other, at whatever gateway.
func (s *Store) EnterCall(ctx context.Context, c store.TenantCall) (refused store.TenantRefusal, err error) {
	err = s.update(ctx, sallyport.Admit, func(t *txn) error {
		refused = store.TenantRefusal{}
		if _, err := t.exec("INSERT INTO tenant_rates (tenant, idle_at) VALUES (?, 0) ON CONFLICT (tenant) DO NOTHING", c.Tenant); err != nil {
			return err
		}
		var idle int64
		if err := t.row("SELECT idle_at FROM tenant_rates WHERE tenant = ?", c.Tenant).Scan(&idle); err != nil {
			return err
		}
		now, err := t.databaseTime() // transactions that write come one after the other, at all gateways
		if err != nil {
			return err
		}
		if _, err := t.exec("DELETE FROM tenant_calls WHERE tenant = ? AND until <= ?", c.Tenant, nanos(now)); err != nil {
			return err
		}
		var open int
		if err := t.row("SELECT count(*) FROM tenant_calls WHERE tenant = ?", c.Tenant).Scan(&open); err != nil {
			return err
		}
		if c.Concurrency > 0 && open >= c.Concurrency {
			refused.InFlight = open
			return nil
		}
		next, wait, ok := (gcra.Rate{Every: c.Every, Burst: max(1, c.Burst)}).Next(idle, now.UnixNano(), 1)
		if !ok {
			refused.Wait = max(wait, time.Millisecond)
			return nil
		}
		if _, err := t.exec("UPDATE tenant_rates SET idle_at = ? WHERE tenant = ?", next, c.Tenant); err != nil {
			return err
		}
		_, err = t.exec("INSERT INTO tenant_calls (id, tenant, until) VALUES (?, ?, ?)", c.ID, c.Tenant, nanos(now.Add(c.Lasts)))
		return err
	})
	return refused, err
}

// LeaveCalls ends calls. Those that are not counted any more do no harm.
func (s *Store) LeaveCalls(ctx context.Context, ids []string) error {
	return s.update(ctx, sallyport.Admit, func(t *txn) error {
		for _, id := range ids {
			if _, err := t.exec("DELETE FROM tenant_calls WHERE id = ?", id); err != nil {
				return err
			}
		}
		return nil
	})
}

// KeepCalls is a gateway's sign that calls are still in flight.
func (s *Store) KeepCalls(ctx context.Context, ids []string, lasts time.Duration) error {
	return s.update(ctx, sallyport.Admit, func(t *txn) error {
		now, err := t.databaseTime()
		if err != nil {
			return err
		}
		for _, id := range ids {
			if _, err := t.exec("UPDATE tenant_calls SET until = ? WHERE id = ?", nanos(now.Add(lasts)), id); err != nil {
				return err
			}
		}
		return nil
	})
}
