package mcpserver

import (
	"context"
	"net/http"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/mcpserver/reading"
	"sallyport.dev/sallyport/wire"
	"sallyport.dev/sallyport/wire/ask"
)

// A runner makes a call: Gateway.Call, or Gateway.Await.
type runner = func(context.Context, sallyport.Request) (sallyport.Result, error)

// A Held runs calls whose clients answer by calling again. (gateway/held)
type Held interface {
	// Begin runs a call, whose end or first questions it returns.
	Begin(ctx context.Context, req sallyport.Request, run runner) (sallyport.Result, error)
}

// A Later tells of calls that became tasks. (gateway.Gateway)
type Later interface {
	// Later does what is wanted to a call, and returns its result, what its server asks,
	// or an error: of code InFlight while it runs.
	Later(ctx context.Context, req sallyport.Request, v sallyport.Visit) (sallyport.Result, error)
}

// converse makes a call. What its server asks meanwhile is put to the client in the
// way of its era.
func (x *exchange) converse(ctx context.Context, req sallyport.Request, run runner) (sallyport.Result, error) {
	switch {
	case x.msg.Method == asksNothing:
	case x.modern && req.State != "":
		return x.s.gateway.Call(ctx, req)
	case x.modern:
		req.Can = ask.Abilities(wire.Member(x.meta, wire.MetaClientCapabilities))
		if (req.Can.Any() || req.Tasks) && x.s.opts.Held != nil {
			return x.s.opts.Held.Begin(ctx, req, run)
		}
	case x.accept.Stream && x.session.can.Any():
		req.Can = x.session.can
		req.Ask = func(ctx context.Context, q sallyport.Inquiry) ([]sallyport.Answer, error) {
			return x.session.asking.Ask(ctx, x.session.version, q.Questions, x.reply.Gone(x.r.Context(), ctx), x.reply.Message)
		}
	}
	return run(ctx, req)
}

// asksNothing is the one method with an operation whose server may not ask.
const asksNothing = "completion/complete"

// readReturns reads what a client says that comes back with answers.
func (x *exchange) readReturns(req *sallyport.Request) *wire.Error {
	if !x.modern || x.msg.Method == asksNothing {
		return nil
	}
	var err error
	if req.State, req.Answers, err = reading.Return(x.msg.Params); err != nil {
		return badParams("%v", err)
	}
	return nil
}

// respond takes a client's response to a question.
func (x *exchange) respond() {
	if x.r.Header.Get(wire.HeaderSessionID) == "" {
		x.fail(http.StatusBadRequest, invalidRequest("the gateway asked nothing, so there is nothing to respond to"))
		return
	}
	if !x.openLegacy() {
		return
	}
	if !x.session.asking.Take(x.msg) {
		x.fail(http.StatusBadRequest, invalidRequest("nothing is asked under this id, or no longer"))
		return
	}
	x.w.WriteHeader(http.StatusAccepted)
}

// needs answers a call whose server needs a client that can be asked more.
func (x *exchange) needs(m *sallyport.MissingAbility) {
	x.fail(http.StatusBadRequest, &wire.Error{
		Code: wire.CodeMissingCapability, Message: "missing client capability: the server needs it for this request",
		Data: append(append([]byte(`{"requiredCapabilities":`), ask.Capabilities(m.Needs)...), '}'),
	})
}
