package gateway

import (
	"context"
	"fmt"

	"sallyport.dev/sallyport"
)

// enter checks the saga that a request speaks for.
func (g *Gateway) enter(ctx context.Context, rec *record, who sallyport.Principal, saga string) error {
	if saga == "" {
		return nil
	}
	rec.Saga = clip(saga, 64)
	if g.Plans == nil {
		return &sallyport.Error{
			Code: sallyport.NotFound, Step: sallyport.Resolve, Message: fmt.Sprintf("unknown saga %q", rec.Saga),
			Hint: "this gateway has no sagas",
		}
	}
	return at(sallyport.Resolve, g.Plans.Enter(ctx, who, saga))
}

func (g *Gateway) judgePlan(c claim) PlanVerdict {
	if g.Plans == nil {
		return PlanVerdict{}
	}
	return g.Plans.Judge(c.question(), c.req.Saga, policiesOf(g.demands(c)))
}
