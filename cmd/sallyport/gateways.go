package main

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/approval"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/backend/openapi"
	sagatools "sallyport.dev/sallyport/backend/saga"
	"sallyport.dev/sallyport/backend/sandbox"
	"sallyport.dev/sallyport/backend/search"
	"sallyport.dev/sallyport/cmd/sallyport/deciding"
	"sallyport.dev/sallyport/cmd/sallyport/scripts"
	"sallyport.dev/sallyport/cmd/sallyport/settings"
	"sallyport.dev/sallyport/config"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/gateway/outbound"
	"sallyport.dev/sallyport/limit"
	"sallyport.dev/sallyport/limit/bulk"
	together "sallyport.dev/sallyport/limit/tenant"
	"sallyport.dev/sallyport/pause"
	"sallyport.dev/sallyport/saga"
	"sallyport.dev/sallyport/saga/plan"
	"sallyport.dev/sallyport/store/relational"
)

// gateways builds the gateways of a house, which share every engine: that of the doors,
// that of the steps of sagas, that of what scripts call. They differ in whose credentials
// they take: no door reaches the last two, and no token of the first is good there.
func (h *house) gateways(ctx context.Context, db *relational.Store, journal *audit.Log, identities gateway.Authenticator, tickets *approval.Engine, log *slog.Logger) error {
	book, err := h.plans()
	if err != nil {
		return err
	}
	cfg := h.config
	limiter := h.limiter(ctx, db, log)
	authorizer := plan.Authorizer{Authorizer: h.policies, Book: book}
	ask := cfg.Approvals.Irreversible
	windows, quotas := cfg.Limits.Vocabulary()
	var inspector outbound.Inspector
	if cfg.Redact.Outbound != config.OutboundOff {
		inspector = h.redact
	}
	backends := map[string]sallyport.Backend{"sandbox": h.sandbox, "upstream": h.upstream, openapi.Key: h.apis}
	room := bulk.New(largeAnswers)
	build := func(who gateway.Authenticator, policies gateway.Authorizer, plans gateway.Plans) *gateway.Gateway {
		return &gateway.Gateway{
			Authenticator: who,
			Limiter:       limiter,
			Catalog:       plan.Catalog{Catalog: h.catalog, Book: book},
			Assessor:      plan.Assessor{Next: h.risk, Book: book},
			Authorizer:    policies,
			Ledger:        db,
			Tickets:       deciding.Patient{Tickets: tickets, Serving: ctx},
			Sanitiser:     h.redact,
			Journal:       journal,
			Backends:      backends,
			Now:           time.Now,
			Log:           log,
			Past:          db,
			Taints:        db,
			Inspector:     inspector,
			Plans:         plans,
			Estimator:     h.risk,
			Library:       h.library,
			Held:          h.held,
			Room:          room,
			Limits:        settings.Clocks(cfg),
			Sandbox:       cfg.Sandbox.Limits.Limits(),
			Image:         h.sandbox.Image(),
			Windows:       windows,
			Quotas:        quotas,
			Irreversible:  sallyport.Demand{Groups: ask.Groups, Quorum: ask.Quorum},
			DenySecrets:   cfg.Redact.Outbound == config.OutboundDeny,
			Ended:         h.calls.Ended,
			Lack:          h.sandbox.Lack,
		}
	}
	seal := &saga.Seal{Agents: db, Sagas: db, Approvals: db, Now: time.Now}
	h.steps = build(seal, saga.Sealed{Authorizer: authorizer, Seal: seal}, seal)
	h.sagas = saga.New(saga.Options{
		Store: db, Ledger: db, Gateway: h.steps, Seal: seal, Book: book, Owner: db.Writer(), Log: log, Now: time.Now,
		Lease: cfg.Sagas.Lease, Concurrency: cfg.Sagas.Concurrency, OpenFor: cfg.Sagas.OpenFor, Park: cfg.Sagas.OnTimeout == "park",
	})
	backends[plan.Backend] = sagatools.New(h.sagas)
	h.gateway = build(identities, authorizer, h.sagas)
	h.scripts = scripts.Wire(h.sandbox.Backend, db, h.gateway, authorizer, h.sagas, build)
	backends[search.Key] = search.New(h.gateway.See)
	return nil
}

// limiter bounds each agent, and where the operator says so all of them together.
func (h *house) limiter(ctx context.Context, db *relational.Store, log *slog.Logger) gateway.Limiter {
	each, t := limit.New(settings.Limits(h.config)), h.config.Limits.Tenant
	bounds := together.Bounds{Rate: t.Rate, Burst: t.Burst, Concurrency: t.Concurrency}
	if !bounds.Any() {
		return each
	}
	all := together.New(each, db, bounds, log)
	h.alongside(context.WithoutCancel(ctx), all.Run)
	return all
}

// plans are those that the operator keeps.
func (h *house) plans() (*plan.Book, error) {
	h.book = &plan.Book{Catalog: h.catalog, Assessor: h.risk, Image: h.sandbox.Image()}
	return h.book, h.book.Load(h.config.Sagas.Plans)
}

// drive runs the sagas until ctx ends.
func (h *house) drive(ctx context.Context) {
	h.alongside(ctx, func(ctx context.Context) {
		for !h.warm.Load() {
			if !pause.For(ctx, 20*time.Millisecond) {
				return
			}
		}
		h.sagas.Run(ctx)
	})
}

// alongside has run go on until ctx ends, or the house closes, which waits for its end
// before anything is closed that it could need.
func (h *house) alongside(ctx context.Context, run func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(ctx)
	}()
	h.closers = append([]func() error{func() error { cancel(); <-done; return nil }}, h.closers...)
}

// builtins are the gateway's own tools.
func builtins(images sallyport.Images) []sallyport.Tool {
	return append(slices.Concat(sandbox.Tools(images), sagatools.Tools(), search.Tools()), sallyport.Tool{
		Name: gateway.ApprovalResult, Version: "1",
		Description: "Comes back for the result of a call that waits for a human's approval.",
		Definition: []byte(`{"name":"approval_result","title":"Result of an approved call",` +
			`"description":"Comes back for the result of a call that waited for a human's approval. Give the ticket from the approval_pending answer. If it was approved, the call runs now, once, exactly as it was asked for; asking again returns the same result.",` +
			`"inputSchema":{"type":"object","properties":{"ticket":{"type":"string","description":"id of the ticket, tkt_…","minLength":1,"maxLength":64}},"required":["ticket"],"additionalProperties":false}}`),
		InputSchema: []byte(`{"type":"object","properties":{"ticket":{"type":"string","description":"id of the ticket","minLength":1,"maxLength":64}},"required":["ticket"],"additionalProperties":false}`),
		Origin:      sallyport.Origin{Backend: "builtin", Name: gateway.ApprovalResult},
		Status:      sallyport.ToolActive,
	})
}
