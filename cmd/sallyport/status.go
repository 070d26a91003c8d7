package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/approval/passkey"
	"sallyport.dev/sallyport/catalog"
	"sallyport.dev/sallyport/cli"
	"sallyport.dev/sallyport/cmd/sallyport/deciding"
	"sallyport.dev/sallyport/cmd/sallyport/desk"
	"sallyport.dev/sallyport/cmd/sallyport/front"
	"sallyport.dev/sallyport/cmd/sallyport/holding"
	"sallyport.dev/sallyport/mcpserver"
	"sallyport.dev/sallyport/mcpserver/hosts"
	"sallyport.dev/sallyport/saga/plan"
	"sallyport.dev/sallyport/telemetry"
)

// public is what listens on TCP: the agents' door, the token endpoint, the
// admin API after a login, and the probes.
func (h *house) public() http.Handler {
	mux := http.NewServeMux()
	for _, p := range mcpserver.Patterns() {
		mux.Handle(p, h.door)
	}
	h.oauth.Routes(mux)
	mux.Handle("/api/v1/", h.admin)
	h.deciding.Routes(mux)
	h.servers.Authz.Routes(mux)
	mux.Handle("GET /console/{$}", http.RedirectHandler(passkey.PagePath, http.StatusFound)) // its one page so far
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	if h.config.Telemetry.Metrics {
		mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
			h.calls.ServeHTTP(w, r)
			h.deciding.Metrics(r.Context(), w)
			telemetry.WriteServers(w, h.servers.Health(r.Context()))
		})
	}
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		state := h.readiness(r.Context())
		if r.URL.Query().Get("servers") == "told" && state.Silent > 0 { // for who wants to wait for all of them
			state.Ready = false
		}
		w.Header().Set("Content-Type", "application/json")
		if !state.Ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(state)
	})
	return holding.Beside(h.held, h.hosts().Guard(front.Proxied(h.config).Front(mux)))
}

func (h *house) hosts() hosts.Policy {
	p := hosts.Policy{Hosts: h.config.Hosts, Origins: h.config.Origins}
	if host, origin := deciding.Origin(h.config); host != "" {
		p.Hosts, p.Origins = append(slices.Clone(p.Hosts), host), append(slices.Clone(p.Origins), origin)
	}
	p.Hosts = append(slices.Clone(p.Hosts), front.Outside(h.config)...)
	return p
}

// readiness is what /readyz shows.
type readiness struct {
	Ready    bool   `json:"ready"`
	Parsers  bool   `json:"parsers_warm"`
	Policy   string `json:"policy_version"`
	Sandbox  string `json:"sandbox"`          // "up", or why not
	Store    string `json:"store"`            // "up", or why not
	Reload   string `json:"reload,omitempty"` // that the last one was refused
	Silent   int    `json:"servers_silent"`   // how many servers have not told their tools yet
	Stopping bool   `json:"stopping,omitempty"`
}

// noSandbox is said of a gateway that was started without a sandbox host.
const noSandbox = "none: code calls are refused"

func (h *house) readiness(ctx context.Context) readiness {
	r := readiness{Parsers: h.warm.Load(), Policy: h.policies.Version(), Sandbox: "up", Store: "up", Stopping: h.stopping.Load(), Silent: len(h.servers.Silent())}
	// A gateway that was started without a sandbox host is ready for what it
	// can do; one whose host broke is not.
	up := true
	if h.sandbox.Backend == nil {
		r.Sandbox = noSandbox
	} else if err := h.sandbox.Check(ctx); err != nil {
		r.Sandbox, up = err.Error(), false
	}
	reachable := h.store.Reachable(ctx)
	if reachable != nil {
		r.Store, _ = cli.Said(reachable)
	}
	if h.stale.Load() {
		r.Reload = "refused: what was loaded before stays; the log says why"
	}
	r.Ready = r.Parsers && up && reachable == nil && !r.Stopping && r.Reload == ""
	return r
}

func (h *house) ready() bool { return h.readiness(context.Background()).Ready }

// reload reads the policies, the tools' manifests, the plans and how profiles show
// tools again: all of them, or nothing changes, and /readyz tells until a reload
// succeeds.
func (h *house) reload() error {
	h.reloading.Lock()
	defer h.reloading.Unlock()
	err := h.reloadAll()
	h.stale.Store(err != nil)
	if e, ok := errors.AsType[*sallyport.Error](err); ok {
		shown := *e
		shown.Message = everybodys(e.Message) + "; what was loaded before stays"
		return &shown
	}
	return err
}

func (h *house) reloadAll() error {
	shapes, err := h.config.Reshape()
	if err != nil {
		return err
	}
	manifests, err := catalog.LoadManifests(h.config.Tools)
	if err == nil {
		manifests, err = h.sandbox.Fix(manifests)
	}
	if err == nil {
		err = new(plan.Book).Load(h.config.Sagas.Plans) // can they be read
	}
	if err == nil {
		err = h.catalog.Set(shapes, manifests)
	}
	if err != nil {
		return err
	}
	if err := h.policies.Reload(); err != nil {
		return errors.Join(err, h.catalog.Set(h.shapes, h.manifests))
	}
	if err := h.book.Load(h.config.Sagas.Plans); err != nil { // they could be read a moment ago
		return err
	}
	h.library.SetProfiles(shapes)
	h.manifests, h.shapes = manifests, shapes
	h.changed()
	return nil
}

// status is what `doctor` shows of a running gateway.
func (h *house) status(ctx context.Context) any {
	servers, _ := h.servers.ServerStatus(ctx)
	hooks, _ := h.deciding.ListWebhooks(ctx)
	return gatewayStatus{
		Version: released(), MCPURL: h.base + "/mcp", Config: everybodys(h.config.File), UID: os.Geteuid(), Readiness: h.readiness(ctx),
		Servers: len(servers), Unisolated: desk.Unisolated(servers), Isolated: desk.Isolated(servers),
		Logins: desk.Missing(servers), Sessions: h.sandbox.Kept(ctx), Passkeys: h.deciding.Passkeys(), Webhooks: hooks,
	}
}

type gatewayStatus struct {
	Version    string    `json:"version"`
	MCPURL     string    `json:"mcp_url"`
	Config     string    `json:"config"`
	UID        int       `json:"uid"`
	Readiness  readiness `json:"readiness"`
	Servers    int       `json:"servers"`
	Unisolated []string  `json:"servers_without_isolation"`

	Sessions string            `json:"sessions,omitempty"` // how many, and what bounds them
	Isolated map[string]string `json:"isolation"`          // of each server that is a program

	Logins map[string]string `json:"logins,omitempty"` // of each server with oauth: what is missing, "" if nothing is

	Passkeys string                 `json:"passkeys"` // where they are used, or why not
	Webhooks []adminapi.WebhookInfo `json:"webhooks"`
}
