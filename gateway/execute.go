package gateway

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/ending"
	"sallyport.dev/sallyport/gateway/keys"
	"sallyport.dev/sallyport/gateway/lease"
	"sallyport.dev/sallyport/gateway/outbound"
	"sallyport.dev/sallyport/gateway/standing"
	"sallyport.dev/sallyport/gateway/talk"
	"sallyport.dev/sallyport/tier/choose"
)

// An output is what a backend returned, not yet fit to be seen.
type output struct {
	sallyport.Output
	tool sallyport.Tool
	at   time.Time
}

// execute makes the call. A call that may change something, that waited for a
// human or that can be asked for again is written down first: ticket consumed,
// key taken and intent appended in one transaction. Its outcome is stored, in
// one transaction, by respond.
func (g *Gateway) execute(ctx context.Context, rec *record, j job) (output, error) {
	rec.at(sallyport.Execute)
	b, ok := g.Backends[j.tool.Origin.Backend]
	if !ok {
		return output{}, &sallyport.Error{
			Code: sallyport.Unavailable, Step: sallyport.Execute,
			Message: fmt.Sprintf("nothing on this gateway runs %q tools", j.tool.Origin.Backend),
			Hint:    "run `sallyport doctor`",
		}
	}
	rec.Isolation = cmp.Or(j.tier, isolationOf(b, j.tool))
	if carried := j.req.TraceState + j.req.Baggage; carried != "" && outbound.Clean(g.Inspector, j.req.TraceState+" "+j.req.Baggage) {
		rec.TraceState, rec.Baggage = j.req.TraceState, j.req.Baggage
	}
	timeout := g.timeout(j)
	l := lease.From(g.Now(), timeout+g.answerTime(j)+cmp.Or(g.Limits.Lease, time.Minute))
	whole, over := g.stoppable(ctx, rec, j)
	defer over()
	ctx, asker, stop := g.within(whole, rec, j, timeout) // from before the intent: a process that is paused after it finds its time gone
	defer stop()
	if j.risk.Mutating() || j.keyed || j.ticket.ID != "" || len(j.risk.Amounts) > 0 {
		if err := g.begin(ctx, rec, j, l); err != nil {
			return output{}, at(sallyport.Execute, err)
		}
	}
	if err := l.Holds(ctx, g.Now()); err != nil {
		return output{}, rec.failed(ctx, j.risk.Mutating(), err)
	}
	calm := g.lasts(rec, j, func() error { return g.begin(ctx, rec, j, l) })
	defer calm()
	rec.room = g.Room.Part(rec.Tenant + "/" + j.tool.Origin.Server)
	out, err := b.Run(ctx, g.jobFor(ctx, rec, j, timeout, asker))
	calm()
	rec.Asked = asker.Asked()
	if err != nil {
		rec.CancelledBy = ending.By(whole)
		return output{}, g.taintByError(ctx, rec, j.tool, rec.failed(ctx, j.risk.Mutating(), err), err)
	}
	rec.done(out)
	return output{Output: out, tool: j.tool, at: g.Now()}, nil
}

// stoppable ends when the caller takes the call's ticket back, or was stopped itself.
func (g *Gateway) stoppable(ctx context.Context, rec *record, j job) (whole context.Context, over func()) {
	whole, cancel, watched := standing.Watch(ctx, g.Authenticator, j.req)
	if g.Held == nil || j.ticket.ID == "" {
		return whole, watched
	}
	ended := g.Held.Underway(rec.CallID, cancel)
	return whole, func() { ended(); watched() }
}

func isolationOf(b sallyport.Backend, t sallyport.Tool) string {
	if i, ok := b.(sallyport.Isolator); ok {
		return i.IsolationOf(t)
	}
	return b.Info().Isolation
}

// begin is the transaction before an execution. What it owes afterwards is noted
// in the record, for respond.
func (g *Gateway) begin(ctx context.Context, rec *record, j job, l lease.Lease) error {
	fence, err := g.Ledger.Begin(ctx, Begin{
		Key: j.key, Fingerprint: j.fingerprint, CallID: rec.CallID,
		Ticket: j.ticket.ID, TicketHash: j.hash, Plan: j.covered, Demands: j.demands, Risk: j.risk,
		Lease: l.Lasts, Repeats: j.repeats,
		Intent:    rec.entry(sallyport.EntryIntent, rec.snapshot()),
		Unchanged: func() error { return g.unchanged(j.permit) },
		Amounts:   j.risk.Amounts, Windows: j.windows, Quotas: g.quotasOf(j), Twin: j.twin,
		Saga: j.req.Saga, Joins: j.joins(rec.CallID),
	})
	if err == nil {
		rec.began(j, fence)
	}
	return err
}

// joins is the call as a step of an ad-hoc saga, nil if it is none.
func (j job) joins(callID string) *sallyport.SagaStep {
	if j.plan.Joins == nil || !j.risk.Mutating() {
		return nil
	}
	step := *j.plan.Joins
	step.ID, step.Key, step.State = callID, j.key.Key, sallyport.StepRunning
	return &step
}

func (g *Gateway) jobFor(ctx context.Context, rec *record, j job, timeout time.Duration, asker *talk.Asker) sallyport.Job {
	out := sallyport.Job{
		CallID: rec.CallID, Kind: j.req.Operation.Kind, Who: j.who, Tool: j.tool, Args: j.canonical, Key: keys.Forwarded(j.key), Reserved: j.key, Saga: j.req.Saga, Since: rec.Started, Ticket: j.ticket.ID, Profile: j.req.Profile,
		Tier: j.tier, TierReason: rec.TierReason, Limits: choose.Limits(j.tool, g.Sandbox, j.tier), Egress: j.egress, Timeout: timeout, Trace: rec.Trace,
		Room: rec.room.Take, Watched: j.req.Watched, Level: j.req.Level, Transfer: j.req.Transfer,
		Notify: talk.Notifier(g.Sanitiser, rec.reader(), j.req.Notify, func(found []string) error { return g.taint(ctx, rec, j.tool, found) }),
	}
	out.TraceState, out.Baggage = rec.TraceState, rec.Baggage
	if asker != nil {
		out.Ask, out.Can = asker.Ask, j.req.Can
	}
	return out
}

// transferTime is how long a file may take on its way.
const transferTime = 10 * time.Minute

// timeout of the backend. A sandbox enforces the tool's own limit and reports
// it by name; the gateway's clock is behind it, for a sandbox host that hangs.
func (g *Gateway) timeout(j job) time.Duration {
	if j.req.Transfer != nil {
		return transferTime
	}
	if j.tool.Code != nil {
		return choose.Limits(j.tool, g.Sandbox, j.tier).Timeout + 30*time.Second
	}
	return cmp.Or(j.tool.Manifest.Timeout, g.Limits.Timeout, time.Minute)
}
