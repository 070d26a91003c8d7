package authz_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/upstream/authz"
	"sallyport.dev/sallyport/oauth/oauthtest"
)

// Where humans come back to tells them what came of it, and nobody else.
func TestCallback(t *testing.T) {
	m, as := newMemory(t), oauthtest.New(t)
	s := newSite(t, as, "/mcp")
	g := m.gate(t, "gateway", authz.Options{})
	as.Documents = true
	g.knows(t, authz.Config{Server: "s", URL: s.URL, Document: "https://gw.example/oauth/upstream/s/client.json"})
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
	g.knows(t, authz.Config{Server: "s", URL: s.URL})
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

// A server that does not say that it checks PKCE gets nobody.
func TestNoLoginWithoutPKCE(t *testing.T) {
	m, as := newMemory(t), oauthtest.New(t)
	as.NoPKCE = true
	s := newSite(t, as, "/mcp")
	g := m.gate(t, "gateway", authz.Options{})
	g.knows(t, authz.Config{Server: "s", URL: s.URL})
	_, err := g.Begin(t.Context(), "s", authz.Wish{For: authz.Gateway})
	wantCode(t, "a login", err, sallyport.AuthorizationRequired, "PKCE")
}
