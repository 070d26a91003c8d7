// Package gateway is the path of a call. Read Call first.
package gateway

import (
	"context"
	"log/slog"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/outbound"
	"sallyport.dev/sallyport/gateway/repeat"
	"sallyport.dev/sallyport/limit/bulk"
)

// A Gateway takes calls from every door to every backend. There is no other
// way from one to the other. No field may change once calls are taken.
type Gateway struct {
	// Engines of the path, in its order. All must be set.
	Authenticator Authenticator
	Limiter       Limiter
	Catalog       Catalog
	Assessor      Assessor
	Authorizer    Authorizer
	Ledger        Ledger
	Tickets       Tickets
	Sanitiser     Sanitiser
	Journal       Journal
	Backends      map[string]sallyport.Backend // by Tool.Origin.Backend

	Now func() time.Time // must be set
	Log *slog.Logger     // must be set

	// Engines that look further than one call. Each may be nil.
	Past      Past               // without it there are no windows, and tools cannot dedupe
	Taints    Taints             // without it nobody is tainted
	Inspector outbound.Inspector // without it every secret may leave in arguments
	Plans     Plans              // without it there are no sagas
	Estimator Estimator          // without it no ticket tells how many rows a call would touch
	Library   Library            // without it there is nothing to read
	Held      Held               // without it no client can come back with answers
	Room      *bulk.Room         // of large answers; without it there is no bound

	// What the operator chose. Zero fields mean what they say.
	Limits       CallLimits
	Sandbox      sallyport.Limits   // of a tool that names none; zero fields mean sallyport.DefaultLimits
	Image        string             // digest of the image that sandbox tools run on, part of what a ticket binds
	Windows      []sallyport.Window // sums that need a human
	Quotas       []sallyport.Quota  // counts of calls
	Irreversible sallyport.Demand   // of calls that cannot be undone, beside what policies demand
	DenySecrets  bool               // a call with a secret is refused; else a human decides

	Ended func(sallyport.Record) // told of each call that ended, if set; must not block

	// Lack says why no sandbox of a tier can be had now, nil if one can. Unset: all
	// can. (backend/sandbox)
	Lack func(ctx context.Context, tier string) error

	strangers repeat.Strangers
	floods    repeat.Floods
	tainted   repeat.Taints
}

// CallLimits are the clocks of a call. Zero fields mean the defaults.
type CallLimits struct {
	Timeout  time.Duration // of a backend, where the tool names none: 60 s
	DecideBy time.Duration // for a human to decide: 1 h, then rejected
	InFlight time.Duration // to wait for a running call with the same key: 10 s
	Lease    time.Duration // beyond its timeout, after which a call without an outcome is unknown: 1 min
	Task     time.Duration // after which the answer to a client that takes tasks is one: 10 s
	Answer   time.Duration // for a client's answers to all that a call's server asks: 10 min
	Taint    time.Duration // that a principal is tainted after it read what strangers wrote; 0: never
}

// Call runs one operation. Each step gives the next what it needs, so the
// order below is the only one that compiles. It never waits for a human.
// A failure is an *sallyport.Error.
func (g *Gateway) Call(ctx context.Context, req sallyport.Request) (res sallyport.Result, err error) {
	rec, err := g.receive(req)
	if err != nil {
		return res, err // no record, no call
	}
	defer rec.respond(ctx, &res, &err)

	who, err := g.authenticate(ctx, rec, req.Profile, req.Credential)
	if err != nil {
		return res, err
	}
	guest, err := g.admit(rec, who, req.Size)
	if err != nil {
		return res, err
	}
	defer guest.leave()
	target, err := g.resolve(ctx, rec, guest, req)
	if err != nil {
		return res, err
	}
	args, err := g.validate(rec, target)
	if err != nil {
		return res, err
	}
	judged := g.assess(ctx, rec, args)
	permit, err := g.authorize(ctx, rec, judged)
	if err != nil {
		return res, err
	}
	if permit.continues() { // it was reserved and approved when it began
		return g.takeOn(ctx, rec, permit)
	}
	claim, prior, err := g.reserve(ctx, rec, permit)
	if err != nil {
		return res, err
	}
	if prior != nil {
		return g.sanitise(ctx, rec, *prior)
	}
	job, err := g.approve(ctx, rec, claim)
	if err != nil {
		return sallyport.Result{At: job.ticket.DecidedAt}, err
	}
	out, err := g.execute(ctx, rec, job)
	if err != nil {
		return res, err
	}
	return g.sanitise(ctx, rec, out)
}
