package holdings_test

import (
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/audit/audittest"
	"sallyport.dev/sallyport/secret"
	"sallyport.dev/sallyport/secret/vault"
	"sallyport.dev/sallyport/store"
	"sallyport.dev/sallyport/store/holdings"
	"sallyport.dev/sallyport/store/postgres"
	"sallyport.dev/sallyport/store/postgres/postgrestest"
	"sallyport.dev/sallyport/store/relational"
	"sallyport.dev/sallyport/store/sqlite"
)

func TestSQLite(t *testing.T) {
	s, err := sqlite.Open(filepath.Join(t.TempDir(), "db"), audittest.Sealer(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	suite(t, s)
}

func TestPostgreSQL(t *testing.T) {
	server := postgrestest.New(t)
	s, err := postgres.Open(t.Context(), server.Database(t), audittest.Sealer(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	suite(t, s)
}

func wantCode(t *testing.T, what string, err error, want sallyport.Code) {
	t.Helper()
	if err == nil || sallyport.CodeOf(err) != want {
		t.Errorf("%s: %v, want code %s", what, err, want)
	}
}

// suite is what a store of either kind must do.
func suite(t *testing.T, db *relational.Store) {
	s := holdings.Store{DB: db.DB}
	ctx := t.Context()
	h := store.Holding{Tenant: "t", Server: "s", Kind: store.HoldsGrant, Name: "agent:a", Body: []byte("\x01one")}
	v1, err := s.Put(ctx, h, nil)
	if err != nil || v1 <= 0 {
		t.Fatal(v1, err)
	}
	if _, err := s.Put(ctx, h, nil); sallyport.CodeOf(err) != sallyport.Conflict { // version 0: there is none yet
		t.Errorf("a second first one: %v", err)
	}
	// Of many that read the same version, one writes.
	var won atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			own := h
			own.Version, own.Holder, own.HeldUntil = v1, "x", time.Unix(100, 5)
			if _, err := s.Put(ctx, own, nil); err == nil {
				won.Add(1)
			} else if sallyport.CodeOf(err) != sallyport.Conflict {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if won.Load() != 1 {
		t.Errorf("%d of 16 wrote", won.Load())
	}
	got, err := s.Holding(ctx, "t", "s", store.HoldsGrant, "agent:a")
	if err != nil || got.Version != v1+1 || got.Holder != "x" || !got.HeldUntil.Equal(time.Unix(100, 5)) || string(got.Body) != "\x01one" || !got.ExpiresAt.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
	for _, other := range [][4]string{{"u", "s", "grant", "agent:a"}, {"t", "r", "grant", "agent:a"}, {"t", "s", "client", "agent:a"}, {"t", "s", "grant", "agent:b"}} {
		_, err := s.Holding(ctx, other[0], other[1], other[2], other[3])
		wantCode(t, other[0]+other[1]+other[2]+other[3], err, sallyport.NotFound)
	}
	// A row that was deleted and made again takes no write that was begun before.
	if n, err := s.Delete(ctx, "t", "s", store.HoldsGrant, "", nil); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	late := h
	late.Version = got.Version
	_, err = s.Put(ctx, late, nil)
	wantCode(t, "into nothing", err, sallyport.Conflict)
	h.Version = store.Any
	v2, err := s.Put(ctx, h, nil)
	if err != nil || v2 <= got.Version {
		t.Errorf("made again with version %d after %d, %v", v2, got.Version, err)
	}
	_, err = s.Put(ctx, late, nil)
	wantCode(t, "into a new one", err, sallyport.Conflict)
	if v3, err := s.Put(ctx, h, nil); err != nil || v3 != v2+1 {
		t.Errorf("replaced: %d, %v", v3, err)
	}
	if _, err := s.Put(ctx, store.Holding{Tenant: "t", Server: "s", Kind: "root", Body: []byte{1}}, nil); err == nil {
		t.Error("an unknown kind was stored")
	}
	logins(t, s)
	removal(t, db, s)
}

// logins are finished once, and forgotten when they have expired.
func logins(t *testing.T, s holdings.Store) {
	ctx, now := t.Context(), time.Now()
	for name, until := range map[string]time.Time{"old": now.Add(-time.Hour), "open": now.Add(time.Hour)} {
		if _, err := s.Put(ctx, store.Holding{Tenant: "t", Server: "s", Kind: store.HoldsLogin, Name: name, Body: []byte{1}, ExpiresAt: until}, nil); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.Take(ctx, "t", "s", store.HoldsLogin, "old", now)
	wantCode(t, "one that has expired", err, sallyport.NotFound)
	var taken atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := s.Take(ctx, "t", "s", store.HoldsLogin, "open", now); err == nil {
				taken.Add(1)
			}
		})
	}
	all.Wait()
	if taken.Load() != 1 {
		t.Errorf("a login was finished %d times", taken.Load())
	}
	if left, err := s.Holdings(ctx, "t", "", store.HoldsLogin); err != nil || len(left) != 0 {
		t.Errorf("%d logins are left, %v", len(left), err)
	}
}

// removal: what is held for a server goes with it, in one transaction.
func removal(t *testing.T, db *relational.Store, s holdings.Store) {
	ctx := t.Context()
	e, err := audit.AdminEntry("t", sallyport.Change{Action: "test", By: "ada"})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.PutServer(ctx, store.Server{Tenant: "t", Name: "s", Config: []byte(`{}`)}, e); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(ctx, store.Holding{Tenant: "t", Server: "other", Kind: store.HoldsGrant, Name: "gateway", Body: []byte{1}}, &e); err != nil {
		t.Fatal(err)
	}
	if err := db.DeleteServer(ctx, "t", "s", e); err != nil {
		t.Fatal(err)
	}
	all, err := s.Holdings(ctx, "t", "", store.HoldsGrant)
	if err != nil || len(all) != 1 || all[0].Server != "other" {
		t.Errorf("%+v, %v", all, err)
	}
}

// A sealed body is good at its own place and nowhere else.
func TestVault(t *testing.T) {
	dir := t.TempDir()
	s, err := sqlite.Open(filepath.Join(dir, "db"), audittest.Sealer(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := secret.CreateKey(dir); err != nil {
		t.Fatal(err)
	}
	box, err := secret.OpenRows(dir)
	if err != nil {
		t.Fatal(err)
	}
	table := holdings.Store{DB: s.DB}
	v := vault.Vault{Tenant: "t", Store: table, Box: box}
	p := vault.Place{Server: "s", Kind: store.HoldsGrant, Name: "agent:a"}
	if _, err := v.Save(t.Context(), p, map[string]string{"access": "canary"}, nil); err != nil {
		t.Fatal(err)
	}
	var body map[string]string
	if p, err := v.Load(t.Context(), p, &body); err != nil || body["access"] != "canary" || p.Version == 0 {
		t.Fatal(body, err)
	}
	raw, err := table.Holding(t.Context(), "t", "s", store.HoldsGrant, "agent:a")
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []store.Holding{{Tenant: "t", Server: "s", Name: "agent:b"}, {Tenant: "t", Server: "r", Name: "agent:a"}, {Tenant: "u", Server: "s", Name: "agent:a"}} {
		to.Kind, to.Body, to.Version = store.HoldsGrant, raw.Body, store.Any
		if _, err := table.Put(t.Context(), to, nil); err != nil {
			t.Fatal(err)
		}
		moved := vault.Vault{Tenant: to.Tenant, Store: table, Box: box}
		_, err := moved.Load(t.Context(), vault.Place{Server: to.Server, Kind: to.Kind, Name: to.Name}, &body)
		wantCode(t, "moved to "+to.Tenant+" "+to.Server+" "+to.Name, err, sallyport.Unavailable)
	}
}
