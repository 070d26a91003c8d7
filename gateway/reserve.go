package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"sallyport.dev/sallyport"
)

// A claim is a permit under a key that no earlier call has used up.
type claim struct {
	permit
	key         sallyport.ReservationKey
	fingerprint string
	ticket      string // that an earlier attempt under this key waits for, or ""
	keyed       bool   // the caller chose the key or resumes a ticket
}

// reserve looks the key up. A call that is already done gives its output as
// prior, for sanitise. The key itself is taken with the intent, in one
// transaction, by execute, or with the ticket, by approve.
func (g *Gateway) reserve(ctx context.Context, rec *record, p permit) (c claim, prior *output, err error) {
	rec.at(sallyport.Reserve)
	sum := sha256.Sum256(p.canonical)
	c = claim{permit: p, fingerprint: hex.EncodeToString(sum[:]), keyed: p.req.Key != "" || p.req.Ticket != ""}
	c.key = sallyport.ReservationKey{Tenant: p.who.Tenant, Principal: p.who.ID, Tool: p.tool.Name, Key: p.req.Key}
	switch {
	case p.req.Ticket != "":
		if c.key.Key, err = g.ticketKey(ctx, p); err != nil {
			return claim{}, nil, err
		}
	case p.req.Key == "":
		c.key.Key = rec.CallID // nobody can have used it
	}
	rec.Key = c.key.Key
	if !c.keyed {
		return c, nil, nil
	}
	r, err := g.Ledger.Find(ctx, c.key)
	if err != nil {
		return claim{}, nil, at(sallyport.Reserve, err)
	}
	if r == nil {
		return c, nil, nil
	}
	return g.meet(rec, c, r)
}

// meet says what an earlier call under the same key means for this one.
func (g *Gateway) meet(rec *record, c claim, r *sallyport.Reservation) (claim, *output, error) {
	fail := func(code sallyport.Code, message, hint string, retry time.Duration) (claim, *output, error) {
		return claim{}, nil, &sallyport.Error{
			Code: code, Step: sallyport.Reserve, Message: message, Hint: hint, Ticket: r.Ticket, RetryAfter: retry,
		}
	}
	if r.Fingerprint != c.fingerprint {
		return fail(sallyport.Conflict, "this idempotency key was used with other arguments",
			"use a new key for a new call", 0)
	}
	switch r.State {
	case sallyport.Done:
		rec.Replay = true
		out := sallyport.Output{Content: r.Output, IsError: r.IsError}
		return claim{}, &output{tool: c.tool, Output: out, at: r.UpdatedAt}, nil
	case sallyport.Executing:
		return fail(sallyport.InFlight, "a call with this key is still running", "wait and call again with the same key", time.Second)
	case sallyport.Unknown:
		return fail(sallyport.OutcomeUnknown, "an earlier call with this key may have acted: its outcome is unknown",
			"an operator must find out and say so with `sallyport reservations resolve`", 0)
	case sallyport.Failed: // it had no effect: the key may be used again, with a new approval
		return c, nil, nil
	default:
		c.ticket = r.Ticket
		return c, nil, nil
	}
}

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
