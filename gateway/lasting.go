package gateway

import (
	"cmp"
	"context"
	"errors"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/keys"
	"sallyport.dev/sallyport/gateway/refusal"
	"sallyport.dev/sallyport/pause"
)

// lasts has a call that takes long become one whose outcome is found later, where its
// caller takes that. stop returns when that is over; it must be called before what the
// record owes the ledger is looked at.
func (g *Gateway) lasts(rec *record, j job, begin func() error) (stop func()) {
	if j.req.Lasts == nil || !j.req.Tasks {
		return func() {}
	}
	return pause.Then(cmp.Or(g.Limits.Task, 10*time.Second), func() {
		if rec.open == nil {
			if err := begin(); err != nil { // too many are open, or the policies are others by now: it is waited for
				g.Log.Debug("a call does not become a task", "call", rec.CallID, "err", err)
				return
			}
		}
		if j.req.Lasts(sallyport.Lasting{CallID: rec.CallID, Key: j.key, Owner: rec.reader(), Binding: keys.Owner(j.who, j.req.Profile), Still: func(who sallyport.Principal) error { return refusal.Of(rec.CallID, g.again(j.permit, who)) }}) {
			rec.leave()
		}
	})
}

// Later says how a call is whose caller got a task for an answer: its result, what its
// server asks, or code InFlight. The caller is authenticated and admitted each time, and
// must still be allowed to know the tool; answers are only taken where the call would
// still be let go on; the result is cleaned under today's rules.
func (g *Gateway) Later(ctx context.Context, req sallyport.Request, v sallyport.Visit) (res sallyport.Result, err error) {
	rec, err := g.receive(req)
	if err != nil {
		return res, err
	}
	end := func(_ context.Context, _ *sallyport.Result, err *error) { *err = rec.presentable(*err) } // a look is not recorded
	defer func() { end(ctx, &res, &err) }()
	who, err := g.authenticate(ctx, rec, req.Profile, req.Credential)
	if err != nil {
		return res, err
	}
	guest, err := g.admit(rec, who, req.Size)
	if err != nil {
		return res, err
	}
	defer guest.leave()
	l, tool, err := g.lasting(rec, guest, req, v)
	if err != nil {
		return res, err
	}
	r, err := g.Ledger.Find(ctx, l.Key)
	switch {
	case err != nil:
		return res, at(sallyport.Reserve, err)
	case r == nil || r.CallID != l.CallID:
		return res, refusal.NoTask()
	case r.State != sallyport.Executing && (v.Cancel || v.Answers != nil): // too late
		return sallyport.Result{CallID: l.CallID}, nil
	case r.State == sallyport.Done:
		end, rec.Continues, rec.Replay = rec.respond, true, true
		return g.sanitise(ctx, rec, earlier(tool, r))
	case r.State == sallyport.Failed:
		return sallyport.Result{At: r.UpdatedAt}, refusal.Kept(l.CallID, r.Reason)
	case r.State == sallyport.Unknown:
		return res, refusal.Unsure(l.CallID)
	}
	v.Who = guest.who
	asked, err := g.Held.Visit(ctx, l, v)
	e, ours := errors.AsType[*sallyport.Error](err)
	switch {
	case err == nil && len(asked) > 0:
		return sallyport.Result{CallID: l.CallID, Questions: asked}, nil
	case !ours || e.CallID != l.CallID: // it cannot be asked, or has just ended
		err = refusal.Running(l.CallID)
	}
	return res, err
}

// lasting is the call that a task stands for, and its tool, as the caller may know it today.
func (g *Gateway) lasting(rec *record, in guest, req sallyport.Request, v sallyport.Visit) (l sallyport.Lasting, tool sallyport.Tool, err error) {
	rec.at(sallyport.Resolve)
	if g.Held == nil {
		return l, tool, refusal.NoTask()
	}
	l, err = g.Held.Named(v.Task, keys.Owner(in.who, req.Profile))
	if err != nil || l.Key.Tenant != in.who.Tenant || l.Key.Principal != in.who.ID {
		return l, tool, refusal.NoTask()
	}
	rec.CallID, rec.Kind, rec.Target, rec.Key = l.CallID, sallyport.CallTool, l.Key.Tool, l.Key.Key
	if tool, err = g.find(sallyport.Request{Profile: req.Profile, Operation: sallyport.Operation{Kind: sallyport.CallTool}}, l.Key.Tool); err == nil && !g.visible(in.who, req.Profile, tool) {
		err = &sallyport.Error{Code: sallyport.NotFound}
	}
	if sallyport.CodeOf(err) == sallyport.NotFound {
		return l, tool, refusal.NoTask()
	}
	rec.ToolDigest, rec.Server, rec.Upstream = tool.Digest, tool.Origin.Server, tool.Origin.Name
	if err == nil && !v.Cancel { // what runs can be stopped, whatever became of its tool
		err = refusal.Callable(tool)
	}
	return l, tool, at(sallyport.Resolve, err)
}
