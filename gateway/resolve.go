package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/inner"
	"sallyport.dev/sallyport/gateway/refusal"
)

// ApprovalResult is the built-in tool with which an agent comes back for the
// result of a call that waited for a human. It stands for that call.
const ApprovalResult = "approval_result"

// A target is a tool that the caller may know of, and what to give it.
type target struct {
	who  sallyport.Principal
	req  sallyport.Request
	tool sallyport.Tool
	args json.RawMessage // not yet validated
	ours bool            // args were filled before, or are those of a step of a saga
}

func (g *Gateway) resolve(ctx context.Context, rec *record, in guest, req sallyport.Request) (target, error) {
	rec.at(sallyport.Resolve)
	if !known(req) {
		return target{}, &sallyport.Error{
			Code: sallyport.Invalid, Step: sallyport.Resolve,
			Message: fmt.Sprintf("unknown operation %q", req.Operation.Kind), Hint: "call a tool",
		}
	}
	t := target{who: in.who, req: req, args: req.Operation.Args, ours: req.Door == "saga"}
	name, err := g.meant(rec, &t)
	if err != nil {
		return target{}, err
	}
	if name == ApprovalResult && req.Operation.Kind == sallyport.CallTool {
		ticket, err := g.ownTicket(ctx, t)
		if err != nil {
			return target{}, err
		}
		name, t.req.Ticket, t.args, t.ours = ticket.Binding.Tool, ticket.ID, ticket.Binding.Args, true
		rec.Target, rec.Ticket = name, ticket.ID
	}
	rec.tools = g.Catalog.Generation()
	tool, err := g.find(req, name)
	if err == nil && !g.visible(in.who, req.Profile, tool) {
		err = &sallyport.Error{Code: sallyport.NotFound}
	}
	if sallyport.CodeOf(err) == sallyport.NotFound {
		return target{}, refusal.Unknown(req.Operation, name)
	}
	if err != nil {
		return target{}, at(sallyport.Resolve, err)
	}
	if err := g.enter(ctx, rec, in.who, req.Saga); err != nil {
		return target{}, err
	}
	t.tool = tool
	if tool.Shelf == sallyport.Resources && req.Operation.Kind != sallyport.Complete {
		t.args = sallyport.ReadArgs(tool.Origin.Name)
	}
	r := &rec.Record
	r.Target, r.ToolDigest, r.Server, r.Upstream = tool.Name, tool.Digest, tool.Origin.Server, tool.Origin.Name
	return t, refusal.Callable(tool)
}

// meant is the name of what a call is about. One of call_tool, where there is such
// a tool, is about another.
func (g *Gateway) meant(rec *record, t *target) (name string, err error) {
	op := t.req.Operation
	if op.Target != sallyport.CallTools || op.Kind != sallyport.CallTool {
		return op.Target, nil
	}
	if tool, err := g.Catalog.Resolve(t.req.Profile, op.Target); err != nil || !g.visible(t.who, t.req.Profile, tool) {
		return "", refusal.Unknown(op, op.Target)
	}
	if name, t.args, err = inner.Call(t.args); err != nil {
		return "", err
	}
	rec.Target = clip(name, 4<<10)
	if name == sallyport.CallTools || name == ApprovalResult { // these stand for calls themselves
		return "", refusal.Unknown(op, name)
	}
	return name, nil
}

// known: a file is moved by the tool that is there for it. A reading has neither
// key nor ticket: it is done again as often as anybody likes.
func known(req sallyport.Request) bool {
	switch req.Operation.Kind {
	case sallyport.CallTool:
		return req.Transfer == nil
	case sallyport.ReadResource, sallyport.GetPrompt, sallyport.Complete, sallyport.Subscribe:
		return req.Transfer == nil && req.Key == "" && req.Ticket == "" && req.Saga == ""
	case sallyport.MoveFile:
		return req.Transfer != nil && req.Operation.Target == sallyport.FilesTool
	}
	return false
}

// ownTicket reads the ticket that approval_result names; somebody else's is unknown.
func (g *Gateway) ownTicket(ctx context.Context, t target) (sallyport.Ticket, error) {
	var in struct {
		Ticket string `json:"ticket"`
	}
	canonical, err := sallyport.Canonical(t.args)
	if err == nil {
		err = json.Unmarshal(canonical, &in)
	}
	if err != nil || in.Ticket == "" {
		return sallyport.Ticket{}, &sallyport.Error{
			Code: sallyport.Invalid, Step: sallyport.Validate, Err: err,
			Message: `approval_result needs {"ticket": "…"}`,
			Hint:    "the ticket's id is in the approval_pending result of the call that waits",
		}
	}
	return g.ticketOf(ctx, t.who, in.Ticket, sallyport.Resolve)
}

func (g *Gateway) ticketOf(ctx context.Context, who sallyport.Principal, id string, step sallyport.Step) (sallyport.Ticket, error) {
	t, err := g.Ledger.Ticket(ctx, who.Tenant, id)
	if err != nil && sallyport.CodeOf(err) != sallyport.NotFound {
		return t, at(step, err)
	}
	if err != nil || t.Binding.Principal != who.ID || t.Binding.OnBehalfOf != who.OnBehalfOf {
		return t, refusal.NoTicket(step, clip(id, 64))
	}
	return t, nil
}

func clip(s string, n int) string {
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n], "") + "…"
	}
	return s
}
