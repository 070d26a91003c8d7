package gateway

import (
	"slices"

	"sallyport.dev/sallyport"
)

// strayed is what demands the approval of a call that left its plan.
const strayed = "built-in: the call left its approved plan"

// needsHuman reports whether the risk, a policy or a sum demands an approval.
func (c claim) needsHuman() bool { return len(c.over) > 0 || c.permit.needsHuman() }

// needsHuman reports whether the risk, or a policy, demands an approval.
func (p permit) needsHuman() bool { return p.held || p.needsHumanAnyway() }

// needsHumanAnyway is needsHuman for a caller who has read nothing of strangers.
func (p permit) needsHumanAnyway() bool {
	demands := len(p.verdict.Demands)
	if p.held {
		demands--
	}
	return p.strayed || p.risk.Irreversible || p.risk.Level >= sallyport.Critical || demands > 0
}

// left is the claim of a call that left its plan, with the reason to be seen.
func (c claim) left(why string) claim {
	if why != "" {
		c.strayed = true
		c.risk.Reasons = slices.Concat([]string{why}, c.risk.Reasons)
	}
	return c
}

// demands are what humans must say before the call may run: what policies
// ask, what sums ask, and what the gateway asks for calls that cannot be undone.
// It is never nil, so that the ledger checks it.
func (g *Gateway) demands(c claim) []sallyport.Demand {
	out := append([]sallyport.Demand{}, c.verdict.Demands...)
	if c.strayed {
		out = append(out, sallyport.Demand{Policy: strayed})
	}
	for _, o := range c.over {
		out = append(out, sallyport.Demand{Policy: "limits.windows: " + o.Window.Limit + " per " + o.Window.Per.String()})
	}
	if d := g.Irreversible; c.risk.Irreversible && (len(d.Groups) > 0 || d.Quorum > 1) {
		d.Policy = "approvals.irreversible"
		out = append(out, d)
	}
	if len(out) == 0 && c.needsHuman() {
		out = append(out, sallyport.Demand{Policy: sallyport.DemandCritical})
	}
	return out
}

// policiesOf names what demands something.
func policiesOf(demands []sallyport.Demand) []string {
	out := make([]string, len(demands))
	for i, d := range demands {
		out[i] = d.Policy
	}
	return out
}
