package oauth_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/oauth"
)

const (
	issuer   = "http://127.0.0.1:7450"
	resource = issuer + "/mcp"
	profile  = issuer + "/mcp/ops"
)

// A clock that only the test moves.
type clock struct{ ns atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.ns.Store(time.Date(2026, 11, 29, 12, 0, 0, 500_000_000, time.UTC).UnixNano())
	return c
}
func (c *clock) now() time.Time          { return time.Unix(0, c.ns.Load()) }
func (c *clock) advance(d time.Duration) { c.ns.Add(int64(d)) }

// people is a store of agents and admins in memory, which counts look-ups and
// can be out of order.
type people struct {
	mu     sync.Mutex
	agents map[string]sallyport.Agent
	admins map[string]sallyport.Admin
	asked  int
	broken error
}

func (p *people) Agent(_ context.Context, tenant, id string) (sallyport.Agent, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	if p.broken != nil {
		return sallyport.Agent{}, p.broken
	}
	a, ok := p.agents[tenant+"/"+id]
	if !ok {
		return a, &sallyport.Error{Code: sallyport.NotFound, Message: "no such agent"}
	}
	return a, nil
}

func (p *people) Admin(_ context.Context, tenant, name string) (sallyport.Admin, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, ok := p.admins[tenant+"/"+name]
	if !ok {
		return a, &sallyport.Error{Code: sallyport.NotFound, Message: "no such admin"}
	}
	return a, nil
}

func (p *people) put(a sallyport.Agent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.agents[a.Tenant+"/"+a.ID] = a
}

// A world is a token endpoint, a verifier and their store.
type world struct {
	*clock
	people *people
	keys   *oauth.Keys
	dir    string
	config oauth.Config
	server *oauth.Server
	cache  *oauth.AgentCache
	door   *oauth.Audience // for resource
	secret string          // of agent "claude"
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{clock: newClock(), dir: t.TempDir()}
	secret, hash := oauth.NewSecret()
	w.secret = secret
	w.people = &people{agents: make(map[string]sallyport.Agent), admins: make(map[string]sallyport.Admin)}
	for _, tenant := range []string{"default", "acme"} {
		w.people.put(sallyport.Agent{Tenant: tenant, ID: "claude", Roles: []string{"ops", "agent"}, SecretHash: hash, State: "active"})
	}
	var err error
	if w.keys, err = oauth.CreateKeys(w.dir); err != nil {
		t.Fatal(err)
	}
	w.config = oauth.Config{Issuer: issuer, Resources: []string{resource, profile}, Keys: w.keys, Agents: w.people, Now: w.now}
	if w.server, err = oauth.NewServer(w.config); err != nil {
		t.Fatal(err)
	}
	w.cache = oauth.NewAgentCache(w.people, time.Minute, w.now)
	vc := w.config
	vc.Agents = w.cache
	v, err := oauth.NewVerifier(vc)
	if err != nil {
		t.Fatal(err)
	}
	if w.door, err = v.For(resource); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) agent(t testing.TB) sallyport.Agent {
	t.Helper()
	a, err := w.people.Agent(context.Background(), "default", "claude")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (w *world) issue(t testing.TB) string {
	t.Helper()
	tok, err := w.server.Issue(context.Background(), w.agent(t), "", "")
	if err != nil {
		t.Fatal(err)
	}
	return tok.Value
}

// ask posts a form to the token endpoint, as client and secret if not empty.
func (w *world) ask(client, secret string, form url.Values, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/oauth/token", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if client != "" {
		r.SetBasicAuth(url.QueryEscape(client), url.QueryEscape(secret))
	}
	if change != nil {
		change(r)
	}
	mux := http.NewServeMux()
	w.server.Routes(mux)
	rec := httptest.NewRecorder()
	mux.ServeHTTP(rec, r)
	return rec
}

func wantCode(t *testing.T, what string, err error, code sallyport.Code) {
	t.Helper()
	e, ok := errors.AsType[*sallyport.Error](err)
	if !ok || e.Code != code || e.Step != sallyport.Authenticate || e.Message == "" || e.Hint == "" {
		t.Errorf("%s: error %v, want code %s at authenticate with a message and a hint", what, err, code)
	}
}
