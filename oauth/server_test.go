package oauth_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth/extauth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"sallyport.dev/sallyport/oauth"
)

func form(pairs ...string) url.Values {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		v.Add(pairs[i], pairs[i+1])
	}
	return v
}

func TestTokenEndpoint(t *testing.T) {
	w := newWorld(t)
	grant := form("grant_type", "client_credentials")
	with := func(pairs ...string) url.Values {
		return form(append([]string{"grant_type", "client_credentials"}, pairs...)...)
	}
	for _, tt := range []struct {
		name           string
		client, secret string // by Basic
		form           url.Values
		change         func(*http.Request)
		status         int
		code           string // "" is a token
	}{
		{"basic", "claude", w.secret, grant, nil, 200, ""},
		{"post", "", "", with("client_id", "claude", "client_secret", w.secret), nil, 200, ""},
		{"basic with client_id", "claude", w.secret, with("client_id", "claude"), nil, 200, ""},
		{"other tenant", "acme/claude", w.secret, grant, nil, 200, ""},
		{"this resource", "claude", w.secret, with("resource", resource), nil, 200, ""},
		{"a profile's resource", "claude", w.secret, with("resource", profile), nil, 200, ""},
		{"unknown parameter", "claude", w.secret, with("x", "y"), nil, 200, ""},
		{"charset", "claude", w.secret, grant, func(r *http.Request) {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=UTF-8")
		}, 200, ""},

		{"no client", "", "", grant, nil, 401, "invalid_client"},
		{"wrong secret", "claude", w.secret + "x", grant, nil, 401, "invalid_client"},
		{"empty secret", "claude", "", grant, nil, 401, "invalid_client"},
		{"the hash as secret", "claude", oauth.HashSecret(w.secret), grant, nil, 401, "invalid_client"},
		{"unknown client", "nobody", w.secret, grant, nil, 401, "invalid_client"},
		{"unknown client, empty secret", "nobody", "", grant, nil, 401, "invalid_client"},
		{"unknown tenant", "other/claude", w.secret, grant, nil, 401, "invalid_client"},
		{"no client id", "", "", with("client_secret", w.secret), nil, 401, "invalid_client"},
		{"bearer", "", "", grant, func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }, 401, "invalid_client"},
		{"broken basic", "", "", grant, func(r *http.Request) { r.Header.Set("Authorization", "Basic !") }, 401, "invalid_client"},
		{"two methods", "claude", w.secret, with("client_id", "claude", "client_secret", w.secret), nil, 400, "invalid_request"},
		{"two headers", "claude", w.secret, grant, func(r *http.Request) { r.Header.Add("Authorization", r.Header.Get("Authorization")) }, 400, "invalid_request"},
		{"two clients", "claude", w.secret, with("client_id", "other"), nil, 400, "invalid_request"},

		{"no grant", "claude", w.secret, form(), nil, 400, "invalid_request"},
		{"password grant", "claude", w.secret, form("grant_type", "password"), nil, 400, "unsupported_grant_type"},
		{"twice", "claude", w.secret, with("grant_type", "client_credentials"), nil, 400, "invalid_request"},
		{"scope", "claude", w.secret, with("scope", "admin"), nil, 400, "invalid_scope"},
		{"empty scope", "claude", w.secret, with("scope", ""), nil, 200, ""},

		{"foreign resource", "claude", w.secret, with("resource", "https://other.example/mcp"), nil, 400, "invalid_target"},
		{"resource with a slash", "claude", w.secret, with("resource", resource+"/"), nil, 400, "invalid_target"},
		{"resource with a fragment", "claude", w.secret, with("resource", resource+"#x"), nil, 400, "invalid_target"},
		{"relative resource", "claude", w.secret, with("resource", "/mcp"), nil, 400, "invalid_target"},
		{"two resources", "claude", w.secret, with("resource", resource, "resource", profile), nil, 400, "invalid_target"},

		{"in the URL", "claude", w.secret, grant, func(r *http.Request) { r.URL.RawQuery = "client_secret=" + w.secret }, 400, "invalid_request"},
		{"JSON", "claude", w.secret, grant, func(r *http.Request) { r.Header.Set("Content-Type", "application/json") }, 400, "invalid_request"},
		{"no type", "claude", w.secret, grant, func(r *http.Request) { r.Header.Del("Content-Type") }, 400, "invalid_request"},
		{"GET", "claude", w.secret, grant, func(r *http.Request) { r.Method = http.MethodGet }, 405, "invalid_request"},
		{"too large", "claude", w.secret, with("x", strings.Repeat("y", 20<<10)), nil, 413, "invalid_request"},
		{"broken encoding", "claude", w.secret, nil, func(r *http.Request) {
			*r = *httptest.NewRequest(http.MethodPost, "/oauth/token", strings.NewReader("grant_type=%zz"))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}, 400, "invalid_request"},
	} {
		w.advance(time.Minute) // forgive the failures so far
		rec := w.ask(tt.client, tt.secret, tt.form, tt.change)
		var body struct {
			Token   string `json:"access_token"`
			Type    string `json:"token_type"`
			Expires int    `json:"expires_in"`
			Code    string `json:"error"`
			Text    string `json:"error_description"`
		}
		if err := json.Unmarshal(rec.Body.Bytes(), &body); err != nil {
			t.Errorf("%s: %v in %q", tt.name, err, rec.Body)
			continue
		}
		if rec.Code != tt.status || body.Code != tt.code || (body.Token == "") != (tt.code != "") {
			t.Errorf("%s: status %d, %s; want %d, error %q", tt.name, rec.Code, rec.Body, tt.status, tt.code)
		}
		h := rec.Result().Header
		if h.Get("Cache-Control") != "no-store" || !strings.HasPrefix(h.Get("Content-Type"), "application/json") {
			t.Errorf("%s: headers %v", tt.name, h)
		}
		if (rec.Code == 401) != strings.HasPrefix(h.Get("WWW-Authenticate"), "Basic") {
			t.Errorf("%s: status %d with WWW-Authenticate %q", tt.name, rec.Code, h.Get("WWW-Authenticate"))
		}
		if tt.code == "" && (body.Type != "Bearer" || body.Expires < 598 || body.Expires > 600) {
			t.Errorf("%s: %s", tt.name, rec.Body)
		}
		if strings.Contains(rec.Body.String(), w.secret) {
			t.Errorf("%s: the answer shows the secret", tt.name)
		}
	}
}

func TestTokenOfInactiveAgent(t *testing.T) {
	w := newWorld(t)
	for _, state := range []string{"suspended", "revoked", "", "Active"} {
		a := w.agent(t)
		a.State = state
		w.people.put(a)
		if rec := w.ask("claude", w.secret, form("grant_type", "client_credentials"), nil); rec.Code != 401 {
			t.Errorf("state %q: status %d %s", state, rec.Code, rec.Body)
		}
		if _, err := w.server.Issue(context.Background(), a, "", "root"); err == nil {
			t.Errorf("state %q: an operator got a token", state)
		}
	}
}

func TestTokenWhenTheStoreIsDown(t *testing.T) {
	w := newWorld(t)
	w.people.broken = errors.New("disk on fire")
	rec := w.ask("claude", w.secret, form("grant_type", "client_credentials"), nil)
	if rec.Code != 503 || strings.Contains(rec.Body.String(), "fire") {
		t.Errorf("status %d %s", rec.Code, rec.Body)
	}
}

// Failures are counted for one client from one address, and for one address.
// Successes are not, and a stranger cannot lock an agent out.
func TestFailuresAreThrottled(t *testing.T) {
	w := newWorld(t)
	grant := form("grant_type", "client_credentials")
	from := func(addr string) func(*http.Request) { return func(r *http.Request) { r.RemoteAddr = addr } }
	for range 100 {
		if rec := w.ask("claude", w.secret, grant, from("192.0.2.1:1")); rec.Code != 200 {
			t.Fatalf("a success was throttled: %d", rec.Code)
		}
	}
	status := 0
	for i := range 11 {
		rec := w.ask("claude", "wrong", grant, from(fmt.Sprintf("192.0.2.66:%d", i)))
		if status = rec.Code; i < 10 && status != 401 {
			t.Fatalf("failure %d: status %d", i, status)
		}
		if status == 429 && rec.Header().Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	if status != 429 {
		t.Errorf("status %d after ten failures, want 429", status)
	}
	if rec := w.ask("claude", w.secret, grant, from("192.0.2.66:9")); rec.Code != 200 {
		t.Errorf("the right secret, from where somebody guesses: %d, want 200", rec.Code)
	}
	if rec := w.ask("claude", w.secret, grant, from("192.0.2.1:1")); rec.Code != 200 {
		t.Errorf("an address without failures: %d, want 200", rec.Code)
	}
	w.advance(time.Minute)
	if rec := w.ask("claude", "wrong", grant, from("192.0.2.66:9")); rec.Code != 401 {
		t.Errorf("a minute later: %d, want 401", rec.Code)
	}

	n := 0
	for ; n < 200; n++ { // one host of an IPv6 network tries many clients from many addresses
		if w.ask(fmt.Sprint("c", n), "wrong", grant, from(fmt.Sprintf("[2001:db8::%x]:1", n))).Code == 429 {
			break
		}
	}
	if n != 60 {
		t.Errorf("throttled after %d failures of one network, want 60", n)
	}
	if rec := w.ask("claude", "wrong", grant, from("[2001:db8:0:1::1]:1")); rec.Code != 401 {
		t.Errorf("another network: %d, want 401", rec.Code)
	}
}

func TestDocuments(t *testing.T) {
	w := newWorld(t)
	mux := http.NewServeMux()
	w.server.Routes(mux)
	get := func(path string) map[string]any {
		rec := httptest.NewRecorder()
		mux.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
		var v map[string]any
		if err := json.Unmarshal(rec.Body.Bytes(), &v); err != nil || rec.Code != 200 {
			t.Fatalf("%s: %d %v", path, rec.Code, err)
		}
		return v
	}
	meta := get("/.well-known/oauth-authorization-server")
	if meta["issuer"] != issuer || meta["token_endpoint"] != issuer+"/oauth/token" || meta["jwks_uri"] != issuer+"/oauth/jwks" {
		t.Errorf("metadata %v", meta)
	}
	keys := get("/oauth/jwks")["keys"].([]any)
	key := keys[0].(map[string]any)
	if len(keys) != 1 || key["kty"] != "OKP" || key["crv"] != "Ed25519" || key["alg"] != "EdDSA" || key["d"] != nil {
		t.Errorf("keys %v", keys)
	}
}

// A client of the MCP go-sdk finds its way from the 401 to a token.
func TestGoSDKClientGetsAToken(t *testing.T) {
	w := newWorld(t)
	mux := http.NewServeMux()
	host := httptest.NewServer(mux)
	defer host.Close()
	c := w.config
	c.Issuer, c.Resources = host.URL, []string{host.URL + "/mcp"}
	server, err := oauth.NewServer(c)
	if err != nil {
		t.Fatal(err)
	}
	server.Routes(mux)
	mux.HandleFunc("/.well-known/oauth-protected-resource/mcp", func(rw http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(rw).Encode(map[string]any{"resource": c.Resources[0], "authorization_servers": []string{c.Issuer}})
	})
	h, err := extauth.NewClientCredentialsHandler(&extauth.ClientCredentialsHandlerConfig{
		Credentials: &oauthex.ClientCredentials{ClientID: "claude", ClientSecretAuth: &oauthex.ClientSecretAuth{ClientSecret: w.secret}},
	})
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequest(http.MethodPost, c.Resources[0], nil)
	refused := httptest.NewRecorder()
	refused.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+host.URL+`/.well-known/oauth-protected-resource/mcp"`)
	refused.WriteHeader(http.StatusUnauthorized)
	if err := h.Authorize(context.Background(), req, refused.Result()); err != nil {
		t.Fatal(err)
	}
	source, err := h.TokenSource(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	tok, err := source.Token()
	if err != nil {
		t.Fatal(err)
	}
	v, err := oauth.NewVerifier(c)
	if err != nil {
		t.Fatal(err)
	}
	door, err := v.For(c.Resources[0])
	if err != nil {
		t.Fatal(err)
	}
	if who, err := door.Authenticate(context.Background(), tok.AccessToken); err != nil || who.ID != "claude" {
		t.Errorf("%+v, %v", who, err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	w := newWorld(t)
	for name, change := range map[string]func(*oauth.Config){
		"no issuer":      func(c *oauth.Config) { c.Issuer = "" },
		"slash":          func(c *oauth.Config) { c.Issuer += "/" },
		"no resource":    func(c *oauth.Config) { c.Resources = nil },
		"empty resource": func(c *oauth.Config) { c.Resources = []string{""} },
		"no keys":        func(c *oauth.Config) { c.Keys = nil },
		"no agents":      func(c *oauth.Config) { c.Agents = nil },
	} {
		c := w.config
		change(&c)
		if _, err := oauth.NewServer(c); err == nil {
			t.Errorf("%s: NewServer takes it", name)
		}
		if _, err := oauth.NewVerifier(c); err == nil {
			t.Errorf("%s: NewVerifier takes it", name)
		}
	}
}
