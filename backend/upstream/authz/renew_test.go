package authz_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/audit/audittest"
	"sallyport.dev/sallyport/backend/upstream/authz"
	"sallyport.dev/sallyport/oauth/oauthtest"
	"sallyport.dev/sallyport/secret"
	"sallyport.dev/sallyport/store"
	"sallyport.dev/sallyport/store/postgres"
	"sallyport.dev/sallyport/store/postgres/postgrestest"
	"sallyport.dev/sallyport/test/await"
)

// together makes calls at once, at several gateways, and returns their errors.
func together(ctx context.Context, n int, gates ...*gate) []error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { _, errs[i] = gates[i%len(gates)].call(ctx, "s", sallyport.Principal{}, `{}`) })
	}
	all.Wait()
	return errs
}

// reauthorisations counts events of the record.
func (m *memory) reauthorisations(t *testing.T) (n int) {
	t.Helper()
	rows, err := audit.Search(t.Context(), m.db, audit.Filter{Kind: sallyport.EntryAdmin}, audit.MaxSearch)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if strings.Contains(string(r.Payload), "reauth_required") {
			n++
		}
	}
	return n
}

// two gateways that know one server, at which the first has logged in.
func two(t *testing.T, a, b *memory, as *oauthtest.Server) (gates [2]*gate, s *site) {
	s = newSite(t, as, "/mcp")
	for i, m := range []*memory{a, b} {
		gates[i] = m.gate(t, fmt.Sprint("gateway ", i), authz.Options{Pause: 20 * time.Millisecond})
		gates[i].knows(t, authz.Config{Server: "s", URL: s.URL})
	}
	gates[0].login(t, authz.Wish{For: authz.Gateway, By: "ada"}, "s")
	return gates, s
}

// refreshedOnce: at expiry, 50 calls at two gateways and a slow authorization
// server that fails once cost one refresh, and the one try more that the failure does.
func refreshedOnce(t *testing.T, a, b *memory) {
	as := oauthtest.New(t)
	gates, _ := two(t, a, b, as)
	if errs := together(t.Context(), 2, gates[0], gates[1]); errors.Join(errs...) != nil {
		t.Fatal(errs)
	}
	for round := range 3 {
		failed := false
		as.Lock()
		as.Fault = func(string, int) (f oauthtest.Fault) {
			f.Slow = 300 * time.Millisecond
			if round == 1 && !failed {
				failed, f.Status = true, 500
			}
			return f
		}
		as.Unlock()
		before := len(as.Asked("refresh_token"))
		as.Expire()
		for i, err := range together(t.Context(), 50, gates[0], gates[1]) {
			if err != nil {
				t.Fatalf("round %d, call %d: %v", round, i, err)
			}
		}
		want := 1
		if round == 1 {
			want = 2
		}
		_, _, reuses := as.Counts()
		if n := len(as.Asked("refresh_token")) - before; n != want || reuses != 0 {
			t.Errorf("round %d: %d refreshes, want %d; %d used twice", round, n, want, reuses)
		}
	}
	if n := a.reauthorisations(t); n != 0 {
		t.Errorf("%d events reauth_required", n)
	}
}

func TestFO37_OneRefreshPerGrant(t *testing.T) {
	m := newMemory(t)
	refreshedOnce(t, m, m)
}

func TestFO37_OneRefreshAcrossReplicas(t *testing.T) {
	server := postgrestest.New(t)
	link := server.Database(t)
	keys := t.TempDir()
	if err := secret.CreateKey(keys); err != nil {
		t.Fatal(err)
	}
	box, err := secret.OpenRows(keys)
	if err != nil {
		t.Fatal(err)
	}
	var both [2]*memory
	for i := range both {
		db, err := postgres.Open(t.Context(), link, audittest.Sealer(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		both[i] = &memory{db, box}
	}
	refreshedOnce(t, both[0], both[1])
}

// A lost answer is followed by one try that looks whether it took effect; then a
// human must log in, the record says so, and nobody asks any more.
func TestFO37_LostAnswers(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault func(n int) oauthtest.Fault
		asked int
		lives bool
	}{
		{"rotated, and reuse is detected", func(n int) oauthtest.Fault { return oauthtest.Fault{Lose: n == 1} }, 2, false},
		{"never arrived", func(n int) oauthtest.Fault { return oauthtest.Fault{Drop: n == 1} }, 2, true},
		{"lost twice", func(n int) oauthtest.Fault { return oauthtest.Fault{Drop: n <= 2} }, 2, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, as := newMemory(t), oauthtest.New(t)
			gates, _ := two(t, m, m, as)
			n := 0
			as.Lock()
			as.Fault = func(string, int) oauthtest.Fault { n++; return tt.fault(n) }
			as.Unlock()
			as.Expire()
			for range 3 { // no storm: what is known is not asked for again
				for _, err := range together(t.Context(), 20, gates[0], gates[1]) {
					if tt.lives && err != nil {
						t.Fatal(err)
					} else if !tt.lives {
						wantCode(t, "a call", err, sallyport.AuthorizationRequired, "sallyport servers login s")
						if !errors.Is(err, sallyport.ErrNotExecuted) {
							t.Error("the call may have been executed")
						}
					}
				}
			}
			if asked := len(as.Asked("refresh_token")); asked != tt.asked {
				t.Errorf("%d refreshes, want %d", asked, tt.asked)
			}
			events := 0
			if !tt.lives {
				events = 1
			}
			if got := m.reauthorisations(t); got != events {
				t.Errorf("%d events reauth_required, want %d", got, events)
			}
			if !tt.lives { // and a login mends it
				as.Lock()
				as.Fault = nil
				as.Unlock()
				gates[1].login(t, authz.Wish{For: authz.Gateway, By: "ada"}, "s")
				await.That(t, "both gateways call again", func() bool { return errors.Join(together(t.Context(), 4, gates[0], gates[1])...) == nil })
			}
		})
	}
}

// A gateway that ended in the middle of a refresh leaves a claim: another takes it
// over when its time is up, and counts its answer as lost.
func TestFO37_DeadGateway(t *testing.T) {
	m, as := newMemory(t), oauthtest.New(t)
	gates, _ := two(t, m, m, as)
	v := gates[0].Vault
	var raw map[string]any
	p, err := v.Load(t.Context(), vaultGrant("s", "gateway"), &raw)
	if err != nil {
		t.Fatal(err)
	}
	raw["tries"] = 1
	p.Holder, p.HeldUntil = "one that is gone", time.Now().Add(500*time.Millisecond)
	if _, err := v.Save(t.Context(), p, raw, nil); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2100 * time.Millisecond)
	as.Expire()
	if errs := together(t.Context(), 10, gates[0], gates[1]); errors.Join(errs...) != nil {
		t.Fatal(errs)
	}
	if n := len(as.Asked("refresh_token")); n != 1 {
		t.Errorf("%d refreshes", n)
	}
}

// A refresh that outlives its callers is stored all the same; one that comes back
// for a server that was removed is not.
func TestFO37_CallersGoneServersGone(t *testing.T) {
	m, as := newMemory(t), oauthtest.New(t)
	gates, _ := two(t, m, m, as)
	as.Lock()
	as.Fault = func(string, int) oauthtest.Fault { return oauthtest.Fault{Slow: 400 * time.Millisecond} }
	as.Unlock()
	as.Expire()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	for _, err := range together(ctx, 5, gates[0]) {
		if err == nil {
			t.Error("a call was answered without a token")
		}
	}
	if errs := together(t.Context(), 10, gates[0], gates[1]); errors.Join(errs...) != nil {
		t.Fatal(errs)
	}
	_, _, reuses := as.Counts()
	if n := len(as.Asked("refresh_token")); n != 1 || reuses != 0 {
		t.Errorf("%d refreshes, %d used twice", n, reuses)
	}
	as.Expire()
	done := make(chan []error)
	go func() { done <- together(t.Context(), 5, gates[0]) }()
	time.Sleep(150 * time.Millisecond)
	if _, err := gates[1].Vault.Delete(t.Context(), "s", "", "", nil); err != nil {
		t.Fatal(err)
	}
	<-done
	left, err := gates[1].Vault.Store.Holdings(t.Context(), "default", "s", store.HoldsGrant)
	if err != nil || len(left) != 0 {
		t.Errorf("%d grants came back after the removal, %v", len(left), err)
	}
}
