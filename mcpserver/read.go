package mcpserver

import (
	"errors"
	"net/http"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/mcpserver/reading"
	"sallyport.dev/sallyport/wire"
	"sallyport.dev/sallyport/wire/ask"
)

func (x *exchange) readResource() { x.read(sallyport.ReadResource) }
func (x *exchange) getPrompt()    { x.read(sallyport.GetPrompt) }
func (x *exchange) complete()     { x.read(sallyport.Complete) }

// read runs a method that reads. It has no key: reading again does no harm.
func (x *exchange) read(kind sallyport.Kind) {
	op, err := reading.Operation(kind, x.msg.Params)
	if err != nil {
		x.fail(http.StatusOK, badParams("%v", err))
		return
	}
	req, hears := sallyport.Request{Credential: x.credential, Profile: x.profile, Door: "mcp", Size: x.size, Operation: op}, x.hearsNothing()
	if e := x.readMeta(&req, &hears); e != nil {
		x.fail(http.StatusOK, e)
		return
	}
	if e := x.readReturns(&req); e != nil {
		x.fail(http.StatusOK, e)
		return
	}
	req.Key = ""
	ctx, done, ok := x.callContext()
	if !ok {
		return
	}
	defer done()
	x.reply = x.newReply(hears, done)
	req.Notify, req.Watched = x.reply.Notify, x.reply.CanProgress()
	res, err := x.converse(ctx, req, x.s.gateway.Call)
	x.reply.Settle()
	if ctx.Err() != nil && x.reply.Abandoned() {
		return
	}
	var content []byte
	switch {
	case len(res.Questions) > 0:
		content = ask.Result(res.Questions, res.State)
	case err == nil && res.IsError:
		err = &sallyport.Error{Code: sallyport.Upstream, Step: sallyport.Sanitise, CallID: res.CallID, Message: "the server's answer cannot be used"}
	case err == nil:
		content, err = reading.Result(op, res.Content)
	}
	if err == nil && x.modern && kind == sallyport.ReadResource && len(res.Questions) == 0 {
		content = append(content[:len(content)-1], `,"ttlMs":0,"cacheScope":"private"}`...)
	}
	if err == nil {
		content, err = x.appendToolResult(content, res.CallID)
	}
	if err != nil {
		x.refuseReading(kind, err)
		return
	}
	x.finish(http.StatusOK, content, true)
}

// codeNoResource is what a resource that is not there was in earlier revisions.
const codeNoResource = -32002

// refuseReading answers with a JSON-RPC error: a reading has no result that
// could say that it failed.
func (x *exchange) refuseReading(kind sallyport.Kind, err error) {
	if m, ok := errors.AsType[*sallyport.MissingAbility](err); ok && x.modern && m.Needs.Any() {
		x.needs(m)
		return
	}
	e := x.safe(err)
	if e.Code == sallyport.NotFound && kind == sallyport.ReadResource && !x.modern {
		x.failWith(http.StatusOK, codeNoResource, e)
		return
	}
	if !late(e) {
		x.refuseAs(e)
		return
	}
	rpc := wire.CodeInternal
	if to, ok := early[e.Code]; ok {
		rpc = to.rpc
	}
	x.failWith(http.StatusOK, rpc, e)
}
