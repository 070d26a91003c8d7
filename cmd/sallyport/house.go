package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/approval"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/audit/diary"
	"sallyport.dev/sallyport/backend/openapi"
	"sallyport.dev/sallyport/backend/sandbox"
	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/backend/upstream/authz"
	"sallyport.dev/sallyport/backend/upstream/web"
	"sallyport.dev/sallyport/catalog"
	"sallyport.dev/sallyport/catalog/library"
	"sallyport.dev/sallyport/catalog/profile"
	"sallyport.dev/sallyport/cedar"
	"sallyport.dev/sallyport/cli"
	"sallyport.dev/sallyport/cmd/sallyport/deciding"
	"sallyport.dev/sallyport/cmd/sallyport/desk"
	"sallyport.dev/sallyport/cmd/sallyport/front"
	"sallyport.dev/sallyport/cmd/sallyport/holding"
	"sallyport.dev/sallyport/cmd/sallyport/host"
	"sallyport.dev/sallyport/cmd/sallyport/reach"
	"sallyport.dev/sallyport/cmd/sallyport/settings"
	"sallyport.dev/sallyport/config"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/gateway/held"
	"sallyport.dev/sallyport/mcpserver"
	"sallyport.dev/sallyport/mcpserver/stream"
	"sallyport.dev/sallyport/oauth"
	"sallyport.dev/sallyport/pause"
	"sallyport.dev/sallyport/redact"
	"sallyport.dev/sallyport/risk"
	"sallyport.dev/sallyport/saga"
	"sallyport.dev/sallyport/saga/plan"
	"sallyport.dev/sallyport/secret"
	"sallyport.dev/sallyport/store"
	"sallyport.dev/sallyport/store/configured"
	"sallyport.dev/sallyport/store/relational"
	"sallyport.dev/sallyport/telemetry"
)

// A house is a gateway with everything in it: this file is all the wiring.
type house struct {
	config   *config.Config
	base     string
	gateway  *gateway.Gateway
	store    *relational.Store
	steps    *gateway.Gateway // that the steps of sagas go through
	scripts  *gateway.Gateway // that the calls of scripts go through
	sagas    *saga.Engine
	book     *plan.Book
	policies *cedar.Engine
	catalog  *catalog.Catalog
	library  *library.Library
	instance string                     // names this process among gateways
	changes  atomic.Pointer[stream.Hub] // nil until the door is open
	risk     *risk.Engine
	redact   *redact.Sanitiser
	stored   *secret.Values
	box      *secret.Rows
	upstream *upstream.Backend
	apis     *openapi.Backend
	sandbox  *host.Host
	servers  *desk.Servers
	agents   desk.Agents
	oauth    *oauth.Server
	door     *mcpserver.Server
	admin    http.Handler
	deciding *deciding.Desk
	held     *held.Calls
	calls    telemetry.Calls

	warm     atomic.Bool
	stopping atomic.Bool
	stale    atomic.Bool // the last reload was refused

	reloading sync.Mutex         // guards manifests and shapes
	manifests []catalog.Manifest // that the catalogue has
	shapes    map[string]profile.Profile
	closers   []func() error // in the order to close
}

const tenant = sallyport.DefaultTenant

// house builds a gateway from its configuration. Where it fails, what was
// opened is closed again.
func (a *program) house(ctx context.Context, cfg *config.Config, log *slog.Logger) (_ *house, err error) {
	h := &house{config: cfg, base: baseURL(cfg.Listen), instance: rand.Text()}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
		}
	}()
	db, journal, err := h.state(ctx, a.Data)
	if err != nil {
		return nil, err
	}
	vault, err := secret.Open(filepath.Join(a.Data, "keys"), db)
	if err != nil {
		return nil, err
	}
	if err := h.judges(vault, log); err != nil {
		return nil, err
	}
	book := diary.New(diary.Options{Tenant: tenant, Append: journal.Append, Clean: h.redact.Text})
	h.closers = append([]func() error{book.Close}, h.closers...)
	news := func(n sandbox.News) { book.Note(n.Server, n.Connections, n.LimitsHit) }
	if h.sandbox, err = host.Open(vault, cfg.Sandbox, host.Started{Socket: os.Getenv(envSandbox), PID: os.Getenv(envPID)}, news, log); err != nil {
		return nil, err
	}
	h.closers = append(h.closers, h.sandbox.Close)
	if err := h.tools(ctx, db, vault, log); err != nil {
		return nil, err
	}
	identities, logins, err := h.identities(ctx, db, filepath.Join(a.Data, "keys"))
	if err != nil {
		return nil, err
	}
	ask := cfg.Approvals
	db.SetTicketRules(store.TicketRules{Cooldown: ask.Cooldown, PerAgent: ask.PerAgent, PerTenant: ask.PerTenant})
	tickets, ways, err := deciding.New(tenant, ask, deciding.PageURL(cfg, h.base), db, vault, h.redact, log)
	if err != nil {
		return nil, err
	}
	h.deciding = ways
	if h.held, err = holding.New(cfg, db, vault.Derive("calls that wait for answers")); err != nil {
		return nil, err
	}
	h.closers = append([]func() error{h.held.Close}, h.closers...)
	if err := h.gateways(ctx, db, journal, identities, tickets, log); err != nil {
		return nil, err
	}
	if a.alter != nil {
		a.alter(h.gateway)
		a.alter(h.steps)
		a.alter(h.scripts)
	}
	if err := h.doors(a, db, vault, tickets, logins, log); err != nil {
		return nil, err
	}
	h.store = db
	h.tend(ctx, db, tickets, log)
	h.drive(ctx)
	return h, nil
}

// state opens the database, the record and what a crash left behind.
func (h *house) state(ctx context.Context, data string) (*relational.Store, *audit.Log, error) {
	key, err := audit.LoadKey(filepath.Join(data, "keys"))
	if err != nil {
		return nil, nil, err
	}
	seal, err := audit.NewSealer(key, cli.HeadsPath(data, h.config.Audit.Heads))
	if err != nil {
		return nil, nil, err
	}
	box, err := secret.OpenRows(filepath.Join(data, "keys"))
	h.box = box
	if err != nil {
		return nil, nil, errors.Join(err, seal.Close())
	}
	db, err := configured.Open(ctx, h.config.Store, data, seal, relational.WithTicketTimes(h.config.Approvals.DecideBy, h.config.Approvals.RunBy),
		relational.WithBox(box), relational.WithAddress(holding.Address(h.config)), relational.WithOpenCalls(h.config.Idempotency.Open), relational.WithKeptOutputs(int64(h.config.Idempotency.Outputs)))
	if err != nil {
		return nil, nil, errors.Join(err, seal.Close())
	}
	journal := audit.NewLog(db, audit.LogOptions{Strict: h.config.Audit.Strict})
	h.closers = append(h.closers, journal.Close, db.Close, seal.Close)
	_, err = db.Recover(ctx, db.Writer())
	return db, journal, err
}

// judges opens the engines that judge calls and clean their results.
func (h *house) judges(vault *secret.Vault, log *slog.Logger) (err error) {
	if h.policies, err = cedar.Load(h.config.Policies); err != nil {
		return err
	}
	if h.risk, err = risk.New(risk.Options{CacheDir: cli.CacheDir(), Internal: h.config.Messages.Internal}); err != nil {
		return err
	}
	h.stored = vault.Values(tenant, func(err error) { log.Error("reading the stored secrets", "err", err) })
	h.redact = redact.New(redact.Options{
		MaxBytes: int(h.config.Redact.MaxBytes), PII: settings.PII(h.config.Redact.PII), Images: h.config.Redact.Images, Fingerprint: vault.Fingerprint,
		Known: func() (known []redact.Known) {
			for _, v := range h.stored.All() {
				known = append(known, redact.Known(v))
			}
			for _, v := range h.servers.Tokens() {
				known = append(known, redact.Known(v))
			}
			return known
		},
		Schema: func(t sallyport.Tool, v json.RawMessage) error { return h.catalog.CheckOutput(t, v) },
	})
	return nil
}

// tools opens the catalogue and the upstreams that fill it.
func (h *house) tools(ctx context.Context, db *relational.Store, vault *secret.Vault, log *slog.Logger) error {
	manifests, err := catalog.LoadManifests(h.config.Tools)
	if err != nil {
		return err
	}
	if manifests, err = h.sandbox.Fix(manifests); err != nil {
		return err
	}
	images, err := h.sandbox.Images(h.config.Sandbox.Images...)
	if err != nil {
		return err
	}
	h.manifests, h.shapes = manifests, h.config.Shapes()
	h.catalog, err = catalog.New(catalog.Options{
		Builtins: builtins(images), Manifests: manifests, Profiles: h.shapes, Clean: h.redact.JSON,
		Pins: desk.Pins{Tenant: tenant, Store: db}, Speaks: h.redact.Speaks, Changed: h.changed,
	})
	if err != nil {
		return err
	}
	h.library = h.shelves(desk.Pins{Tenant: tenant, Store: db})
	h.servers = &desk.Servers{Tenant: tenant, Store: db, Vault: vault, Catalog: h.catalog, Library: h.library, Configured: h.config.Servers, Install: h.sandbox.Install}
	toServers, err := reach.Servers(h.config)
	if err != nil {
		return err
	}
	h.upstream = upstream.New(nil, upstream.Options{
		Dial:      toServers,
		Launchers: h.sandbox.Launchers(), Environ: os.Environ(), Log: log, Instance: h.instance, OnListing: h.servers.Listed(log),
		OnUpdate: func(server, address string) {
			if hub := h.changes.Load(); hub != nil {
				hub.Updated(server, address)
			}
		},
	})
	dial, err := reach.APIs(h.config)
	if err != nil {
		return err
	}
	way, err := reach.Authorization(h.config)
	if err != nil {
		return err
	}
	h.servers.Authz = desk.Authorise(front.External(h.config, h.base), way, web.Transport(toServers), db, h.box, func(s string, id authz.Identity) { h.servers.LoggedIn(s, id) }, log)
	h.apis = openapi.New(openapi.Options{Dial: dial, Secrets: h.servers.Resolve, OnListing: h.servers.ListedAPI(log), Log: log, Version: released()})
	h.servers.Backend, h.servers.APIs = h.upstream, h.apis
	// Upstreams end before the sandbox host that runs them.
	h.closers = append([]func() error{h.upstream.Close, h.apis.Close}, h.closers...)
	return h.servers.Start(ctx, log)
}

// changed has those told for whom a list may be another one now.
func (h *house) changed() {
	if hub := h.changes.Load(); hub != nil {
		hub.Changed()
	}
}

// shelves opens the library of what servers hold.
func (h *house) shelves(pins catalog.Pins) *library.Library {
	return library.New(library.Options{
		Profiles: h.shapes, Pins: pins, Changed: h.changed, Silent: func() []string { return h.upstream.Silent() },
		Clean: func(v json.RawMessage) json.RawMessage {
			return h.redact.Notice("", sallyport.Notice{Params: v}).Params
		},
	})
}

// identities are the tokens' issuer and verifiers, one audience per profile.
func (h *house) identities(ctx context.Context, db *relational.Store, keyDir string) (oauth.Profiles, *oauth.Logins, error) {
	keys, err := oauth.LoadKeys(keyDir)
	if err != nil {
		return nil, nil, err
	}
	cache := oauth.NewAgentCache(db, 0, nil)
	names, resources := front.Resources(h.config, h.base)
	c := oauth.Config{Issuer: front.External(h.config, h.base), Resources: resources, Keys: keys, Agents: cache}
	if h.oauth, err = oauth.NewServer(c); err != nil {
		return nil, nil, err
	}
	h.agents = desk.Agents{Tenant: tenant, Store: db, Cache: cache, Issuer: h.oauth, Base: h.base}
	if err := h.agents.Declare(ctx, h.config.Agents); err != nil {
		return nil, nil, err
	}
	v, err := oauth.NewVerifier(c)
	if err != nil {
		return nil, nil, err
	}
	all := oauth.Profiles{}
	for name, of := range names {
		if all[name], err = v.For(of[0], of[1:]...); err != nil {
			return nil, nil, err
		}
	}
	return all, oauth.NewLogins(db, nil), nil
}

// doors opens the agents' and the operators' doors.
func (h *house) doors(a *program, db *relational.Store, vault *secret.Vault, tickets *approval.Engine, logins *oauth.Logins, log *slog.Logger) (err error) {
	hub := stream.NewHub(h.gateway, h.upstream.Unfollow)
	h.changes.Store(hub)
	h.door, err = mcpserver.New(mcpserver.Options{
		Gateway: h.gateway, Held: h.held, Later: h.gateway, TaskCode: vault.Fingerprint, TasksKept: h.config.Idempotency.Retention, Hub: hub, Reaches: func() []string { return append(h.upstream.Reaches(), h.instance) }, Down: h.servers.Down, BaseURL: h.base, Resource: front.Resource(h.config, h.base), AuthorizationServers: []string{front.External(h.config, h.base)}, Log: log, Version: released(), Hosts: h.hosts(),
		MaxBody: int64(h.config.Limits.Body), ApprovalWait: h.config.Approvals.Wait,
		Profile: func(name string) bool { _, ok := h.config.Profiles[name]; return ok },
	})
	if err != nil {
		return err
	}
	owner := ownerUID(a.Data)
	h.admin = (&adminapi.Server{
		Gateway: h.gateway, Tokens: h.agents, Decides: h.deciding.Decides,
		Agents:       h.agents,
		Admins:       desk.Admins{Tenant: tenant, Store: db},
		Logins:       desk.Logins{Tenant: tenant, Logins: logins},
		Tickets:      desk.Tickets{Tenant: tenant, Engine: tickets},
		Passkeys:     h.deciding,
		Webhooks:     h.deciding,
		Reservations: desk.Reservations{Tenant: tenant, Store: db},
		Sagas:        desk.Sagas{Tenant: tenant, Engine: h.sagas, Book: h.book, Store: db, Mask: h.redact.JSON},
		Tools:        desk.Tools{Tenant: tenant, Catalog: h.catalog, Library: h.library, Store: db},
		Servers:      h.servers,
		ServerLogins: h.servers,
		Secrets:      desk.Secrets{Tenant: tenant, Vault: vault, Values: h.stored, Changed: h.upstream.Renew},
		Audit:        desk.Audit{Tenant: tenant, Store: db},
		Sandbox:      h.sandbox,
		Status:       h.status, Policies: h.reload, Mask: h.redact.JSON, Tenant: tenant, Log: log,
		Local: func(uid int) bool { return uid == 0 || uid == os.Geteuid() || uid == owner },
	}).Handler()
	return nil
}

// tend starts what goes on beside the calls, until ctx ends.
func (h *house) tend(ctx context.Context, db *relational.Store, tickets *approval.Engine, log *slog.Logger) {
	complain := func(what string) func(error) { return func(err error) { log.Error(what, "err", err) } }
	go prune(ctx, db, h.config.Idempotency.Retention, log)
	go db.Live(ctx, complain("the sign of life in the database"))
	go db.Watch(ctx, tickets.Announce, complain("waiting for tickets that other gateways move"))
	go h.servers.Follow(ctx, log)
	go h.deciding.Run(ctx)
	go tickets.Run(ctx, complain("tickets"))
	go h.warmUp(ctx, log)
}

// prune forgets finished calls, hour by hour.
func prune(ctx context.Context, db *relational.Store, retention time.Duration, log *slog.Logger) {
	for {
		if _, err := db.Prune(ctx, time.Now().Add(-retention)); err != nil && ctx.Err() == nil {
			log.Error("forgetting finished calls", "err", err)
		}
		if !pause.For(ctx, time.Hour) {
			return
		}
	}
}

// warmUp readies what is slow the first time; until then /readyz says no.
func (h *house) warmUp(ctx context.Context, log *slog.Logger) {
	switch err := errors.Join(h.risk.Warm(ctx), h.redact.Warm()); {
	case err == nil:
		h.warm.Store(true)
	case ctx.Err() == nil:
		log.Error("warming up", "err", err)
	}
}

func (h *house) close() error {
	var errs []error
	for _, c := range h.closers {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}
