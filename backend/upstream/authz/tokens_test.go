package authz_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/upstream/authz"
	"sallyport.dev/sallyport/oauth/oauthtest"
)

// TO-12: neither tokens, nor what fetches them, follow a redirect to another origin,
// in whatever form; and nothing of a POST is sent twice.
func TestTO12_CredentialsStayAtTheirOrigin(t *testing.T) {
	var seen []string
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Method+" "+r.URL.String()+" "+r.Header.Get("Authorization"))
	}))
	t.Cleanup(thief.Close)
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, to := range []string{thief.URL + "/mcp", strings.Replace(thief.URL, "127.0.0.1", "localhost", 1) + "/x", "http://169.254.169.254/latest", "//" + strings.TrimPrefix(thief.URL, "http://")} {
			m, as := newMemory(t), oauthtest.New(t)
			s := newSite(t, as, "/mcp")
			var leads atomic.Bool
			s.Also = func(w http.ResponseWriter, r *http.Request) bool {
				if leads.Load() && r.URL.Path == "/mcp" {
					w.Header().Set("Location", to)
					w.WriteHeader(status)
				}
				return leads.Load() && r.URL.Path == "/mcp"
			}
			g := m.gate(t, "gateway", authz.Options{})
			g.knows(t, authz.Config{Server: "s", URL: s.URL})
			g.login(t, authz.Wish{For: authz.Gateway}, "s")
			if _, err := g.call(t.Context(), "s", sallyport.Principal{}, `{}`); err != nil {
				t.Fatal(err)
			}
			leads.Store(true)
			if _, err := g.call(t.Context(), "s", sallyport.Principal{}, `{}`); err == nil {
				t.Errorf("%d to %s: the call is answered", status, to)
			}
			leads.Store(false)
			as.Lock()
			as.Fault = func(string, int) oauthtest.Fault { return oauthtest.Fault{Status: status, To: to} }
			as.Unlock()
			as.Expire()
			before := len(as.Asked("refresh_token"))
			if _, err := g.call(t.Context(), "s", sallyport.Principal{}, `{}`); err == nil {
				t.Errorf("%d to %s: a token came from there", status, to)
			}
			if n := len(as.Asked("refresh_token")) - before; n != 1 {
				t.Errorf("%d to %s: %d refreshes", status, to, n)
			}
		}
	}
	thief.Close() // it has seen all that it ever does
	if len(seen) != 0 {
		t.Errorf("another origin was asked: %q", seen)
	}
}

// TO-10: each token that goes out is the upstream's own, and was asked for with its
// resource; what an agent authenticates with is not known here, and goes nowhere.
func TestTO10_OutboundTokens(t *testing.T) {
	m, as := newMemory(t), oauthtest.New(t)
	a, b := newSite(t, as, "/a/mcp"), newSite(t, as, "/b/mcp")
	g := m.gate(t, "gateway", authz.Options{})
	for name, s := range map[string]*site{"a": a, "b": b} {
		g.knows(t, authz.Config{Server: name, URL: s.URL, Per: authz.PerAgent})
		for _, agent := range []string{"ada", "bob"} {
			g.login(t, authz.Wish{For: authz.Identity("agent:" + agent)}, name)
		}
	}
	used := map[string]string{}
	for name, s := range map[string]*site{"a": a, "b": b} {
		for _, agent := range []string{"ada", "bob", "ada"} {
			before := len(s.Tokens())
			if _, err := g.call(t.Context(), name, sallyport.Principal{ID: agent, TokenID: "canary"}, `{}`); err != nil {
				t.Fatal(err)
			}
			for _, token := range s.Tokens()[before:] {
				access, ok := as.Check(token)
				if !ok || access.Resource != s.URL {
					t.Errorf("server %s got the token %.12q of %q", name, token, access.Resource)
				}
				if other, twice := used[token]; twice && other != name+agent {
					t.Errorf("%s and %s use one token", other, name+agent)
				}
				used[token] = name + agent
			}
		}
		wantCode(t, "nobody logged in for eve", func() error { _, err := g.call(t.Context(), name, sallyport.Principal{ID: "eve"}, `{}`); return err }(),
			sallyport.AuthorizationRequired, "--agent eve")
	}
	if len(used) != 4 {
		t.Errorf("%d tokens for 2 agents at 2 servers", len(used))
	}
	for _, grant := range []string{"authorization_code", "refresh_token"} {
		for _, f := range as.Asked(grant) {
			if r := f["resource"]; len(r) != 1 || !slices.Contains([]string{a.URL, b.URL}, r[0]) {
				t.Errorf("%s with the resource %q", grant, r)
			}
		}
	}
}

// Per user: who acts for nobody calls nothing, and each user's token is theirs.
func TestPerUser(t *testing.T) {
	m, as := newMemory(t), oauthtest.New(t)
	s := newSite(t, as, "/mcp")
	g := m.gate(t, "gateway", authz.Options{})
	g.knows(t, authz.Config{Server: "s", URL: s.URL, Per: authz.PerUser})
	g.login(t, authz.Wish{For: "user:kim"}, "s")
	_, err := g.call(t.Context(), "s", sallyport.Principal{ID: "ada"}, `{}`)
	wantCode(t, "for nobody", err, sallyport.AuthorizationRequired, "on behalf of nobody")
	if _, err := g.call(t.Context(), "s", sallyport.Principal{ID: "ada", OnBehalfOf: "kim"}, `{}`); err != nil {
		t.Error(err)
	}
	_, err = g.call(t.Context(), "s", sallyport.Principal{ID: "ada", OnBehalfOf: "lee"}, `{}`)
	wantCode(t, "for another", err, sallyport.AuthorizationRequired, "--user lee")
	for _, id := range []authz.Identity{"agent:ada", "user:", "user", "admin:x"} {
		if _, err := g.Begin(t.Context(), "s", authz.Wish{For: id}); sallyport.CodeOf(err) != sallyport.Invalid {
			t.Errorf("a login for %q: %v", id, err)
		}
	}
}

// A transport is for its server's origin, whoever asks it for more.
func TestTO12_TransportOfOneOrigin(t *testing.T) {
	m, as := newMemory(t), oauthtest.New(t)
	s, other := newSite(t, as, "/mcp"), newSite(t, as, "/mcp")
	g := m.gate(t, "gateway", authz.Options{})
	g.knows(t, authz.Config{Server: "s", URL: s.URL})
	g.login(t, authz.Wish{For: authz.Gateway}, "s")
	way := g.Transport("s", authz.Gateway, g.way)
	for link, ok := range map[string]bool{s.URL: true, other.URL: false, strings.Replace(s.URL, "127.0.0.1", "localhost", 1): false} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, link, strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := way.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		if (err == nil) != ok {
			t.Errorf("%s: %v", link, err)
		}
	}
	if n := len(other.Tokens()); n != 0 {
		t.Errorf("another origin was asked %d times", n)
	}
}

// Tokens are nowhere in the clear: not in the database's files, nor in the log.
func TestTokensAreSealed(t *testing.T) {
	dir := t.TempDir()
	m, end, err := openIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	as := oauthtest.New(t)
	gates, s := two(t, m, m, as)
	as.Expire()
	if errs := together(t.Context(), 4, gates[0], gates[1]); errors.Join(errs...) != nil {
		t.Fatal(errs)
	}
	var tokens []string
	for token := range gates[0].Known() {
		tokens = append(tokens, token)
	}
	for _, f := range as.Asked("refresh_token") {
		tokens = append(tokens, f.Get("refresh_token"))
	}
	for _, f := range as.Asked("authorization_code") {
		tokens = append(tokens, f.Get("code_verifier"))
	}
	if len(tokens) < 4 || len(s.Tokens()) == 0 {
		t.Fatalf("%d tokens are known", len(tokens))
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "sallyport.db*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, token := range tokens {
			if strings.Contains(string(b), token) {
				t.Errorf("%s holds %.12s… in the clear", f, token)
			}
		}
		if !strings.Contains(string(b), "upstream_holdings") && strings.HasSuffix(f, ".db") {
			t.Error("this is not the database")
		}
	}
}
