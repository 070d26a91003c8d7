package desk

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/audit/audittest"
	"sallyport.dev/sallyport/config"
	"sallyport.dev/sallyport/oauth"
	"sallyport.dev/sallyport/store/sqlite"
)

const tenant = sallyport.DefaultTenant

// The configuration's agents come, change and go with it; others stay.
func TestDeclaredAgents(t *testing.T) {
	db, err := sqlite.Open(filepath.Join(t.TempDir(), "db"), audittest.Sealer(t))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	d := Agents{Tenant: tenant, Store: db, Cache: oauth.NewAgentCache(db, 0, nil)}
	ctx := t.Context()
	if _, err := d.AddAgent(ctx, "added", []string{"agent"}, sallyport.Entry{Tenant: tenant, Kind: sallyport.EntryAdmin, Payload: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	check := func(id, state string, roles ...string) {
		t.Helper()
		a, err := db.Agent(ctx, tenant, id)
		if err != nil || a.State != state || !slices.Equal(a.Roles, roles) {
			t.Errorf("%s: %+v, %v; want %s with %q", id, a, err, state, roles)
		}
	}
	declare := func(agents map[string]config.Agent) int {
		t.Helper()
		before := entries(ctx, t, db)
		if err := d.Declare(ctx, agents); err != nil {
			t.Fatal(err)
		}
		return entries(ctx, t, db) - before
	}
	declare(map[string]config.Agent{"reporter": {Roles: []string{"reader", "agent"}}})
	check("reporter", "active", "agent", "reader")
	if n := declare(map[string]config.Agent{"reporter": {Roles: []string{"agent", "reader"}}}); n != 0 {
		t.Errorf("nothing changed, yet %d entries were written", n)
	}
	declare(map[string]config.Agent{"reporter": {Roles: []string{"reader"}, Suspended: true}})
	check("reporter", "suspended", "reader")
	declare(map[string]config.Agent{"reporter": {Roles: []string{"reader"}}})
	check("reporter", "active", "reader")
	declare(nil)
	check("reporter", "suspended", "reader")
	check("added", "active", "agent")
}

func entries(ctx context.Context, t *testing.T, db *sqlite.Store) int {
	t.Helper()
	rows, err := audit.Search(ctx, db, audit.Filter{}, audit.MaxSearch)
	if err != nil {
		t.Fatal(err)
	}
	return len(rows)
}
