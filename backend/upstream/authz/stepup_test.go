package authz_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/upstream/authz"
	"sallyport.dev/sallyport/oauth/oauthtest"
	"sallyport.dev/sallyport/secret/vault"
	"sallyport.dev/sallyport/store"
)

func vaultGrant(server, id string) vault.Place {
	return vault.Place{Server: server, Kind: store.HoldsGrant, Name: id}
}

func scopesOf(t *testing.T, link string) []string {
	t.Helper()
	u, err := url.Parse(link)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(u.Query().Get("scope"))
}

// FO-39: what is missing is asked of a human, once, as the union; and where that
// does not help, it is said, and nobody is sent round in circles.
func TestFO39_StepUp(t *testing.T) {
	m, as := newMemory(t), oauthtest.New(t)
	s := newSite(t, as, "/mcp")
	s.Need("a")
	g := m.gate(t, "gateway", authz.Options{})
	g.knows(t, authz.Config{Server: "s", URL: s.URL})
	call := func() error { _, err := g.call(t.Context(), "s", sallyport.Principal{}, `{}`); return err }
	wantCode(t, "before a login", call(), sallyport.AuthorizationRequired, "sallyport servers login s")
	if l := g.login(t, authz.Wish{For: authz.Gateway}, "s"); !slices.Equal(scopesOf(t, l.URL), []string{"a"}) {
		t.Errorf("the first login asks for %q", scopesOf(t, l.URL))
	}
	if err := call(); err != nil {
		t.Fatal(err)
	}
	s.Need("b a b")
	for range 3 { // each call says it, and none asks the authorization server anything
		asked := len(as.Asked("refresh_token"))
		wantCode(t, "more is needed", call(), sallyport.AuthorizationRequired, "consent to more: b", "sallyport servers login s")
		if len(as.Asked("refresh_token")) != asked {
			t.Error("a refresh does not bring a scope")
		}
	}
	if st, _ := g.Status(t.Context(), "s"); len(st) != 1 || !strings.Contains(st[0].Wants, "b") {
		t.Errorf("%+v", st)
	}
	if l := g.login(t, authz.Wish{For: authz.Gateway}, "s"); !slices.Equal(scopesOf(t, l.URL), []string{"a", "b"}) {
		t.Errorf("the second login asks for %q", scopesOf(t, l.URL))
	}
	if err := call(); err != nil {
		t.Fatal(err)
	}
	// Consent that does not help.
	as.Lock()
	as.Grant = func([]string) string { return "a b" } // never c
	as.Unlock()
	s.Need("c")
	wantCode(t, "more again", call(), sallyport.AuthorizationRequired, "consent to more: c")
	g.login(t, authz.Wish{For: authz.Gateway}, "s")
	consents, _, _ := as.Counts()
	for range 3 {
		err := call()
		wantCode(t, "after consent", err, sallyport.AuthorizationRequired, "another login does not help", "c")
		if !errors.Is(err, sallyport.ErrNotExecuted) {
			t.Error("it counts as executed")
		}
	}
	if n, _, _ := as.Counts(); n != consents {
		t.Errorf("%d logins", n)
	}
}

// The variants: 401 that says insufficient_scope, 403 that does not, and no scope.
func TestFO39_Variants(t *testing.T) {
	for _, tt := range []struct {
		status    int
		challenge string
		code      sallyport.Code
		says      string
	}{
		{403, `Bearer error="insufficient_scope", scope="b"`, sallyport.AuthorizationRequired, "consent to more: b"},
		{401, `Bearer error="insufficient_scope", scope="b"`, sallyport.AuthorizationRequired, "consent to more: b"},
		{403, `Bearer error="insufficient_scope"`, sallyport.AuthorizationRequired, "does not name"},
		{403, `Bearer error="insufficient_scope", scope="a"`, sallyport.AuthorizationRequired, "does not help"},
		{403, ``, sallyport.Upstream, "403"},
		{401, `Bearer error="invalid_token"`, sallyport.AuthorizationRequired, "fetched just now"},
		{403, `Bearer error="insufficient_scope", scope="` + strings.Repeat("x ", 5000) + strings.Repeat("y", 5000) + `"`, sallyport.AuthorizationRequired, "consent to more: x"},
	} {
		m, as := newMemory(t), oauthtest.New(t)
		s := newSite(t, as, "/mcp")
		s.Need("a")
		refusals := 0
		var refuse atomic.Bool
		s.Also = func(w http.ResponseWriter, r *http.Request) bool {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			if !refuse.Load() || !bytes.Contains(body, []byte("tools/call")) {
				return false
			}
			refusals++
			w.Header().Set("WWW-Authenticate", tt.challenge)
			w.WriteHeader(tt.status)
			return true
		}
		g := m.gate(t, "gateway", authz.Options{})
		g.knows(t, authz.Config{Server: "s", URL: s.URL})
		g.login(t, authz.Wish{For: authz.Gateway}, "s")
		if _, err := g.call(t.Context(), "s", sallyport.Principal{}, `{}`); err != nil {
			t.Fatal(err)
		}
		refuse.Store(true)
		_, err := g.call(t.Context(), "s", sallyport.Principal{}, `{}`)
		wantCode(t, tt.challenge, err, tt.code, tt.says)
		if refusals > 2 {
			t.Errorf("%s: sent %d times", tt.challenge, refusals)
		}
	}
}

// The gateway's own credentials step up by themselves: once, and not again.
func TestFO39_OwnCredentials(t *testing.T) {
	m, as := newMemory(t), oauthtest.New(t)
	as.Know("gw", "canary-secret")
	s := newSite(t, as, "/mcp")
	s.Need("a")
	g := m.gate(t, "gateway", authz.Options{})
	g.knows(t, authz.Config{Server: "s", URL: s.URL, Grant: authz.ByCredentials, Issuer: as.ID(), ClientID: "gw", Secret: "canary-secret"})
	call := func() error { _, err := g.call(t.Context(), "s", sallyport.Principal{}, `{}`); return err }
	if err := call(); err != nil {
		t.Fatal(err)
	}
	if g.Known()["canary-secret"] != "s" {
		t.Error("the client's secret would not be recognised in a result")
	}
	s.Need("a b")
	if err := call(); err != nil {
		t.Fatal(err)
	}
	asked := as.Asked("client_credentials")
	if got := asked[len(asked)-1].Get("scope"); got != "a b" || len(asked) > 3 {
		t.Errorf("%d requests, the last for %q", len(asked), got)
	}
	as.Lock()
	as.Grant = func([]string) string { return "a" }
	as.Unlock()
	s.Need("c")
	wantCode(t, "not granted", call(), sallyport.AuthorizationRequired, "does not help", "c")
	before := len(as.Asked("client_credentials"))
	for range 3 {
		wantCode(t, "not granted", call(), sallyport.AuthorizationRequired, "does not help", "c")
	}
	if n := len(as.Asked("client_credentials")); n != before {
		t.Errorf("%d more requests for what was refused", n-before)
	}
	if _, err := g.Begin(context.Background(), "s", authz.Wish{For: authz.Gateway}); sallyport.CodeOf(err) != sallyport.Invalid {
		t.Errorf("a login where none is needed: %v", err)
	}
}
