// Package gateway is the path of a call. Read Call first.
package gateway

import (
	"context"
	"log/slog"
	"time"

	"sallyport.dev/sallyport"
)

// A Gateway takes calls from every door to every backend. There is no other
// way from one to the other. All fields must be set, except those that say
// otherwise; none may change once calls are taken.
type Gateway struct {
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

	Now    func() time.Time
	Log    *slog.Logger
	Limits CallLimits

	Sandbox sallyport.Limits       // of a tool that names none; zero fields mean sallyport.DefaultLimits
	Ended   func(sallyport.Record) // told of each call that ended, if set; must not block
	Image   string                 // digest of the image that sandbox tools run on, part of what a ticket binds

	strangers strangers
}

// CallLimits are the clocks of a call. Zero fields mean the defaults.
type CallLimits struct {
	Timeout  time.Duration // of a backend, where the tool names none: 60 s
	DecideBy time.Duration // for a human to decide: 1 h, then rejected
	InFlight time.Duration // to wait for a running call with the same key: 10 s
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
	judged := g.assess(rec, args)
	permit, err := g.authorize(rec, judged)
	if err != nil {
		return res, err
	}
	claim, prior, err := g.reserve(ctx, rec, permit)
	if err != nil {
		return res, err
	}
	if prior != nil {
		return g.sanitise(rec, *prior)
	}
	job, err := g.approve(ctx, rec, claim)
	if err != nil {
		return res, err
	}
	out, err := g.execute(ctx, rec, job)
	if err != nil {
		return res, err
	}
	return g.sanitise(rec, out)
}
