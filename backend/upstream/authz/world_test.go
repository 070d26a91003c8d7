package authz_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/backend/upstream/authz"
	"sallyport.dev/sallyport/oauth/oauthtest"
	"sallyport.dev/sallyport/secret"
	"sallyport.dev/sallyport/secret/vault"
	"sallyport.dev/sallyport/store/holdings"
	"sallyport.dev/sallyport/store/relational"
	"sallyport.dev/sallyport/store/sqlite"
)

// A memory is a database, with the key that its rows are sealed under.
type memory struct {
	db  *relational.Store
	box *secret.Rows
}

func openIn(dir string) (*memory, func() error, error) {
	if err := secret.CreateKey(dir); err != nil {
		return nil, nil, err
	}
	box, err := secret.OpenRows(dir)
	if err != nil {
		return nil, nil, err
	}
	key, err := audit.CreateKey(dir)
	if err != nil {
		return nil, nil, err
	}
	seal, err := audit.NewSealer(key, filepath.Join(dir, "heads"))
	if err != nil {
		return nil, nil, err
	}
	s, err := sqlite.Open(filepath.Join(dir, "sallyport.db"), seal)
	if err != nil {
		return nil, nil, err
	}
	return &memory{s, box}, func() error { return errors.Join(s.Close(), seal.Close()) }, nil
}

func newMemory(t *testing.T) *memory {
	t.Helper()
	m, end, err := openIn(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = end() })
	return m
}

// A gate is one gateway, as far as upstreams and their tokens go.
type gate struct {
	*authz.Keeper
	b   *upstream.Backend
	way http.RoundTripper
}

func (m *memory) gate(t *testing.T, holder string, o authz.Options) *gate {
	g := &gate{way: http.DefaultTransport.(*http.Transport).Clone()}
	o.Vault, o.Holder = vault.Vault{Tenant: "default", Store: holdings.Store{DB: m.db.DB}, Box: m.box}, holder
	o.Changed = func(server string, id authz.Identity) {
		key := string(id)
		if id == authz.Gateway {
			key = ""
		}
		g.b.Again(server, key)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	g.Keeper = authz.New(o)
	g.b = upstream.New(nil, upstream.Options{Budget: time.Minute, BackOff: 10 * time.Millisecond})
	t.Cleanup(func() { g.b.Close() })
	return g
}

// knows has the gateway know a server.
func (g *gate) knows(t *testing.T, c authz.Config) {
	t.Helper()
	if c.Grant == "" {
		c.Grant = authz.ByCode
	}
	if c.Per == "" {
		c.Per = authz.PerGateway
	}
	c.HTTP, c.Redirect = g.way, "http://127.0.0.1:7450"+authz.RedirectPath(c.Server)
	if err := g.Add(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := g.b.Add(upstream.Config{Name: c.Server, URL: c.URL, HTTP: g.Transport(c.Server, authz.Gateway, g.way), Lazy: true,
		Apart: func(who sallyport.Principal) (string, http.RoundTripper, error) {
			id, err := g.For(c.Server, who)
			if err != nil || id == authz.Gateway {
				return "", nil, err
			}
			return string(id), g.Transport(c.Server, id, g.way), nil
		}}); err != nil {
		t.Fatal(err)
	}
}

func (g *gate) call(ctx context.Context, server string, who sallyport.Principal, args string) (string, error) {
	out, err := g.b.Run(ctx, sallyport.Job{CallID: "call", Kind: sallyport.CallTool, Who: who, Notify: func(sallyport.Notice) {},
		Tool: sallyport.Tool{Name: server + "__test-tool", Origin: sallyport.Origin{Backend: "upstream", Server: server, Name: "test-tool"}}, Args: json.RawMessage(args)})
	return string(out.Content), err
}

// login finishes a login as a human does who consents at once.
func (g *gate) login(t *testing.T, w authz.Wish, server string) authz.Login {
	t.Helper()
	l, err := g.Begin(t.Context(), server, w)
	if err != nil {
		t.Fatalf("begin: %v", err)
	}
	back := oauthtest.Consent(t, l.URL)
	if want := authz.RedirectPath(server); back.Path != want {
		t.Fatalf("sent back to %s, want %s", back.Path, want)
	}
	done, err := g.Finish(t.Context(), server, back.Query())
	if err != nil {
		t.Fatalf("finish: %v", err)
	}
	done.URL = l.URL
	return done
}

// A site is an MCP server that wants tokens.
type site = oauthtest.Site

func newSite(t *testing.T, as *oauthtest.Server, path string) *site {
	return oauthtest.NewSite(t, as, path)
}

func wantCode(t *testing.T, what string, err error, want sallyport.Code, says ...string) {
	t.Helper()
	e, _ := errors.AsType[*sallyport.Error](err)
	if e == nil || e.Code != want {
		t.Fatalf("%s: %v, want code %s", what, err, want)
	}
	for _, s := range says {
		if !strings.Contains(e.Message+" "+e.Hint, s) {
			t.Errorf("%s: %q (%q) does not say %q", what, e.Message, e.Hint, s)
		}
	}
}
