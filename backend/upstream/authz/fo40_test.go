package authz_test

import (
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"net/http"

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
	if err := g.add(t.Context(), authz.Config{Server: "s", URL: s.URL}); err != nil {
		t.Fatal(err)
	}
	g.login(t, authz.Wish{For: authz.Gateway}, "s")
	if _, err := g.Begin(t.Context(), "s", authz.Wish{For: authz.Gateway}); err != nil {
		t.Fatal(err)
	}
	if n := m.held(t, g, "s"); n != 4 {
		t.Fatalf("%d things are held", n)
	}
	// The same url again, as after a start: everything is still there.
	after := m.gate(t, "gateway", authz.Options{})
	if err := after.add(t.Context(), authz.Config{Server: "s", URL: s.URL}); err != nil {
		t.Fatal(err)
	}
	if _, err := after.call(t.Context(), "s", sallyport.Principal{}, `{}`); err != nil || m.held(t, after, "s") != 4 {
		t.Fatalf("after a start: %v, %d things are held", err, m.held(t, after, "s"))
	}
	// Another url under the name.
	moved := m.gate(t, "gateway", authz.Options{})
	if err := moved.add(t.Context(), authz.Config{Server: "s", URL: next.URL}); err != nil {
		t.Fatal(err)
	}
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
	if err := g.add(t.Context(), authz.Config{Server: "s", URL: s.URL}); err != nil {
		t.Fatal(err)
	}
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

// Where humans come back to tells them what came of it, and nobody else.
func TestCallback(t *testing.T) {
	m, as := newMemory(t), oauthtest.New(t)
	s := newSite(t, as, "/mcp")
	g := m.gate(t, "gateway", authz.Options{})
	as.Documents = true
	if err := g.add(t.Context(), authz.Config{Server: "s", URL: s.URL, Document: "https://gw.example/oauth/upstream/s/client.json"}); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	g.Routes(mux)
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w
	}
	l, err := g.Begin(t.Context(), "s", authz.Wish{For: authz.Gateway})
	if err != nil {
		t.Fatal(err)
	}
	u, _ := url.Parse(l.URL)
	if id := u.Query().Get("client_id"); id != "https://gw.example/oauth/upstream/s/client.json" {
		t.Errorf("client id %q", id)
	}
	if w := get("/oauth/upstream/s/client.json"); w.Code != 200 || !strings.Contains(w.Body.String(), `"client_id":"https://gw.example/oauth/upstream/s/client.json"`) || !strings.Contains(w.Body.String(), "/oauth/upstream/s/callback") {
		t.Errorf("the client's document: %d %s", w.Code, w.Body)
	}
	if w := get("/oauth/upstream/other/client.json"); w.Code != 404 {
		t.Errorf("a document of no server: %d", w.Code)
	}
	if w := get("/oauth/upstream/s/callback?state=s.x&code=<script>"); w.Code != 400 || strings.Contains(w.Body.String(), "<script>") {
		t.Errorf("an answer to nothing: %d %s", w.Code, w.Body)
	}
	back := oauthtest.Consent(t, l.URL)
	w := get(back.RequestURI())
	if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") || w.Header().Get("Referrer-Policy") != "no-referrer" || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("%d %s %v", w.Code, w.Body, w.Header())
	}
	for token := range g.Known() {
		if strings.Contains(w.Body.String(), token) {
			t.Error("the page shows a token")
		}
	}
	if _, err := g.call(t.Context(), "s", sallyport.Principal{}, `{}`); err != nil {
		t.Error(err)
	}
	if _, registrations, _ := as.Counts(); registrations != 0 {
		t.Error("it registered all the same")
	}
}

// TO-14: half-finished logins are bounded.
func TestTO14_LoginsThatNobodyFinishes(t *testing.T) {
	m, as := newMemory(t), oauthtest.New(t)
	s := newSite(t, as, "/mcp")
	g := m.gate(t, "gateway", authz.Options{})
	if err := g.add(t.Context(), authz.Config{Server: "s", URL: s.URL}); err != nil {
		t.Fatal(err)
	}
	var err error
	n := 0
	for ; err == nil && n < 300; n++ {
		_, err = g.Begin(t.Context(), "s", authz.Wish{For: authz.Gateway})
	}
	wantCode(t, "one too many", err, sallyport.RateLimited, "wait for somebody")
	if n != 201 {
		t.Errorf("after %d logins", n)
	}
	if _, registrations, _ := as.Counts(); registrations != 1 {
		t.Errorf("%d registrations", registrations)
	}
}
