package gateway

import (
	"context"
	"slices"

	"sallyport.dev/sallyport"
)

// spend asks whether what the call moves, together with what was moved before,
// is more than may be moved without a human. Begin asks once more, in the
// transaction: who lost a race is judged again.
func (g *Gateway) spend(ctx context.Context, rec *record, c *claim) error {
	if len(c.risk.Amounts) == 0 || g.Past == nil {
		return nil
	}
	for _, w := range g.Windows {
		if sallyport.Matches(w.Tool, c.tool.Name) {
			c.windows = append(c.windows, w)
		}
	}
	over, err := g.Past.Overruns(ctx, c.key, c.risk.Amounts, c.windows)
	if err != nil || len(over) == 0 {
		return err
	}
	c.over, c.twin = over, nil // what needs a human has no twin
	reasons := make([]string, 0, len(over)+len(c.risk.Reasons))
	for _, o := range over {
		reasons = append(reasons, o.String())
	}
	c.risk.Reasons = slices.Concat(reasons, c.risk.Reasons)
	rec.Risk = &c.risk
	return nil
}

// quotasOf are the quotas that a call counts towards.
func (g *Gateway) quotasOf(j job) (all []sallyport.Quota) {
	if !j.risk.Mutating() {
		return nil
	}
	for _, q := range g.Quotas {
		if sallyport.Matches(q.Tool, j.tool.Name) && (q.Agent == "" || q.Agent == j.who.ID) {
			all = append(all, q)
		}
	}
	return all
}
