package storetest

import (
	"context"
	"testing"
	"time"

	"sallyport.dev/sallyport/store"
)

// TenantCalls counts what all agents of a tenant do together.
type TenantCalls interface {
	EnterCall(ctx context.Context, c store.TenantCall) (store.TenantRefusal, error)
	LeaveCalls(ctx context.Context, ids []string) error
	KeepCalls(ctx context.Context, ids []string, lasts time.Duration) error
}

// FO-42: every gateway of a database counts the same, each tenant by itself; a call
// that was refused counts as nothing.
func testTenantCalls(t *testing.T, f *fixture) {
	other := f.another(t)
	enter := func(s Store, tenant, id string) store.TenantRefusal {
		t.Helper()
		r, err := s.EnterCall(t.Context(), store.TenantCall{Tenant: tenant, ID: id, Every: time.Hour, Burst: 3, Concurrency: 2, Lasts: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	none := store.TenantRefusal{}
	if a, b := enter(f.Store, "a", "1"), enter(other, "a", "2"); a != none || b != none {
		t.Fatalf("%+v, %+v", a, b)
	}
	if r := enter(f.Store, "a", "3"); r.InFlight != 2 || r.Wait != 0 {
		t.Errorf("a third in flight: %+v", r)
	}
	if r := enter(other, "b", "4"); r != none {
		t.Errorf("another tenant: %+v", r)
	}
	for _, s := range []Store{f.Store, other} { // the second time they are gone already
		if err := s.LeaveCalls(t.Context(), []string{"1", "2", "3", "never"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.KeepCalls(t.Context(), []string{"1", "never"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	if r := enter(other, "a", "5"); r != none {
		t.Errorf("the third of three at once: %+v", r)
	}
	if r := enter(f.Store, "a", "6"); r.Wait <= 0 || r.Wait > time.Hour || r.InFlight != 0 {
		t.Errorf("a fourth at once: %+v", r)
	}
}
