package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"sallyport.dev/sallyport"
)

// estimateTime bounds the question: a human waits for a decision, not for this.
const estimateTime = 5 * time.Second

// estimate has the database say how many rows a call that needs a human would
// touch, where the manifest names the tool to ask. It is for the human: nothing
// is bound to it, and no call fails because of it.
func (g *Gateway) estimate(ctx context.Context, rec *record, c claim) []sallyport.Part {
	e := c.tool.Manifest.Estimate
	if e == nil || g.Estimator == nil {
		return nil
	}
	p := sallyport.Part{Label: "estimated rows"}
	rows, err := g.rows(ctx, rec, c, *e)
	if err == nil {
		p.Text = fmt.Sprintf("about %d, says %s", rows, e.Tool)
	} else {
		p.Text = "not available: " + clip(g.Sanitiser.Text(err.Error()), maxObserved)
	}
	return []sallyport.Part{p}
}

// rows asks a tool of the same server, as the caller could ask it: the question
// is judged as any call is, and must change nothing.
func (g *Gateway) rows(ctx context.Context, rec *record, c claim, e sallyport.Estimate) (int64, error) {
	query, err := g.Estimator.Explain(ctx, c.tool, c.canonical)
	if err != nil {
		return 0, err
	}
	args, err := estimateArgs(e, c.canonical, query)
	if err != nil {
		return 0, err
	}
	tool, args, egress, err := g.witnessTool(ctx, c, e.Tool, args)
	if err != nil {
		return 0, err
	}
	if o := c.tool.Origin; o.Server == "" || tool.Origin.Backend != o.Backend || tool.Origin.Server != o.Server {
		return 0, fmt.Errorf("%s is not a tool of the server that the call goes to", e.Tool)
	}
	answer, err := g.glance(ctx, rec, c, tool, args, egress, estimateTime)
	if err != nil {
		return 0, err
	}
	rows, ok := g.Estimator.Rows(answer)
	if !ok {
		return 0, fmt.Errorf("the answer of %s holds no estimate", e.Tool)
	}
	return rows, g.Journal.Append(rec.entry(sallyport.EntryTicket, map[string]any{
		"estimated_rows": rows, "principal": rec.Principal, "target": tool.Name, "tool_digest": tool.Digest}))
}

// estimateArgs are the manifest's arguments, with the query among them.
func estimateArgs(e sallyport.Estimate, call json.RawMessage, query string) (json.RawMessage, error) {
	filled, err := sallyport.FillArgs(e.Args, call)
	if err != nil {
		return nil, err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(filled, &all); err != nil {
		return nil, err
	}
	if _, there := all[e.Argument]; there {
		return nil, errors.New("the manifest gives the question's argument a value of its own")
	}
	if all[e.Argument], err = json.Marshal(query); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	return sallyport.Canonical(raw)
}
