package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/tier/choose"
)

// The types below stand before the engines of the path, so that a call of
// saga_run is validated, judged and authorised as all the calls that it would
// lead to.

// IsRun reports whether the tool starts plans.
func IsRun(t sallyport.Tool) bool {
	return t.Origin.Backend == Backend && t.Origin.Name == ToolRun
}

// A Catalog refuses plans that are not well formed.
type Catalog struct {
	gateway.Catalog
	Book *Book
}

// Validate checks the arguments, and the plan in them.
func (c Catalog) Validate(t sallyport.Tool, args json.RawMessage) error {
	if err := c.Catalog.Validate(t, args); err != nil || !IsRun(t) {
		return err
	}
	_, err := c.Book.Draft(args)
	return err
}

// An Assessor judges a plan by all that is in it.
type Assessor struct {
	Next gateway.Assessor
	Book *Book
}

// Assess is pure, as every assessor is.
func (a Assessor) Assess(ctx context.Context, t sallyport.Tool, args json.RawMessage) sallyport.Risk {
	switch {
	case t.Origin.Backend != Backend:
		return a.Next.Assess(ctx, t, args)
	case t.Origin.Name == ToolStatus:
		return sallyport.Risk{Level: sallyport.Low, Reasons: []string{"shows the caller's own sagas"}}
	case !IsRun(t):
		return sallyport.Risk{Level: sallyport.High, Reasons: []string{"begins or ends a saga of the caller's own; each call in it is judged by itself"}}
	}
	d, err := a.Book.Draft(args)
	if err != nil { // it was valid a moment ago
		return worst("the plan can no longer be read")
	}
	return d.Risk
}

// An Authorizer lets a plan start only if its steps would be let through, and
// demands for the whole what is demanded for each of them.
type Authorizer struct {
	gateway.Authorizer
	Book *Book
}

// Authorize asks about saga_run itself, and then about each step and undo.
func (a Authorizer) Authorize(q gateway.Question) (gateway.Verdict, error) {
	v, err := a.Authorizer.Authorize(q)
	if err != nil || !v.Allow || q.Action != gateway.ActionCall || !IsRun(q.Tool) {
		return v, err
	}
	d, err := a.Book.Draft(q.Args)
	if err != nil {
		return gateway.Verdict{Reasons: []string{"the plan can no longer be read"}}, err
	}
	for _, s := range d.Steps {
		calls := []*sallyport.SagaCall{&s.Do, s.Undo}
		for i, c := range calls {
			if c == nil {
				continue
			}
			what := "step " + s.ID
			if i == 1 {
				what = "the compensation of " + s.ID
			}
			if v, err = a.join(q, v, what, *c); err != nil || !v.Allow {
				return v, err
			}
		}
	}
	return v, nil
}

// join adds what policies say of one call. What depends on values that nobody
// knows yet is decided again when the step runs.
func (a Authorizer) join(q gateway.Question, v gateway.Verdict, what string, c sallyport.SagaCall) (gateway.Verdict, error) {
	no := func(why string) gateway.Verdict {
		return gateway.Verdict{Policies: v.Policies, Reasons: []string{what + ": " + why}}
	}
	t, err := a.Book.Catalog.Resolve(q.Profile, c.Tool)
	if err == nil {
		seen, err := a.Authorizer.Authorize(gateway.Question{Who: q.Who, Profile: q.Profile, Action: gateway.ActionList, Tool: t})
		if err != nil {
			return no("a policy fails"), err
		}
		if !seen.Allow {
			t = sallyport.Tool{}
		}
	}
	switch {
	case err != nil || t.Name == "": // the same words whether it does not exist, is not theirs, or its server has not told its tools yet
		why := fmt.Sprintf("unknown tool %.64q", c.Tool)
		return no(why), &sallyport.Error{Code: sallyport.NotFound, Step: sallyport.Authorize, Message: what + ": " + why}
	case t.Status != sallyport.ToolActive:
		return no(fmt.Sprintf("tool %s is %s: %s", t.Name, t.Status, t.StatusReason)), nil
	}
	if len(t.Fixed) > 0 { // what was judged with the plan would not be what runs
		return no(fmt.Sprintf("tool %s has arguments with fixed values here, so it cannot be a step: call it by itself", t.Shown())), nil
	}
	known := len(refsIn(c.Args)) == 0
	if known {
		if err := a.Book.Catalog.Validate(t, c.Args); err != nil {
			return no(err.Error()), nil
		}
	}
	one, err := a.Authorizer.Authorize(gateway.Question{
		Who: q.Who, Profile: q.Profile, Action: gateway.ActionCall, Tool: t, Args: c.Args, Risk: c.Risk, Tier: tierOf(t, c.Args),
	})
	if err != nil && known {
		return no("a policy fails"), err
	}
	if err == nil && !one.Allow && known {
		for _, r := range one.Reasons {
			return no(r), nil
		}
		return no("no policy allows this"), nil
	}
	for _, d := range one.Demands {
		if !slices.ContainsFunc(v.Demands, func(o sallyport.Demand) bool { return reflect.DeepEqual(o, d) }) {
			v.Demands = append(slices.Clone(v.Demands), d)
		}
	}
	return v, nil
}

// tierOf is where a step would run, where all tiers can be had. It is chosen again
// when the step runs.
func tierOf(t sallyport.Tool, args json.RawMessage) string {
	c, _ := choose.Of(t, args, nil) // what is wrong is said when it runs
	return c.Tier
}
