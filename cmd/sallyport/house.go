package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/approval"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/catalog"
	"sallyport.dev/sallyport/cedar"
	"sallyport.dev/sallyport/cli"
	"sallyport.dev/sallyport/config"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/limit"
	"sallyport.dev/sallyport/mcpserver"
	"sallyport.dev/sallyport/oauth"
	"sallyport.dev/sallyport/redact"
	"sallyport.dev/sallyport/risk"
	"sallyport.dev/sallyport/secret"
	"sallyport.dev/sallyport/store/sqlite"
	"sallyport.dev/sallyport/telemetry"
)

// A house is a gateway with everything in it: this file is all the wiring.
type house struct {
	config   *config.Config
	base     string
	gateway  *gateway.Gateway
	policies *cedar.Engine
	catalog  *catalog.Catalog
	risk     *risk.Engine
	redact   *redact.Sanitiser
	upstream *upstream.Backend
	sandbox  *sandboxHost
	servers  *serverDesk
	agents   agentDesk
	oauth    *oauth.Server
	door     *mcpserver.Server
	admin    http.Handler
	calls    telemetry.Calls

	warm     atomic.Bool
	stopping atomic.Bool
	stale    atomic.Bool // the last reload was refused

	reloading sync.Mutex         // guards manifests
	manifests []catalog.Manifest // that the catalogue has
	closers   []func() error     // in the order to close
}

const tenant = sallyport.DefaultTenant

// house builds a gateway from its configuration. Where it fails, what was
// opened is closed again.
func (a *program) house(ctx context.Context, cfg *config.Config, log *slog.Logger) (_ *house, err error) {
	h := &house{config: cfg, base: baseURL(cfg.Listen)}
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
	if h.policies, err = cedar.Load(cfg.Policies); err != nil {
		return nil, err
	}
	if h.risk, err = risk.New(risk.Options{CacheDir: cli.CacheDir()}); err != nil {
		return nil, err
	}
	h.redact = redact.New(redact.Options{MaxBytes: int(cfg.Redact.MaxBytes), PII: pii(cfg.Redact.PII), Schema: func(t sallyport.Tool, v json.RawMessage) error { return h.catalog.CheckOutput(t, v) }})
	if h.sandbox, err = openSandbox(vault, cfg.Sandbox, log); err != nil {
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
	tickets := approval.New(db, db, approval.Options{RunWithin: cfg.Approvals.RunBy})
	h.gateway = &gateway.Gateway{
		Authenticator: identities,
		Limiter:       limit.New(limitConfig(cfg)),
		Catalog:       h.catalog,
		Assessor:      h.risk,
		Authorizer:    h.policies,
		Ledger:        db,
		Tickets:       patient{tickets, ctx},
		Sanitiser:     h.redact,
		Journal:       journal,
		Backends:      map[string]sallyport.Backend{"sandbox": h.sandbox, "upstream": h.upstream},
		Now:           time.Now,
		Log:           log,
		Limits:        gateway.CallLimits{DecideBy: cfg.Approvals.DecideBy},
		Ended:         h.calls.Ended,
		Sandbox:       cfg.Sandbox.Limits.Limits(),
		Image:         h.sandbox.image(),
	}
	if a.alter != nil {
		a.alter(h.gateway)
	}
	if err := h.doors(a, db, vault, tickets, logins, log); err != nil {
		return nil, err
	}
	go prune(ctx, db, log)
	go tickets.Run(ctx, func(err error) { log.Error("tickets", "err", err) })
	go h.warmUp(ctx, log)
	return h, nil
}

// patient waits for humans only as long as the gateway serves: who waits when
// it stops is told that the call still needs one.
type patient struct {
	gateway.Tickets
	serving context.Context //nolint:containedctx // the gateway's life, not a call's
}

func (p patient) Wait(ctx context.Context, tenant, id string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.serving, cancel)()
	return p.Tickets.Wait(ctx, tenant, id)
}

// state opens the database, the record and what a crash left behind.
func (h *house) state(ctx context.Context, data string) (*sqlite.Store, *audit.Log, error) {
	key, err := audit.LoadKey(filepath.Join(data, "keys"))
	if err != nil {
		return nil, nil, err
	}
	seal, err := audit.NewSealer(key, cli.HeadsPath(data, h.config.Audit.Heads))
	if err != nil {
		return nil, nil, err
	}
	db, err := sqlite.Open(filepath.Join(data, "sallyport.db"), seal, sqlite.WithTicketTimes(h.config.Approvals.DecideBy, h.config.Approvals.RunBy))
	if err != nil {
		return nil, nil, errors.Join(err, seal.Close())
	}
	journal := audit.NewLog(db, audit.LogOptions{Strict: h.config.Audit.Strict})
	h.closers = append(h.closers, journal.Close, db.Close, seal.Close)
	_, err = db.Recover(ctx, db.Writer())
	return db, journal, err
}

// tools opens the catalogue and the upstreams that fill it.
func (h *house) tools(ctx context.Context, db *sqlite.Store, vault *secret.Vault, log *slog.Logger) error {
	manifests, err := catalog.LoadManifests(h.config.Tools)
	if err != nil {
		return err
	}
	h.manifests = manifests
	h.catalog, err = catalog.New(catalog.Options{
		Builtins: builtins(), Manifests: manifests, Profiles: h.config.ProfileTools(), Pins: pinBook{tenant, db},
	})
	if err != nil {
		return err
	}
	h.servers = &serverDesk{tenant: tenant, store: db, vault: vault, catalog: h.catalog, configured: h.config.Servers}
	h.upstream = upstream.New(nil, upstream.Options{
		Launchers: h.sandbox.launchers(), Environ: os.Environ(), Log: log, OnListing: h.servers.listed(log),
	})
	h.servers.backend = h.upstream
	// Upstreams end before the sandbox host that runs them.
	h.closers = append([]func() error{h.upstream.Close}, h.closers...)
	return h.servers.start(ctx, log)
}

// identities are the tokens' issuer and verifiers, one audience per profile.
func (h *house) identities(ctx context.Context, db *sqlite.Store, keyDir string) (oauth.Profiles, *oauth.Logins, error) {
	keys, err := oauth.LoadKeys(keyDir)
	if err != nil {
		return nil, nil, err
	}
	cache := oauth.NewAgentCache(db, 0, nil)
	c := oauth.Config{Issuer: h.base, Resources: []string{h.base + "/mcp"}, Keys: keys, Agents: cache}
	for name := range h.config.Profiles {
		c.Resources = append(c.Resources, h.base+"/mcp/"+name)
	}
	if h.oauth, err = oauth.NewServer(c); err != nil {
		return nil, nil, err
	}
	h.agents = agentDesk{tenant, db, cache, h.oauth}
	if err := h.agents.declare(ctx, h.config.Agents); err != nil {
		return nil, nil, err
	}
	v, err := oauth.NewVerifier(c)
	if err != nil {
		return nil, nil, err
	}
	all := oauth.Profiles{}
	for i, r := range c.Resources {
		name := ""
		if i > 0 {
			name = filepath.Base(r)
		}
		if all[name], err = v.For(r); err != nil {
			return nil, nil, err
		}
	}
	logins, err := oauth.NewLogins(db, nil)
	return all, logins, err
}

// doors opens the agents' and the operators' doors.
func (h *house) doors(a *program, db *sqlite.Store, vault *secret.Vault, tickets *approval.Engine, logins *oauth.Logins, log *slog.Logger) (err error) {
	h.door, err = mcpserver.New(mcpserver.Options{
		Gateway: h.gateway, BaseURL: h.base, Log: log, Version: version(), Hosts: h.hosts(),
		MaxBody: int64(h.config.Limits.Body), ApprovalWait: h.config.Approvals.Wait,
		Profile: func(name string) bool { _, ok := h.config.Profiles[name]; return ok },
	})
	if err != nil {
		return err
	}
	owner := ownerUID(a.Data)
	h.admin = (&adminapi.Server{
		Gateway: h.gateway, Tokens: h.agents, Logins: loginDesk{tenant, logins}, Agents: h.agents,
		Tickets: ticketDesk{tenant, tickets}, Audit: auditDesk{tenant, db}, Tools: toolDesk{tenant, h.catalog, db},
		Servers: h.servers, Reservations: reservationDesk{tenant, db}, Secrets: secretDesk{tenant, vault}, Sandbox: h.sandbox,
		Status: h.status, Policies: h.reload, Mask: h.redact.JSON, Tenant: tenant, Log: log,
		Local: func(uid int) bool { return uid == 0 || uid == os.Geteuid() || uid == owner },
	}).Handler()
	return nil
}

// retention is how long a finished call's key is remembered.
const retention = 7 * 24 * time.Hour

// prune forgets finished calls, day by day.
func prune(ctx context.Context, db *sqlite.Store, log *slog.Logger) {
	for {
		if _, err := db.Prune(ctx, time.Now().Add(-retention)); err != nil && ctx.Err() == nil {
			log.Error("forgetting finished calls", "err", err)
		}
		if !pause(ctx, 24*time.Hour) {
			return
		}
	}
}

// warmUp readies what is slow the first time; until then /readyz says no.
func (h *house) warmUp(ctx context.Context, log *slog.Logger) {
	if err := errors.Join(h.risk.Warm(ctx), h.redact.Warm()); err != nil {
		log.Error("warming up", "err", err)
		return
	}
	h.warm.Store(true)
}

func (h *house) close() error {
	var errs []error
	for _, c := range h.closers {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

func limitConfig(c *config.Config) limit.Config {
	l := c.Limits
	return limit.Config{
		Rate: l.Rate, Burst: l.Burst, Bytes: int64(l.Bytes), Body: int(l.Body), Concurrency: l.Concurrency, Total: l.Total,
	}
}

func pii(kinds []string) redact.PII {
	return redact.PII{Card: slices.Contains(kinds, "card"), SSN: slices.Contains(kinds, "ssn"), Email: slices.Contains(kinds, "email")}
}

func hexDigest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
