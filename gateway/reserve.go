package gateway

import (
	"bytes"
	"context"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/keys"
	"sallyport.dev/sallyport/gateway/refusal"
)

// A claim is a permit under a key that no earlier call has used up.
type claim struct {
	permit
	key         sallyport.ReservationKey
	fingerprint string
	awaits      string // the ticket that an earlier attempt under this key waits for, or ""
	keyed       bool   // the caller chose the key or resumes a ticket
	repeats     bool   // a script: what it calls has keys, so it may run again whatever became of it
	twin        *Twin  // set if an identical call counts as this one

	windows []sallyport.Window  // that count what this call moves
	over    []sallyport.Overrun // those that it would overrun
}

// reserve looks the key up. A call that is already done gives its output as
// prior, for sanitise. The key itself is taken with the intent, in one
// transaction, by execute, or with the ticket, by approve.
func (g *Gateway) reserve(ctx context.Context, rec *record, p permit) (c claim, prior *output, err error) {
	rec.at(sallyport.Reserve)
	c = claim{permit: p, fingerprint: digest(p.canonical), keyed: p.req.Key != "" || p.req.Ticket != "",
		repeats: len(sallyport.ScriptTools(p.tool, p.canonical)) > 0}
	if c.key, err = g.keyOf(ctx, rec, p); err != nil {
		return claim{}, nil, err
	}
	if !c.keyed {
		if err := g.findTwin(ctx, rec, &c); err != nil {
			return claim{}, nil, at(sallyport.Reserve, err)
		}
	}
	rec.Key = c.key.Key
	if c.keyed || rec.Twin != "" {
		r, err := g.Ledger.Find(ctx, c.key)
		if err != nil {
			return claim{}, nil, at(sallyport.Reserve, err)
		}
		if r != nil {
			if c, prior, err = g.meet(rec, c, r); err != nil || prior != nil {
				return claim{}, prior, err
			}
		}
	}
	if err := g.spend(ctx, rec, &c); err != nil {
		return claim{}, nil, at(sallyport.Reserve, err)
	}
	return c, nil, nil
}

// keyOf is the key that a call is remembered by. Beside tenant, agent and tool
// its scope is the user on whose behalf the agent calls; a caller's own key
// cannot hold sallyport.Scope, so it never names what was done for somebody else.
func (g *Gateway) keyOf(ctx context.Context, rec *record, p permit) (k sallyport.ReservationKey, err error) {
	k = sallyport.ReservationKey{Tenant: p.who.Tenant, Principal: p.who.ID, Tool: p.tool.Name, Key: keys.Scoped(p.req.Door, p.req.Key, p.who.OnBehalfOf)}
	switch {
	case p.req.Ticket != "":
		k.Key, err = g.ticketKey(ctx, p)
		return k, err
	case p.req.Key == "":
		k.Key = rec.CallID // nobody can have used it
	}
	return k, nil
}

// findTwin looks for an identical call without a key, where the operator wants
// those to count as one. Never where a human decides: each question needs an
// answer of its own. Nor in an open saga, which may undo what the twin would count on.
func (g *Gateway) findTwin(ctx context.Context, rec *record, c *claim) error {
	within := c.tool.Manifest.Dedupe
	if within <= 0 || g.Past == nil || !c.risk.Mutating() || c.needsHuman() || c.req.Saga != "" {
		return nil
	}
	c.twin = &Twin{Fingerprint: digest(c.fingerprint + " for " + c.who.OnBehalfOf), Within: within}
	first, err := g.Past.TwinOf(ctx, c.key, *c.twin)
	if err == nil && first != "" && first != c.key.Key {
		c.key.Key, rec.Twin = first, first
	}
	return err
}

// meet says what an earlier call under the same key means for this one.
func (g *Gateway) meet(rec *record, c claim, r *sallyport.Reservation) (claim, *output, error) {
	if r.Fingerprint != c.fingerprint {
		return claim{}, nil, refusal.OtherCall(r)
	}
	switch r.State {
	case sallyport.Done:
		asks := c.permit.needsHuman()
		if c.req.Door == sallyport.ScriptDoor { // who reads on in the same script has seen it before
			asks = c.permit.needsHumanAnyway()
		}
		if r.Ticket == "" && asks {
			return claim{}, nil, refusal.Unapproved(r)
		}
		rec.Replay = true
		out := earlier(c.tool, r)
		return claim{}, &out, nil
	case sallyport.Executing:
		return claim{}, nil, refusal.StillRuns(r)
	case sallyport.Unknown:
		if c.repeats {
			return c, nil, nil
		}
		return claim{}, nil, refusal.MayHaveActed(r)
	case sallyport.Failed: // it had no effect: the key may be used again, with a new approval
		return c, nil, nil
	default:
		c.awaits = r.Ticket
		return c, nil, nil
	}
}

// earlier is the output of a call that is done.
func earlier(tool sallyport.Tool, r *sallyport.Reservation) output {
	out := output{tool: tool, Output: sallyport.Output{Content: r.Output, IsError: r.IsError}, at: r.UpdatedAt}
	if out.Content == nil {
		out.Content = notKept
	}
	return out
}

// notKept stands for the result of a call that is done and whose own result
// had to make room.
var notKept = []byte(`{"content":[{"type":"text","text":"This call was executed once, and is not executed again. Its result is no longer kept."}],` +
	`"_meta":{"dev.sallyport/result":"not_kept"}}`)

// ticketKey is the reservation key of the call that a ticket stands for.
// Arguments that differ in one byte are another call.
func (g *Gateway) ticketKey(ctx context.Context, p permit) (string, error) {
	t, err := g.ticketOf(ctx, p.who, p.req.Ticket, sallyport.Reserve)
	if err != nil {
		return "", err
	}
	if t.Binding.Tool != p.tool.Name || !bytes.Equal(t.Binding.Args, p.canonical) {
		return "", &sallyport.Error{
			Code: sallyport.Conflict, Step: sallyport.Reserve, Ticket: t.ID,
			Message: "the arguments are not those that the ticket was opened for",
			Hint:    "resume with exactly the same tool and arguments, or make a new call without the ticket",
		}
	}
	return t.Key, nil
}
