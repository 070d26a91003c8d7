package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/refusal"
	"sallyport.dev/sallyport/gateway/trust"
)

// taint notes that the caller is about to read what strangers wrote. It is
// durable before the caller sees it; where it cannot be kept, the caller does
// not see it.
func (g *Gateway) taint(ctx context.Context, rec *record, tool sallyport.Tool, findings []string) error {
	reason := trust.Doubt(tool, findings)
	if reason == "" || g.Taints == nil || g.Limits.Taint <= 0 {
		return nil
	}
	now := g.Now()
	t := sallyport.Taint{
		Tenant: rec.Tenant, Principal: rec.Principal, Tool: tool.Name, CallID: rec.CallID,
		Reason: reason, At: now, Until: now.Add(g.Limits.Taint),
	}
	if g.tainted.Lasts(t, g.Limits.Taint) {
		return nil
	}
	if err := g.Taints.Taint(context.WithoutCancel(ctx), t); err != nil {
		return refusal.Withheld(err)
	}
	g.tainted.Wrote(t)
	return nil
}

// taintByError is taint for the words of a tool's server in shown, the error that
// the caller gets for err. Where that cannot be noted, the caller does not get them.
func (g *Gateway) taintByError(ctx context.Context, rec *record, tool sallyport.Tool, shown, err error) error {
	if sallyport.CodeOf(err) != sallyport.Upstream {
		return shown
	}
	e, _ := errors.AsType[*sallyport.Error](shown)
	text, _ := json.Marshal(e.Message) // a text always marshals
	_, _, findings, lost := g.Sanitiser.Result("", tool, sallyport.Output{IsError: true, Content: fmt.Appendf(nil, `{"content":[{"type":"text","text":%s}],"isError":true}`, text)})
	if lost == nil {
		lost = g.taint(ctx, rec, tool, findings)
	}
	if lost == nil {
		return shown
	}
	return &sallyport.Error{Code: e.Code, Step: sallyport.Execute, Hint: e.Hint, Err: errors.Join(shown, lost),
		Message: "the tool's backend failed, and its words are withheld: it could not be noted that they are not to be trusted"}
}

// taintOf returns the taint of who makes a call that is more than low, or nil.
func (g *Gateway) taintOf(ctx context.Context, j judged) (*sallyport.Taint, error) {
	if g.Taints == nil || g.Limits.Taint <= 0 || j.risk.Level == sallyport.Low {
		return nil, nil
	}
	t, err := g.Taints.Tainted(ctx, j.who.Tenant, j.who.ID, g.Now())
	if err != nil {
		return nil, refusal.Suspect(err)
	}
	return t, nil
}

// hold has a human decide on a call that a tainted caller makes, and names the
// source to them.
func (p *permit) hold(t *sallyport.Taint) {
	if t == nil || !trust.Wary(p.risk) {
		return
	}
	p.held = true
	p.verdict.Demands = append(slices.Clone(p.verdict.Demands), sallyport.Demand{Policy: "built-in: the caller is tainted"})
	p.risk.Reasons = append([]string{fmt.Sprintf(
		"the caller read the result of %s in call %s, and may be acting on it: %s", t.Tool, t.CallID, t.Reason)}, p.risk.Reasons...)
}
