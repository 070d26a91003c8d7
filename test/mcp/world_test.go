package mcp

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/search"
	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/catalog"
	"sallyport.dev/sallyport/catalog/library"
	"sallyport.dev/sallyport/catalog/profile"
	"sallyport.dev/sallyport/cedar"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/gateway/held"
	"sallyport.dev/sallyport/mcpserver"
	"sallyport.dev/sallyport/mcpserver/stream"
	"sallyport.dev/sallyport/redact"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/test/bearer"
)

const patience = await.Patience

// A world is a gateway in this process. The bearer token is the agent's name.
type world struct {
	t       testing.TB
	catalog *catalog.Catalog
	library *library.Library
	behind  *upstream.Backend
	gateway *gateway.Gateway
	held    *held.Calls
	door    *mcpserver.Server
	hub     *stream.Hub
	rules   *cedar.Engine
	dir     string // of the policies
	url     string

	mu      sync.Mutex
	entries []sallyport.Record
	lists   int // that servers have told
	revoked map[string]bool
}

type setup struct {
	policies string // besides the starter's, or in its place
	bare     string // server of the profile "bare"
	profiles map[string]profile.Profile
	tools    []sallyport.Tool // of the gateway itself
	servers  []upstream.Config
	door     func(*mcpserver.Options)
	held     held.Options
	limits   gateway.CallLimits
	behind   func(*upstream.Options)
}

func newWorld(t testing.TB, s setup) *world {
	t.Helper()
	w := &world{t: t}
	profiles := maps.Clone(s.profiles)
	if profiles == nil {
		profiles = map[string]profile.Profile{}
	}
	if s.bare != "" {
		profiles["bare"] = profile.Profile{Names: []string{s.bare + "__*"}, Bare: s.bare}
	}
	var err error
	kept, clean := &pins{}, redact.New(redact.Options{})
	if w.catalog, err = catalog.New(catalog.Options{Profiles: profiles, Builtins: s.tools, Pins: kept, Clean: clean.JSON}); err != nil {
		t.Fatal(err)
	}
	w.library = library.New(library.Options{
		Profiles: profiles, Pins: kept, Silent: func() []string { return w.behind.Silent() },
		Clean: func(v json.RawMessage) json.RawMessage { return clean.Notice("", sallyport.Notice{Params: v}).Params },
	})
	id := rand.Text()
	o := upstream.Options{
		Instance:  id,
		OnListing: w.listed, OnUpdate: func(server, address string) { w.hub.Updated(server, address) }, Connect: patience, Budget: patience,
	}
	if s.behind != nil {
		s.behind(&o)
	}
	w.behind = upstream.New(nil, o)
	t.Cleanup(func() { _ = w.behind.Close() })
	w.policies(s.policies)
	if s.held.Now = time.Now; s.held.Key == nil {
		s.held.Key, s.held.Replica = []byte("0123456789abcdef0123456789abcdef"), id
	}
	if w.held, err = held.New(s.held); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.held.Close() })
	w.gateway = &gateway.Gateway{
		Held: w.held, Limits: s.limits,
		Authenticator: tokens{w}, Limiter: open{}, Catalog: w.catalog, Library: w.library, Assessor: calm{}, Authorizer: w.rules, Ledger: blank{},
		Sanitiser: clean, Inspector: clean, Journal: w, Backends: map[string]sallyport.Backend{"upstream": w.behind, search.Key: search.New(func(who sallyport.Principal, profile string, shelf sallyport.Shelf) (sallyport.Sight, error) {
			return w.gateway.See(who, profile, shelf)
		})}, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
	w.serve(s, id)
	for _, c := range s.servers {
		if err := w.behind.Add(c); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *world) policies(text string) {
	w.dir = filepath.Join(w.t.TempDir(), "policies")
	if text == "" {
		if _, err := cedar.WriteStarter(w.dir); err != nil {
			w.t.Fatal(err)
		}
	} else {
		writeFile(w.t, w.dir, "own.cedar", text)
	}
	var err error
	if w.rules, err = cedar.Load(w.dir); err != nil {
		w.t.Fatal(err)
	}
}

// decide changes the policies while the gateway runs.
func (w *world) decide(text string) {
	w.t.Helper()
	writeFile(w.t, w.dir, "own.cedar", text)
	if err := w.rules.Reload(); err != nil {
		w.t.Fatal(err)
	}
	w.hub.Changed()
}

func (w *world) serve(s setup, id string) {
	h := httptest.NewUnstartedServer(nil)
	w.url = "http://" + h.Listener.Addr().String()
	w.hub = stream.NewHub(w.gateway, w.behind.Unfollow)
	o := mcpserver.Options{Gateway: w.gateway, Held: w.held, Hub: w.hub, Reaches: func() []string { return append(w.behind.Reaches(), id) }, Down: w.behind.Down, BaseURL: w.url, Profile: func(name string) bool { _, ok := s.profiles[name]; return ok || name == "bare" && s.bare != "" }}
	if s.door != nil {
		s.door(&o)
	}
	var err error
	if w.door, err = mcpserver.New(o); err != nil {
		w.t.Fatal(err)
	}
	h.Config.Handler = w.door
	h.Start()
	w.t.Cleanup(func() { w.door.Close(); h.CloseClientConnections(); h.Close() })
}

func (w *world) listed(l upstream.Listing) {
	err := w.catalog.SetListing(context.Background(), catalog.Listing{Server: l.Server, Endpoint: l.Endpoint, Tools: l.Tools})
	if err != nil {
		w.t.Error(err)
	}
	w.library.SetListing(context.Background(), library.Listing{
		Server: l.Server, Endpoint: l.Endpoint, Holds: l.Holds, Resources: l.Resources, Templates: l.Templates, Prompts: l.Prompts,
	})
	w.mu.Lock()
	w.lists++
	w.mu.Unlock()
	w.hub.Changed()
}

// whole waits until every server has told what it has.
func (w *world) whole() *world {
	w.t.Helper()
	w.eventually("the servers tell what they have", func() bool { return len(w.behind.Silent()) == 0 })
	return w
}

func (w *world) revoke(token string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.revoked = map[string]bool{token: true}
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	await.That(w.t, what, ok)
}

// settled waits until a count has not changed for a while, by which what was on its
// way has come. It looks often, so that others have had their turns as well.
func (w *world) settled(count func() int) (n int) {
	w.t.Helper()
	n, same := count(), 0
	w.eventually("no more comes", func() bool {
		if now := count(); now != n {
			n, same = now, 0
		}
		same++
		return same > 60
	})
	return n
}

func (w *world) Append(e sallyport.Entry) error {
	var r sallyport.Record
	if err := json.Unmarshal(e.Payload, &r); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.entries = append(w.entries, r)
	return nil
}
func (w *world) Healthy() error { return nil }

// client connects a client of the official SDK.
func (w *world) client(agent, profile, version string, o *sdk.ClientOptions) *sdk.ClientSession {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	w.t.Cleanup(cancel)
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, o)
	if o != nil && o.Capabilities != nil && o.Capabilities.RootsV2 != nil { //nolint:staticcheck // deprecated, and in use
		client.AddRoots(&sdk.Root{URI: "file:///home/" + agent, Name: "home"}) //nolint:staticcheck // deprecated, and in use
	}
	s, err := client.Connect(ctx, &sdk.StreamableClientTransport{
		Endpoint: w.url + "/mcp" + profile, HTTPClient: bearer.Client(agent),
	}, &sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = s.Close() })
	return s
}

// tokens are the agents' names, with a number behind them: "ann", "ann2".
type tokens struct{ w *world }

func (k tokens) Authenticate(_ context.Context, _, bearer string) (sallyport.Principal, error) {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	if !strings.HasPrefix(bearer, "a") || k.w.revoked[bearer] {
		return sallyport.Principal{}, &sallyport.Error{Code: sallyport.Unauthenticated, Message: "unknown token"}
	}
	return sallyport.Principal{Tenant: "default", ID: strings.TrimRight(bearer, "0123456789"), Roles: []string{"agent"}}, nil
}

// open admits everybody but avid, who asked for too much.
type open struct{}

func (open) Admit(who sallyport.Principal, _ int) (func(), error) {
	if who.ID == "avid" {
		return nil, &sallyport.Error{Code: sallyport.RateLimited, Message: "too much"}
	}
	return func() {}, nil
}

// calm takes every call for a reading, so that none needs a ledger.
type calm struct{}

func (calm) Assess(context.Context, sallyport.Tool, json.RawMessage) sallyport.Risk {
	return sallyport.Risk{Level: sallyport.Low}
}

// blank remembers nothing.
type blank struct{ gateway.Ledger }

func (blank) Find(context.Context, sallyport.ReservationKey) (*sallyport.Reservation, error) {
	return nil, nil //nolint:nilnil // as the interface says
}
func (blank) Begin(context.Context, gateway.Begin) (int64, error) { return 1, nil }
func (blank) Finish(context.Context, gateway.Finish) error        { return nil }

type pins struct {
	mu sync.Mutex
	m  map[[2]string]catalog.Pin
}

func (p *pins) GetPin(_ context.Context, server, tool string) (catalog.Pin, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.m[[2]string{server, tool}], nil
}

func (p *pins) PutPins(_ context.Context, server string, all map[string]catalog.Pin) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.m == nil {
		p.m = map[[2]string]catalog.Pin{}
	}
	for tool, d := range all {
		p.m[[2]string{server, tool}] = d
	}
	return nil
}
