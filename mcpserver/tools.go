package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/mcpserver/answer"
	"sallyport.dev/sallyport/mcpserver/meta"
	"sallyport.dev/sallyport/mcpserver/older"
	"sallyport.dev/sallyport/mcpserver/refusal"
	"sallyport.dev/sallyport/mcpserver/reply"
	"sallyport.dev/sallyport/trace"
	"sallyport.dev/sallyport/wire"
	"sallyport.dev/sallyport/wire/ask"
)

// callTool runs tools/call.
func (x *exchange) callTool() {
	req, hears, e := x.toolRequest()
	if e != nil {
		x.fail(http.StatusOK, e)
		return
	}
	ctx, done, ok := x.callContext()
	if !ok {
		return
	}
	defer done()
	if x.modern {
		if e := x.checkParamHeaders(ctx, req.Operation); e != nil {
			x.fail(http.StatusBadRequest, e)
			return
		}
	}
	x.reply = x.newReply(hears, done)
	req.Notify, req.Watched = x.reply.Notify, x.reply.CanProgress()
	if !x.modern {
		req.Gone = x.reply.Gone(x.r.Context(), ctx)
	}
	tasks, run := x.takesTasks(), x.s.gateway.Call
	req.Tasks = tasks
	if x.reply.CanProgress() && !tasks {
		run = func(ctx context.Context, req sallyport.Request) (sallyport.Result, error) {
			return x.s.gateway.Await(ctx, req, x.s.opts.ApprovalWait, x.reply.Wait)
		}
	}
	res, err := x.converse(ctx, req, run)
	x.reply.Settle()
	if ctx.Err() != nil && x.reply.Abandoned() {
		return
	}
	if e, pending := waits(err); pending && tasks {
		x.becomeTask(e.Ticket, e.CallID, e.Message)
		return
	}
	if res.Task != "" {
		x.becomeTask(res.Task, res.CallID, "the call is running")
		return
	}
	x.answer(res, err)
}

// checkParamHeaders verifies Mcp-Param-* headers against the arguments of a tool that
// the caller may see. What is known of tools comes from everybody's lists, so nobody is
// refused for it before their own was looked at: else the refusal would tell that there
// is a tool, and what it takes. Where that list fails the call itself will say why.
func (x *exchange) checkParamHeaders(ctx context.Context, op sallyport.Operation) *wire.Error {
	if known, err := x.paramFault(op); known && err == nil {
		return nil
	}
	sight, err := x.s.gateway.List(ctx, x.credential, x.profile, "", 0)
	if err != nil || !sight.Has(op.Target) {
		return nil
	}
	x.learn(sight)
	if _, err := x.paramFault(op); err != nil {
		return mismatch("%v", err)
	}
	return nil
}

// paramFault is the first header that is not as its argument is; known is false for a
// tool that nobody listed yet.
func (x *exchange) paramFault(op sallyport.Operation) (known bool, err error) {
	headers, known := x.s.params.Get(x.profile, op.Target)
	for _, p := range headers {
		if err := p.Check(x.r.Header, op.Args); err != nil {
			return known, err
		}
	}
	return known, nil
}

// learn keeps which arguments of the tools that the caller may see are mirrored.
func (x *exchange) learn(sight sallyport.Sight) {
	x.s.params.Learn(x.profile, sight.List)
	x.s.params.Learn(x.profile, sight.Found)
}

func (x *exchange) answer(res sallyport.Result, err error) {
	content, callID := []byte(res.Content), res.CallID
	if err == nil && res.Replay {
		content = answer.Replay(content, res.Twin)
	}
	if len(res.Questions) > 0 {
		content = ask.Result(res.Questions, res.State)
	}
	if m, ok := errors.AsType[*sallyport.MissingAbility](err); ok && x.modern && m.Needs.Any() {
		x.needs(m)
		return
	}
	if err != nil {
		e := x.safe(err)
		if !late(e) {
			x.refuseAs(e)
			return
		}
		content, callID = refusal.Result(e), e.CallID
	}
	if !x.modern {
		content = older.Result(content)
	}
	out, err := x.appendToolResult(content, callID)
	if err != nil {
		e := x.safe(&sallyport.Error{Code: sallyport.Internal, Step: sallyport.Respond, CallID: callID, Err: err})
		out, _ = x.appendToolResult(refusal.Result(e), callID)
	}
	x.finish(http.StatusOK, out, true)
}

// toolRequest reads the parameters of tools/call.
func (x *exchange) toolRequest() (req sallyport.Request, hears reply.Hears, e *wire.Error) {
	req = sallyport.Request{Credential: x.credential, Profile: x.profile, Door: "mcp", Size: x.size}
	req.Operation.Kind = sallyport.CallTool
	ok := false
	for name, v := range wire.Members(x.msg.Params) {
		switch string(name) {
		case "name":
			req.Operation.Target, ok = wire.String(v)
		case "arguments":
			if !wire.IsNull(v) {
				req.Operation.Args = v
			}
		}
	}
	if !ok || req.Operation.Target == "" {
		return req, hears, badParams("params.name must be a string: the tool to call")
	}
	if e := x.readReturns(&req); e != nil {
		return req, hears, e
	}
	hears = x.hearsNothing()
	return req, hears, x.readMeta(&req, &hears)
}

// hearsNothing is what a caller hears that asked for nothing in its request.
func (x *exchange) hearsNothing() reply.Hears {
	if x.session != nil {
		return reply.Hears{Level: int(x.session.logLevel.Load())}
	}
	return reply.Hears{Level: -1}
}

// readMeta reads what _meta, and headers in its stead, say about a call.
func (x *exchange) readMeta(req *sallyport.Request, hears *reply.Hears) *wire.Error {
	if x.meta != nil && !wire.IsObject(x.meta) {
		return badParams("params._meta must be an object")
	}
	var key json.RawMessage
	var said trace.Context
	for name, v := range wire.Members(x.meta) {
		switch string(name) {
		case wire.MetaProgressToken:
			if !meta.ProgressToken(v) {
				return badParams("progressToken must be a string or an integer of at most %d bytes", meta.Most)
			}
			hears.Token = v
		case wire.MetaIdempotencyKey:
			key = v
		case wire.MetaTicket:
			var ok bool
			if req.Ticket, ok = wire.String(v); !ok || len(req.Ticket) > 128 {
				return badParams("%s must be a string: the id of a ticket", wire.MetaTicket)
			}
		case wire.MetaSaga:
			var ok bool
			if req.Saga, ok = wire.String(v); !ok || req.Saga == "" || len(req.Saga) > 128 {
				return badParams("%s must be a string: the id of a saga", wire.MetaSaga)
			}
		case wire.MetaTraceparent:
			said.Parent, _ = wire.String(v)
		case wire.MetaTracestate:
			said.State, _ = wire.String(v)
		case wire.MetaBaggage:
			said.Baggage, _ = wire.String(v)
		case wire.MetaLogLevel:
			if level, _ := wire.String(v); x.modern {
				if hears.Level = wire.LogRank(level); hears.Level < 0 {
					return badParams("%s must be one of %s", wire.MetaLogLevel, strings.Join(wire.LogLevels, ", "))
				}
			}
		}
	}
	if hears.Level >= 0 && x.accept.Stream {
		req.Level = wire.LogLevels[hears.Level]
	}
	parent, _ := only(x.r.Header, "Traceparent") // sent twice, it says nothing
	c := trace.Choose(said, trace.Context{Parent: parent, State: strings.Join(x.r.Header["Tracestate"], ","), Baggage: strings.Join(x.r.Header["Baggage"], ",")})
	req.Trace, req.TraceState, req.Baggage = c.Parent, c.State, c.Baggage
	return x.readKey(req, key)
}

// readKey takes the idempotency key from _meta or from the header.
func (x *exchange) readKey(req *sallyport.Request, raw json.RawMessage) *wire.Error {
	header, once := only(x.r.Header, wire.HeaderIdempotencyKey)
	if !once {
		return badParams("the header Idempotency-Key was sent more than once")
	}
	if _, sent := x.r.Header[wire.HeaderIdempotencyKey]; sent && header == "" {
		return badParams("the header Idempotency-Key is empty: leave it out, or send a key")
	}
	req.Key = header
	if raw != nil {
		key, ok := wire.String(raw)
		if !ok || key == "" {
			return badParams("%s must be a string that is not empty", wire.MetaIdempotencyKey)
		}
		if header != "" && header != key {
			return badParams("the header Idempotency-Key and %s differ: send one of them", wire.MetaIdempotencyKey)
		}
		req.Key = key
	}
	if req.Key == "" {
		return nil
	}
	if e, ok := errors.AsType[*sallyport.Error](sallyport.CheckKey(req.Key)); ok {
		return badParams("%s: %s", e.Message, e.Hint)
	}
	return nil
}

// appendToolResult writes the whole response.
func (x *exchange) appendToolResult(content []byte, callID string) ([]byte, error) {
	return x.marks().Append(x.msg.ID, content, callID)
}

// marks are what the caller's era has in each result.
func (x *exchange) marks() answer.Marks { return answer.Marks{Modern: x.modern, Info: x.s.info} }
