package storetest

import (
	"testing"
	"time"

	"sallyport.dev/sallyport"
)

// A taint holds for its time, for every gateway on the database, and for nobody
// else; the longer of two stays.
func testTaints(t *testing.T, f *fixture) {
	now := f.now()
	taint := func(tenant, who, call string, length time.Duration) {
		t.Helper()
		if err := f.Taint(t.Context(), sallyport.Taint{
			Tenant: tenant, Principal: who, Tool: "web__fetch", CallID: call, Reason: "strangers", At: now, Until: now.Add(length),
		}); err != nil {
			t.Fatal(err)
		}
	}
	other := f.another(t)
	want := func(tenant, who string, after time.Duration, call string) {
		t.Helper()
		for _, s := range []Store{f.Store, other} {
			got, err := s.Tainted(t.Context(), tenant, who, now.Add(after))
			switch {
			case err != nil:
				t.Fatal(err)
			case (got != nil) != (call != ""), got != nil && (got.CallID != call || got.Tool != "web__fetch" || !got.At.Equal(now) && !got.At.After(now)):
				t.Errorf("%s/%s after %s: %+v, want call %q", tenant, who, after, got, call)
			}
		}
	}
	want("t", "a", 0, "")
	taint("t", "a", "c1", time.Minute)
	want("t", "a", 0, "c1")
	want("t", "a", time.Minute-1, "c1")
	want("t", "a", time.Minute, "")
	want("t", "b", 0, "")
	want("u", "a", 0, "")
	taint("t", "a", "c2", time.Second)
	want("t", "a", 30*time.Second, "c1")
	taint("t", "a", "c3", time.Hour)
	want("t", "a", 30*time.Minute, "c3")
	now = now.Add(2 * time.Hour)
	taint("t", "b", "c4", time.Minute)
	want("t", "a", 0, "")
	want("t", "b", 0, "c4")
}
