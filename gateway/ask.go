package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/outbound"
	"sallyport.dev/sallyport/gateway/refusal"
	"sallyport.dev/sallyport/gateway/talk"
)

// answerTime is how long a call may wait for its client's answers, beside its own time.
func (g *Gateway) answerTime(j job) time.Duration {
	if j.req.Ask == nil {
		return 0
	}
	return cmp.Or(g.Limits.Answer, 10*time.Minute)
}

// within bounds a call's time. One whose client can be asked gets who asks it; its
// time stands still meanwhile, and it gives its slot back: such calls are counted
// by who holds them.
func (g *Gateway) within(ctx context.Context, rec *record, j job, timeout time.Duration) (context.Context, *talk.Asker, func()) {
	if j.req.Ask == nil {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		return ctx, nil, cancel
	}
	clock := talk.NewClock(ctx, timeout, g.Now)
	return clock, talk.NewAsker(talk.Options{
		Sanitiser: g.Sanitiser, Server: j.tool.Origin.Server, Reader: rec.reader(), Can: j.req.Can, Clock: clock, Wait: g.answerTime(j),
		Taint:   func(found []string) error { return g.taint(ctx, rec, j.tool, found) },
		Holds:   func(answer json.RawMessage) bool { return len(outbound.Leaking(g.Inspector, j.tool, answer)) > 0 },
		Grave:   func(answer json.RawMessage) bool { return g.grave(ctx, j.tool, answer) },
		Inquiry: sallyport.Inquiry{CallID: rec.CallID, Owner: rec.reader(), Binding: j.bound(), Approved: j.ticket.ID != "" || j.covered != ""},
		Put: func(ctx context.Context, q sallyport.Inquiry) ([]sallyport.Answer, error) {
			rec.leave()
			return j.req.Ask(ctx, q)
		},
	}), clock.Stop
}

// grave judges an answer as arguments of a tool of which nothing is known: what needs
// a human in an argument does not pass as an answer, which no human is shown.
func (g *Gateway) grave(ctx context.Context, tool sallyport.Tool, answer json.RawMessage) bool {
	args, err := sallyport.Canonical(answer)
	if err != nil {
		return true
	}
	risk := g.Assessor.Assess(ctx, sallyport.Tool{Name: "answer", Origin: tool.Origin}, args)
	return risk.Irreversible || risk.Level >= sallyport.Critical
}

// bound stands for who makes which call: an answer to it is from nobody else, and
// for no other.
func (p permit) bound() string {
	parts, _ := json.Marshal([]string{ // texts always marshal
		p.who.Tenant, p.who.ID, p.who.OnBehalfOf, p.req.Profile, string(p.req.Operation.Kind), p.tool.Name, p.tool.Digest, digest(p.canonical),
	})
	return digest(parts)
}

// continues reports whether the client comes back with answers to its call.
func (p permit) continues() bool { return p.req.State != "" }

// takeOn goes on with the call that asked. Today's policies let its client call; it
// is neither reserved nor approved a second time.
func (g *Gateway) takeOn(ctx context.Context, rec *record, p permit) (sallyport.Result, error) {
	if g.Held == nil {
		return sallyport.Result{}, &sallyport.Error{Code: sallyport.Invalid, Step: sallyport.Resolve, Message: "unknown requestState", Hint: refusal.NewCall}
	}
	res, err := g.Held.Resume(ctx, sallyport.Return{
		Owner: rec.reader(), Binding: p.bound(), State: p.req.State, Answers: p.req.Answers, Notify: p.req.Notify, Tasks: p.req.Tasks, Mutating: p.risk.Mutating(), NeedsHuman: p.needsHuman(),
	})
	if e, ours := errors.AsType[*sallyport.Error](err); ours {
		res.CallID = e.CallID
	}
	if res.CallID != "" {
		rec.CallID, rec.Continues = res.CallID, true
	}
	return res, err
}
