package gateway

import (
	"context"
	"errors"

	"sallyport.dev/sallyport"
)

// An Explanation says how a call would be decided now.
type Explanation struct {
	Principal string             `json:"principal"`
	Tool      string             `json:"tool"`
	Path      []sallyport.Step   `json:"path"` // as far as it came
	Risk      *sallyport.Risk    `json:"risk"` // nil if it did not come to assess
	Policies  []string           `json:"policies"`
	Approval  []string           `json:"approval"`          // what demands a human, if anything does
	Demands   []sallyport.Demand `json:"demands,omitempty"` // what humans must say
	NoNetwork bool               `json:"no_network"`        // a policy takes the network away
	Tier      string             `json:"tier,omitempty"`    // that code would run in
	Why       string             `json:"tier_reason,omitempty"`
	Refused   *Refusal           `json:"refused"` // nil if it would be allowed
}

// A Refusal is an error as an operator reads it.
type Refusal struct {
	Step    sallyport.Step `json:"step"`
	Code    sallyport.Code `json:"code"`
	Message string         `json:"message"`
	Hint    string         `json:"hint,omitempty"`
}

// Explain takes the same steps as Call, up to the one that asks a human. It
// makes no call and leaves no record. The error says that the credential is not
// good; every other refusal is part of the explanation.
func (g *Gateway) Explain(ctx context.Context, req sallyport.Request) (Explanation, error) {
	rec := &record{g: g, Record: sallyport.Record{Path: []sallyport.Step{sallyport.Receive}}}
	who, err := g.authenticate(ctx, rec, req.Profile, req.Credential)
	if err != nil {
		return Explanation{}, err
	}
	p, err := g.decide(ctx, rec, who, req)
	x := Explanation{
		Principal: who.who.ID, Tool: req.Operation.Target, Path: rec.Path, Risk: rec.Risk, Policies: append([]string{}, rec.Policies...),
		Approval: policiesOf(g.demands(claim{permit: p})), Demands: g.demands(claim{permit: p}), NoNetwork: p.verdict.NoNetwork,
		Tier: rec.Tier, Why: rec.TierReason,
	}
	if err == nil {
		err = at(sallyport.Approve, p.lacking)
	}
	if e, ok := errors.AsType[*sallyport.Error](err); ok {
		x.Refused = &Refusal{e.Step, e.Code, e.Message, e.Hint}
	} else if err != nil {
		return Explanation{}, err
	}
	return x, nil
}

// Still says why a call that runs would not be let through any more, nil if it
// would.
func (g *Gateway) Still(ctx context.Context, job sallyport.Job) error {
	rec := &record{g: g, Record: sallyport.Record{Path: []sallyport.Step{sallyport.Receive}, Profile: job.Profile}}
	p, err := g.decide(ctx, rec, identity{job.Who}, sallyport.Request{
		Profile: job.Profile, Saga: job.Saga, Operation: sallyport.Operation{Kind: job.Kind, Target: job.Tool.Name, Args: job.Args},
	})
	if err == nil && job.Ticket == "" && p.needsHumanAnyway() {
		err = &sallyport.Error{Code: sallyport.Denied, Step: sallyport.Authorize, Message: "by now a human must approve it"}
	}
	return err
}

func (g *Gateway) decide(ctx context.Context, rec *record, who identity, req sallyport.Request) (permit, error) {
	target, err := g.resolve(ctx, rec, guest{who: who.who}, req)
	if err != nil {
		return permit{}, err
	}
	args, err := g.validate(rec, target)
	if err != nil {
		return permit{}, err
	}
	return g.authorize(ctx, rec, g.assess(ctx, rec, args))
}
