package gateway

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"sallyport.dev/sallyport"
)

// FlagInstructions is the finding of a Sanitiser for a text that seems to speak
// to the model.
const FlagInstructions = "flag: instruction-like text"

// taint notes that the caller is about to read what strangers wrote. It is
// durable before the caller sees it; where it cannot be kept, the caller does
// not see it.
func (g *Gateway) taint(ctx context.Context, rec *record, tool sallyport.Tool, findings []string) error {
	if g.Taints == nil || g.Limits.Taint <= 0 {
		return nil
	}
	reason := ""
	switch {
	case tool.Manifest.Untrusted:
		reason = "the tool returns what strangers write"
	case slices.Contains(findings, FlagInstructions):
		reason = "the result holds text that seems to instruct the model"
	default:
		return nil
	}
	now := g.Now()
	t := sallyport.Taint{
		Tenant: rec.Tenant, Principal: rec.Principal, Tool: tool.Name, CallID: rec.CallID,
		Reason: reason, At: now, Until: now.Add(g.Limits.Taint),
	}
	if g.tainted.lasts(t, g.Limits.Taint) {
		return nil
	}
	if err := g.Taints.Taint(context.WithoutCancel(ctx), t); err != nil {
		return &sallyport.Error{
			Code: sallyport.Unavailable, Step: sallyport.Sanitise, Err: err,
			Message: "it could not be noted that the result is not to be trusted, so it is withheld",
			Hint:    "what the call did is done; call again for the result, with the same key if it had one",
		}
	}
	g.tainted.wrote(t)
	return nil
}

// taintOf returns the taint of who makes a call that is more than low, or nil.
func (g *Gateway) taintOf(ctx context.Context, j judged) (*sallyport.Taint, error) {
	if g.Taints == nil || g.Limits.Taint <= 0 || j.risk.Level == sallyport.Low {
		return nil, nil
	}
	t, err := g.Taints.Tainted(ctx, j.who.Tenant, j.who.ID, g.Now())
	if err != nil {
		return nil, &sallyport.Error{
			Code: sallyport.Unavailable, Step: sallyport.Authorize, Err: err,
			Message: "it is not known whether the caller has read what strangers wrote, so the call is refused",
			Hint:    "call again; the operator finds the cause in the log",
		}
	}
	return t, nil
}

// wary tells whether a tainted caller needs a human for a call of this risk: for
// everything that changes more than data which is there to be changed.
func wary(r sallyport.Risk) bool {
	if !r.Mutating() {
		return false
	}
	for _, e := range r.Effects {
		if e != sallyport.EffectRead && e != sallyport.EffectWrite {
			return true
		}
	}
	return len(r.Effects) == 0 // what it does is not known
}

// hold has a human decide on a call that a tainted caller makes, and names the
// source to them.
func (p *permit) hold(t *sallyport.Taint) {
	if t == nil || !wary(p.risk) {
		return
	}
	p.verdict.Demands = append(slices.Clone(p.verdict.Demands), sallyport.Demand{Policy: "built-in: the caller is tainted"})
	p.risk.Reasons = append([]string{fmt.Sprintf(
		"the caller read the result of %s in call %s, and may be acting on it: %s", t.Tool, t.CallID, t.Reason)}, p.risk.Reasons...)
}

// taints remembers, for this gateway, until when a principal is known to be
// tainted, so that not every result is a write.
type taints struct {
	mu    sync.Mutex // guards until
	until map[[2]string]time.Time
}

const maxTaints = 10_000

// lasts tells whether a taint that is on record lasts nearly as long as t.
func (c *taints) lasts(t sallyport.Taint, length time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.until[[2]string{t.Tenant, t.Principal}].After(t.Until.Add(-length / 10))
}

func (c *taints) wrote(t sallyport.Taint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until == nil || len(c.until) >= maxTaints {
		c.until = map[[2]string]time.Time{}
	}
	c.until[[2]string{t.Tenant, t.Principal}] = t.Until
}
