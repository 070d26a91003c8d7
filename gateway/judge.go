package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/keys"
	"sallyport.dev/sallyport/gateway/outbound"
	"sallyport.dev/sallyport/gateway/refusal"
	"sallyport.dev/sallyport/tier/choose"
)

// validArgs are a target's arguments in canonical form, as its schema wants
// them. These bytes are what everything after sees.
type validArgs struct {
	target
	canonical json.RawMessage
}

func (g *Gateway) validate(rec *record, t target) (validArgs, error) {
	rec.at(sallyport.Validate)
	err := keys.Check(t.req.Door, t.req.Key)
	if err == nil && t.req.Key != "" && !keys.Own(t.req.Door) {
		err = g.harmless(rec, t.req.Key)
	}
	if err != nil {
		return validArgs{}, at(sallyport.Validate, err)
	}
	canonical, err := sallyport.Canonical(t.args)
	if err == nil {
		canonical, err = t.filled(canonical)
	}
	if err == nil {
		rec.args = canonical
		err = g.fits(t, canonical)
	}
	if err != nil {
		invalid := &sallyport.Error{
			Code: sallyport.Invalid, Step: sallyport.Validate, Err: err,
			Message: err.Error(), Hint: "see the tool's input schema in tools/list",
		}
		if e, ok := errors.AsType[*sallyport.Error](err); ok {
			invalid.Code, invalid.Message, invalid.Hint = e.Code, e.Message, cmp.Or(e.Hint, invalid.Hint)
		}
		invalid.Message = g.Sanitiser.Text(invalid.Message)
		return validArgs{}, at(sallyport.Validate, invalid)
	}
	return validArgs{t, canonical}, nil
}

// judged are arguments together with what they would do.
type judged struct {
	validArgs
	risk    sallyport.Risk
	tier    string           // that the code runs in, "" for none
	lacking error            // why it cannot; may have an outcome on record, so approve says what only this host lacks
	secrets []sallyport.Part // of arguments that leave
}

func (g *Gateway) assess(ctx context.Context, rec *record, a validArgs) judged {
	rec.at(sallyport.Assess)
	secrets := outbound.Leaking(g.Inspector, a.tool, a.canonical)
	risk := g.Assessor.Assess(ctx, a.tool, a.canonical)
	if len(secrets) > 0 {
		risk = outbound.Highlight(g.Inspector, g.maskRisk(risk), secrets) // it may quote them
	}
	tier, err := g.tierOf(ctx, a.tool, a.canonical)
	rec.Risk, rec.secrets, rec.Tier, rec.TierReason = &risk, secrets, tier.Tier, tier.Reason
	return judged{a, risk, tier.Tier, err, secrets}
}

// tierOf chooses where code runs, as hosts are now.
func (g *Gateway) tierOf(ctx context.Context, tool sallyport.Tool, args json.RawMessage) (choose.Choice, error) {
	return choose.Of(tool, args, func(tier string) error {
		if g.Lack == nil {
			return nil
		}
		return g.Lack(ctx, tier)
	})
}

// A permit is the policy's leave to make one call, as of two generations.
type permit struct {
	judged
	verdict  Verdict
	policy   uint64
	catalogs uint64
	tainted  bool
	held     bool // a human must decide because the caller is tainted
	strayed  bool // left the plan of its saga
}

func (g *Gateway) authorize(ctx context.Context, rec *record, j judged) (permit, error) {
	rec.at(sallyport.Authorize)
	taint, err := g.taintOf(ctx, j)
	if err != nil {
		return permit{}, err
	}
	p := permit{judged: j, policy: g.Authorizer.Generation(), catalogs: g.Catalog.Generation(), tainted: taint != nil}
	v, err := g.Authorizer.Authorize(p.question())
	rec.Policies = v.Policies
	if err == nil && v.Allow {
		p.verdict = v
		p.hold(taint)
		rec.Risk = &p.risk
		return p, cmp.Or(g.refuseSecrets(p.secrets), p.unasked(), choose.Impossible(p.lacking))
	}
	return permit{}, refusal.Policy(v.Reasons, err)
}

func (p permit) question() Question {
	return Question{
		Who: p.who, Profile: p.req.Profile, Action: actionOf(p.tool),
		Tool: p.tool, Args: p.canonical, Risk: p.risk, Tier: p.tier, Tainted: p.tainted,
	}
}

// unchanged decides again where policies or tools moved since the permit was
// given: the call goes on only if today's answer is the same.
func (g *Gateway) unchanged(p permit) error {
	if p.policy == g.Authorizer.Generation() && p.catalogs == g.Catalog.Generation() {
		return nil
	}
	return g.again(p, p.who)
}

// again decides once more, by what holds now, for the caller as known now.
func (g *Gateway) again(p permit, who sallyport.Principal) error {
	p.who = who
	tool, err := g.Catalog.Resolve(p.req.Profile, p.tool.Name)
	if err == nil && tool.Digest == p.tool.Digest && string(tool.Fixed) == string(p.tool.Fixed) && tool.Status == sallyport.ToolActive {
		var v Verdict
		v, err = g.Authorizer.Authorize(p.question())
		if err == nil && v.Allow && sallyport.NoMore(v.Demands, p.verdict.Demands) && v.NoNetwork == p.verdict.NoNetwork {
			return nil
		}
	}
	return refusal.Overtaken(err)
}

// egress is what the call may reach, unless a policy took the network away.
func (p permit) egress() []string {
	if p.verdict.NoNetwork {
		return nil
	}
	return choose.Reach(p.tool, p.canonical)
}
