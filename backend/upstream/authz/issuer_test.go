package authz_test

import (
	"net/url"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/upstream/authz"
	"sallyport.dev/sallyport/oauth/oauthtest"
	"sallyport.dev/sallyport/store"
	"sallyport.dev/sallyport/test/await"
)

// TO-11: the issuer is known before anybody is sent there, and compared as it is. A
// code never goes to another party than the one that was asked.
func TestTO11_ResponseOfAnotherIssuer(t *testing.T) {
	for _, tt := range []struct {
		name     string
		announce bool
		iss      string // "": right, "-": none
		ok       bool
	}{
		{"right", true, "", true}, {"right though not announced", false, "", true}, {"none, and none announced", false, "-", true},
		{"announced and missing", true, "-", false}, {"wrong", true, "https://evil.example", false}, {"wrong though not announced", false, "https://evil.example", false},
		{"normalised", true, "/", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, as := newMemory(t), oauthtest.New(t)
			as.Announce, as.Iss = tt.announce, tt.iss
			if tt.iss == "/" {
				as.Iss = as.ID() + "/"
			}
			s := newSite(t, as, "/mcp")
			g := m.gate(t, "gateway", authz.Options{})
			g.knows(t, authz.Config{Server: "s", URL: s.URL})
			l, err := g.Begin(t.Context(), "s", authz.Wish{For: authz.Gateway})
			if err != nil {
				t.Fatal(err)
			}
			back := oauthtest.Consent(t, l.URL).Query()
			_, err = g.Finish(t.Context(), "s", back)
			if tt.ok {
				if err != nil {
					t.Fatal(err)
				}
			} else {
				wantCode(t, "finish", err, sallyport.AuthorizationRequired, "authorization server")
				if n := len(as.Asked("authorization_code")); n != 0 {
					t.Errorf("the code was sent %d times", n)
				}
			}
			// Neither an answer that was used, nor one that was refused, comes again.
			if _, err := g.Finish(t.Context(), "s", back); sallyport.CodeOf(err) != sallyport.NotFound {
				t.Errorf("again: %v", err)
			}
			_, err = g.call(t.Context(), "s", sallyport.Principal{}, `{}`)
			if (err == nil) != tt.ok {
				t.Errorf("a call: %v", err)
			}
		})
	}
}

// The error of a response from elsewhere is not believed, nor shown.
func TestTO11_ErrorOfAnotherIssuer(t *testing.T) {
	m, as := newMemory(t), oauthtest.New(t)
	s := newSite(t, as, "/mcp")
	g := m.gate(t, "gateway", authz.Options{})
	g.knows(t, authz.Config{Server: "s", URL: s.URL})
	l, err := g.Begin(t.Context(), "s", authz.Wish{For: authz.Gateway})
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(l.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, err = g.Finish(t.Context(), "s", url.Values{"state": {u.Query().Get("state")}, "iss": {"https://evil.example"}, "error": {"canary_error"}})
	wantCode(t, "finish", err, sallyport.AuthorizationRequired, "another authorization server")
	if strings.Contains(err.Error(), "canary_error") {
		t.Error("what an attacker wrote is shown")
	}
	for _, v := range []url.Values{{}, {"state": {"s.x"}}, {"state": {"other.x"}}, {"state": {"s"}}, {"state": {"s.a", "s.b"}}} {
		if _, err := g.Finish(t.Context(), "s", v); sallyport.CodeOf(err) != sallyport.NotFound {
			t.Errorf("%v: %v", v, err)
		}
	}
}

// The answer of one server's login is worth nothing at the address of another.
func TestTO11_AnswersStayAtTheirServer(t *testing.T) {
	m, honest, hostile := newMemory(t), oauthtest.New(t), oauthtest.New(t)
	a, b := newSite(t, honest, "/mcp"), newSite(t, hostile, "/mcp")
	g := m.gate(t, "gateway", authz.Options{})
	for name, s := range map[string]*site{"a": a, "b": b} {
		g.knows(t, authz.Config{Server: name, URL: s.URL})
	}
	l, err := g.Begin(t.Context(), "b", authz.Wish{For: authz.Gateway})
	if err != nil {
		t.Fatal(err)
	}
	// The hostile server sends the human on to the honest one, with a client id of
	// the gateway there. The code of that comes back to the address of a.
	state := oauthtest.Consent(t, l.URL).Query().Get("state")
	la, err := g.Begin(t.Context(), "a", authz.Wish{For: authz.Gateway})
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(la.URL)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("state", state)
	u.RawQuery = q.Encode()
	back := oauthtest.Consent(t, u.String())
	if _, err := g.Finish(t.Context(), "a", back.Query()); sallyport.CodeOf(err) != sallyport.NotFound {
		t.Errorf("at a: %v", err)
	}
	if _, err := g.Finish(t.Context(), "b", back.Query()); err == nil { // iss tells
		t.Error("at b it is taken")
	}
	if n := len(hostile.Asked("authorization_code")); n != 0 {
		t.Errorf("the hostile server got the code %d times", n)
	}
}

// TO-11: a server that names another authorization server is not followed there
// until an operator says so; then everything is new.
func TestTO11_AnotherAuthorizationServer(t *testing.T) {
	m, first, second := newMemory(t), oauthtest.New(t), oauthtest.New(t)
	s := newSite(t, first, "/mcp")
	g := m.gate(t, "gateway", authz.Options{})
	g.knows(t, authz.Config{Server: "s", URL: s.URL})
	g.login(t, authz.Wish{For: authz.Gateway}, "s")
	call := func() error { _, err := g.call(t.Context(), "s", sallyport.Principal{}, `{}`); return err }
	if err := call(); err != nil {
		t.Fatal(err)
	}
	s.AS = second
	wantCode(t, "a call", call(), sallyport.AuthorizationRequired, second.ID(), "--issuer "+second.ID())
	_, err := g.Begin(t.Context(), "s", authz.Wish{For: authz.Gateway})
	wantCode(t, "a login", err, sallyport.AuthorizationRequired, first.ID(), second.ID(), "--issuer")
	if consents, registrations, _ := second.Counts(); consents+registrations+len(second.Asked("refresh_token")) != 0 {
		t.Error("something was sent to the new one")
	}
	if _, err := g.Begin(t.Context(), "s", authz.Wish{For: authz.Gateway, Issuer: "https://third.example"}); sallyport.CodeOf(err) != sallyport.AuthorizationRequired {
		t.Errorf("an issuer that the server does not name: %v", err)
	}
	l := g.login(t, authz.Wish{For: authz.Gateway, Issuer: second.ID()}, "s")
	if err := call(); err != nil {
		t.Fatal(err)
	}
	if _, registrations, _ := second.Counts(); registrations != 1 || l.Issuer != second.ID() {
		t.Errorf("%d registrations at the new one", registrations)
	}
	for _, f := range second.Asked("authorization_code") {
		if first.Knows(f.Get("client_id")) {
			t.Error("the registration of the first was shown to the second")
		}
	}
	// What is confirmed stays so for the next login.
	g.login(t, authz.Wish{For: authz.Gateway}, "s")
	all, err := g.Vault.Store.Holdings(t.Context(), "default", "s", store.HoldsClient)
	if err != nil || len(all) != 1 || all[0].Name != second.ID() {
		t.Errorf("%d registrations are kept, %v", len(all), err)
	}
}

// Configured credentials go to the configured issuer and no other.
func TestTO11_ConfiguredIssuer(t *testing.T) {
	m, honest, hostile := newMemory(t), oauthtest.New(t), oauthtest.New(t)
	honest.Know("gw", "canary-secret")
	s := newSite(t, hostile, "/mcp")
	g := m.gate(t, "gateway", authz.Options{})
	for name, grant := range map[string]string{"code": authz.ByCode, "own": authz.ByCredentials} {
		g.knows(t, authz.Config{Server: name, URL: s.URL, Grant: grant, Issuer: honest.ID(), ClientID: "gw", Secret: "canary-secret"})
	}
	_, err := g.Begin(t.Context(), "code", authz.Wish{For: authz.Gateway})
	wantCode(t, "a login", err, sallyport.AuthorizationRequired, hostile.ID(), "oauth.issuer")
	_, err = g.call(t.Context(), "own", sallyport.Principal{}, `{}`)
	wantCode(t, "a call", err, sallyport.AuthorizationRequired, hostile.ID(), "oauth.issuer")
	if n := len(hostile.Asked("client_credentials")); n != 0 {
		t.Errorf("the credentials were shown %d times", n)
	}
	s.AS = honest
	await.That(t, "it is called", func() bool {
		_, err := g.call(t.Context(), "own", sallyport.Principal{}, `{}`)
		return err == nil
	})
}
