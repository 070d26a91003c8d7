package authz_test

import (
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/upstream/authz"
	"sallyport.dev/sallyport/oauth/oauthtest"
	"sallyport.dev/sallyport/store"
	"sallyport.dev/sallyport/test/await"
)

// held counts what is stored for a server.
func (m *memory) held(t *testing.T, g *gate, server string) (n int) {
	t.Helper()
	for _, kind := range []string{store.HoldsClient, store.HoldsGrant, store.HoldsIssuer, store.HoldsLogin} {
		all, err := g.Vault.Store.Holdings(t.Context(), "default", server, kind)
		if err != nil {
			t.Fatal(err)
		}
		n += len(all)
	}
	return n
}

// FO-40: nothing of a server outlives it, nor serves another of its name.
func TestFO40_AnotherServerOfTheName(t *testing.T) {
	m, as, other := newMemory(t), oauthtest.New(t), oauthtest.New(t)
	s, next := newSite(t, as, "/mcp"), newSite(t, other, "/mcp")
	g := m.gate(t, "gateway", authz.Options{})
	g.knows(t, authz.Config{Server: "s", URL: s.URL})
	g.login(t, authz.Wish{For: authz.Gateway}, "s")
	if _, err := g.Begin(t.Context(), "s", authz.Wish{For: authz.Gateway}); err != nil {
		t.Fatal(err)
	}
	if n := m.held(t, g, "s"); n != 4 {
		t.Fatalf("%d things are held", n)
	}
	// The same url again, as after a start: everything is still there.
	after := m.gate(t, "gateway", authz.Options{})
	after.knows(t, authz.Config{Server: "s", URL: s.URL})
	if _, err := after.call(t.Context(), "s", sallyport.Principal{}, `{}`); err != nil || m.held(t, after, "s") != 4 {
		t.Fatalf("after a start: %v, %d things are held", err, m.held(t, after, "s"))
	}
	// Another url under the name.
	moved := m.gate(t, "gateway", authz.Options{})
	moved.knows(t, authz.Config{Server: "s", URL: next.URL})
	if n := m.held(t, moved, "s"); n != 0 {
		t.Errorf("%d things are held for the old one", n)
	}
	_, err := moved.call(t.Context(), "s", sallyport.Principal{}, `{}`)
	wantCode(t, "a call of the new one", err, sallyport.AuthorizationRequired, "nobody has logged in")
	for _, token := range next.Tokens() {
		if token != "" {
			t.Error("the new one got a token of the old one")
		}
	}
	// And what is held in the memory of a gateway serves no other url either.
	g.Drop("s")
	if _, err := g.call(t.Context(), "s", sallyport.Principal{}, `{}`); err == nil {
		t.Error("a call without whom it is for")
	}
}

// A logout takes the grant back.
func TestLogout(t *testing.T) {
	m, as := newMemory(t), oauthtest.New(t)
	s := newSite(t, as, "/mcp")
	g := m.gate(t, "gateway", authz.Options{})
	g.knows(t, authz.Config{Server: "s", URL: s.URL})
	g.login(t, authz.Wish{For: authz.Gateway}, "s")
	if as.Live() != 1 {
		t.Fatal("no grant is alive")
	}
	e := sallyport.Entry{Tenant: "default", Kind: sallyport.EntryAdmin, Payload: []byte(`{}`)}
	if err := g.Logout(t.Context(), "s", authz.Gateway, e); err != nil {
		t.Fatal(err)
	}
	_, err := g.call(t.Context(), "s", sallyport.Principal{}, `{}`)
	wantCode(t, "a call", err, sallyport.AuthorizationRequired, "nobody has logged in")
	await.That(t, "the grant is revoked", func() bool { return as.Live() == 0 })
	if err := g.Logout(t.Context(), "s", authz.Gateway, e); sallyport.CodeOf(err) != sallyport.NotFound {
		t.Errorf("again: %v", err)
	}
}
