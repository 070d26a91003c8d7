package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
)

// callTool runs tools/call.
func (x *exchange) callTool() {
	req, ask, e := x.toolRequest()
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
	x.reply = newReply(x, ask, done)
	req.Notify, req.Watched = x.reply.notify, x.reply.canProgress()
	if !x.modern {
		req.Gone = x.r.Context().Done()
	}
	var res sallyport.Result
	var err error
	tasks := x.takesTasks()
	if x.reply.canProgress() && !tasks {
		res, err = x.s.gateway.Await(ctx, req, x.s.opts.ApprovalWait, x.reply.wait)
	} else {
		res, err = x.s.gateway.Call(ctx, req)
	}
	x.reply.settle()
	if ctx.Err() != nil && x.reply.abandoned(x.modern) {
		return
	}
	if e, pending := waits(err); pending && tasks {
		x.becomeTask(e)
		return
	}
	x.answer(res, err)
}

// checkParamHeaders verifies Mcp-Param-* headers against the arguments. A tool
// that nobody listed yet is looked up as the caller sees it; where that fails
// the call itself will say why.
func (x *exchange) checkParamHeaders(ctx context.Context, op sallyport.Operation) *wire.Error {
	headers, known := x.s.params.Get(x.profile, op.Target)
	if !known {
		sight, err := x.s.gateway.List(ctx, x.credential, x.profile, "", 0)
		if err != nil {
			return nil
		}
		x.s.params.Learn(x.profile, sight.List)
		headers, _ = x.s.params.Get(x.profile, op.Target)
	}
	for _, p := range headers {
		if err := p.Check(x.r.Header, op.Args); err != nil {
			return mismatch("%v", err)
		}
	}
	return nil
}

func (x *exchange) answer(res sallyport.Result, err error) {
	content, callID := []byte(res.Content), res.CallID
	if err == nil && res.Replay {
		content = markReplay(content, res.Twin)
	}
	if err != nil {
		e := x.safe(err)
		if !late(e) {
			x.refuseAs(e)
			return
		}
		content, callID = refusalResult(e), e.CallID
	}
	out, err := x.appendToolResult(content, callID)
	if err != nil {
		e := x.safe(&sallyport.Error{Code: sallyport.Internal, Step: sallyport.Respond, CallID: callID, Err: err})
		out, _ = x.appendToolResult(refusalResult(e), callID)
	}
	x.reply.finish(http.StatusOK, out, true)
}

// hears says what a caller wants to hear while its call runs.
type hears struct {
	token json.RawMessage // progress token, as it was written; nil if none
	level int             // of log lines, -1 for none
}

// toolRequest reads the parameters of tools/call.
func (x *exchange) toolRequest() (req sallyport.Request, ask hears, e *wire.Error) {
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
		return req, ask, badParams("params.name must be a string: the tool to call")
	}
	ask = x.hearsNothing()
	return req, ask, x.readMeta(&req, &ask)
}

// hearsNothing is what a caller hears that asked for nothing in its request.
func (x *exchange) hearsNothing() hears {
	if x.session != nil {
		return hears{level: int(x.session.logLevel.Load())}
	}
	return hears{level: -1}
}

// readMeta reads what _meta, and headers in its stead, say about a call.
func (x *exchange) readMeta(req *sallyport.Request, ask *hears) *wire.Error {
	if x.meta != nil && !wire.IsObject(x.meta) {
		return badParams("params._meta must be an object")
	}
	var key json.RawMessage
	for name, v := range wire.Members(x.meta) {
		switch string(name) {
		case wire.MetaProgressToken:
			if !validProgressToken(v) {
				return badParams("progressToken must be a string or an integer")
			}
			ask.token = v
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
			req.Trace, _ = wire.String(v)
		case wire.MetaLogLevel:
			if level, _ := wire.String(v); x.modern {
				ask.level = logLevel(level)
			}
		}
	}
	if req.Trace == "" {
		req.Trace = x.r.Header.Get("Traceparent")
	}
	if !validTraceparent(req.Trace) {
		req.Trace = "" // the standard says: ignore it
	}
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

// validProgressToken: a progress token is a string or an integer, like an id.
func validProgressToken(v json.RawMessage) bool {
	return v[0] == '"' || (v[0] == '-' || v[0] >= '0' && v[0] <= '9') && !bytes.ContainsAny(v, ".eE")
}

// validTraceparent: W3C Trace Context, version 00.
func validTraceparent(s string) bool {
	if len(s) != 55 || s[:3] != "00-" || s[35] != '-' || s[52] != '-' {
		return false
	}
	for i := 3; i < len(s); i++ {
		if c := s[i]; i != 35 && i != 52 && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return s[3:35] != strings.Repeat("0", 32) && s[36:52] != strings.Repeat("0", 16)
}

var errNotAResult = errors.New("the result's content is not a JSON object")

// appendToolResult writes the whole response: the content as it is, with the
// call's id in its _meta, and in the stateless revision with what every result
// must have.
func (x *exchange) appendToolResult(content []byte, callID string) ([]byte, error) {
	content = bytes.TrimSpace(content)
	if len(content) < 2 || content[0] != '{' || content[len(content)-1] != '}' {
		return nil, errNotAResult
	}
	if meta := wire.Member(content, "_meta"); meta != nil {
		var err error
		if content, err = x.setMeta(content, meta, callID); err != nil {
			return nil, err
		}
		callID = ""
	}
	b := append(make([]byte, 0, len(content)+320), `{"jsonrpc":"2.0","id":`...)
	b = append(append(b, x.msg.ID...), `,"result":`...)
	b = append(b, content[:len(content)-1]...)
	comma := len(bytes.TrimSpace(content[1:len(content)-1])) > 0
	member := func(raw string) {
		if comma {
			b = append(b, ',')
		}
		comma = true
		b = append(b, raw...)
	}
	if callID != "" {
		member(`"_meta":{"` + wire.MetaCallID + `":`)
		b = wire.AppendString(b, callID)
		if x.modern {
			b = append(append(b, `,"`+wire.MetaServerInfo+`":`...), x.s.info...)
		}
		b = append(b, '}')
	}
	if x.modern && wire.Member(content, "resultType") == nil {
		member(`"resultType":"complete"`)
	}
	return append(b, "}}"...), nil
}

// markReplay says in _meta that an earlier call did the work: one with the same
// key, or the identical one that twin names.
func markReplay(content []byte, twin string) []byte {
	meta := wire.Member(content, "_meta")
	if !wire.IsObject(meta) {
		meta = json.RawMessage("{}")
	}
	meta, err := wire.SetMember(meta, wire.MetaReplay, json.RawMessage("true"))
	if err == nil && twin != "" {
		meta, err = wire.SetMember(meta, wire.MetaTwin, wire.Quote(twin))
	}
	if err != nil {
		return content // not an object: appendToolResult says so
	}
	marked, err := wire.SetMember(content, "_meta", meta)
	if err != nil {
		return content
	}
	return marked
}

// setMeta puts our own members into a _meta that the content has already.
func (x *exchange) setMeta(content, meta json.RawMessage, callID string) (json.RawMessage, error) {
	if !wire.IsObject(meta) {
		meta = json.RawMessage("{}")
	}
	meta, err := wire.SetMember(meta, wire.MetaCallID, wire.Quote(callID))
	if err == nil && x.modern {
		meta, err = wire.SetMember(meta, wire.MetaServerInfo, x.s.info)
	}
	if err != nil {
		return nil, err
	}
	return wire.SetMember(content, "_meta", meta)
}
