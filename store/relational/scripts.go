package relational

import (
	"context"

	"sallyport.dev/sallyport"
)

// ScriptKeys are the keys of the calls that runs of one script made, of a root as
// sallyport.ScriptRoot makes it.
func (s *Store) ScriptKeys(ctx context.Context, tenant, principal, root string) ([]sallyport.ReservationKey, error) {
	out, err := list(ctx, s, func(row scanner) (k sallyport.ReservationKey, err error) {
		return k, row.Scan(&k.Tenant, &k.Principal, &k.Tool, &k.Key)
	}, `SELECT tenant, principal, tool, key FROM reservations
		WHERE tenant = ? AND principal = ? AND substr(key, 1, 39) = ? AND substr(key, 1, 7) = 'script_'`, tenant, principal, root)
	return out, s.storeError(sallyport.Reserve, err)
}
