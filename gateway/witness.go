package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier/choose"
)

// witnessTime bounds one look.
const witnessTime = 20 * time.Second

// maxObserved bounds what is kept of a look for people.
const maxObserved = 300

// look takes every witness of the call's tool: what the target looks like now.
// One that cannot be taken refuses the call.
func (g *Gateway) look(ctx context.Context, rec *record, c claim) ([]sallyport.Observation, error) {
	var all []sallyport.Observation
	for _, w := range c.tool.Manifest.Witness {
		o, err := g.observe(ctx, rec, c, w)
		if err != nil {
			return nil, &sallyport.Error{
				Code: sallyport.Unavailable, Step: sallyport.Approve, Err: err,
				Message: g.Sanitiser.Text(fmt.Sprintf("the witness %q could not be taken, so the call cannot be approved: %v", w.Name, err)),
				Hint:    "the target must be readable for a ticket, and again before it is used; an operator finds the witness in the tool's manifest, and says in that of the tool which looks that it is read_only",
			}
		}
		all = append(all, o)
	}
	return all, nil
}

// observe takes one witness by a tool that changes nothing, and that the
// caller may call without asking anybody.
func (g *Gateway) observe(ctx context.Context, rec *record, c claim, w sallyport.Witness) (sallyport.Observation, error) {
	o := sallyport.Observation{Name: w.Name, Binds: w.Binds}
	args, err := sallyport.FillArgs(w.Args, c.canonical)
	if err != nil {
		return o, err
	}
	tool, args, egress, err := g.witnessTool(ctx, c, w.Tool, args)
	if err != nil {
		return o, err
	}
	content, err := g.glance(ctx, rec, c, tool, args, egress, witnessTime)
	if err != nil {
		return o, err
	}
	return g.observed(rec, tool, o, content, w.Select)
}

// glance calls a tool that witnessTool let through, and returns its result.
func (g *Gateway) glance(ctx context.Context, rec *record, c claim, tool sallyport.Tool, args json.RawMessage, egress []string, within time.Duration) (json.RawMessage, error) {
	b, ok := g.Backends[tool.Origin.Backend]
	if !ok {
		return nil, fmt.Errorf("nothing on this gateway runs %q tools", tool.Origin.Backend)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tier, err := g.tierOf(ctx, tool, args)
	if err != nil {
		return nil, err
	}
	out, err := b.Run(ctx, sallyport.Job{
		CallID: rec.CallID, Who: c.who, Tool: tool, Args: args, Tier: tier.Tier, Limits: choose.Limits(tool, g.Sandbox, tier.Tier), Egress: egress,
		Timeout: within, Trace: c.req.Trace, Notify: func(sallyport.Notice) {},
	})
	if err == nil && out.IsError {
		err = fmt.Errorf("%s failed", tool.Name)
	}
	return out.Content, err
}

// observed turns an answer into an observation, and puts it on record.
func (g *Gateway) observed(rec *record, tool sallyport.Tool, o sallyport.Observation, content json.RawMessage, pointer string) (sallyport.Observation, error) {
	canonical, err := sallyport.Canonical(content)
	if err != nil {
		return o, fmt.Errorf("%s did not answer with an object: %w", tool.Name, err)
	}
	part, ok := sallyport.At(canonical, pointer)
	if !ok {
		return o, fmt.Errorf("the answer of %s has nothing at %s", tool.Name, pointer)
	}
	o.Hash, o.Value = digest(part), clip(g.Sanitiser.Text(string(part)), maxObserved)
	return o, g.Journal.Append(rec.entry(sallyport.EntryTicket, map[string]any{
		"witness": o, "principal": rec.Principal, "target": tool.Name, "tool_digest": tool.Digest}))
}

// witnessTool resolves, validates, judges and authorises a look, as a call of
// the same principal would be.
func (g *Gateway) witnessTool(ctx context.Context, c claim, name string, args json.RawMessage) (tool sallyport.Tool, filled json.RawMessage, egress []string, err error) {
	tool, err = g.Catalog.Resolve(c.req.Profile, name)
	if err != nil || tool.Status != sallyport.ToolActive {
		return tool, nil, nil, fmt.Errorf("there is no active tool %q here", name)
	}
	if args, err = tool.Fill(args, true); err == nil {
		err = g.Catalog.Validate(tool, args)
	}
	if err != nil {
		return tool, nil, nil, fmt.Errorf("%s does not take these arguments: %w", name, err)
	}
	risk := g.Assessor.Assess(ctx, tool, args)
	if risk.Mutating() {
		return tool, nil, nil, fmt.Errorf("%s is not read-only here: its risk is %s", name, risk.Level)
	}
	tier, _ := g.tierOf(ctx, tool, args) // a lack is said when it runs
	v, err := g.Authorizer.Authorize(Question{
		Who: c.who, Profile: c.req.Profile, Action: ActionCall, Tool: tool, Args: args, Risk: risk,
		Tier: tier.Tier,
	})
	if err != nil || !v.Allow || len(v.Demands) > 0 {
		return tool, nil, nil, fmt.Errorf("policies do not let %s call %s by itself", c.who.ID, name)
	}
	if !v.NoNetwork {
		egress = tool.Manifest.Egress
	}
	return tool, args, egress, nil
}
