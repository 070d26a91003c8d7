package mcpserver

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/mcpserver/refusal"
	"sallyport.dev/sallyport/wire"
)

// Error codes of ours, outside of what JSON-RPC and MCP reserve.
const (
	codeUnauthenticated = 401
	codeDenied          = 403
	codeConflict        = 409
	codeTooLarge        = 413
	codeRateLimited     = 429
	codeUnavailable     = 503
)

func invalidRequest(format string, args ...any) *wire.Error {
	return &wire.Error{Code: wire.CodeInvalidRequest, Message: "invalid request: " + fmt.Sprintf(format, args...)}
}

func badParams(format string, args ...any) *wire.Error {
	return &wire.Error{Code: wire.CodeInvalidParams, Message: "invalid params: " + fmt.Sprintf(format, args...)}
}

func mismatch(format string, args ...any) *wire.Error {
	return &wire.Error{Code: wire.CodeHeaderMismatch, Message: "header mismatch: " + fmt.Sprintf(format, args...)}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// early maps what can go wrong before validate to JSON-RPC and HTTP. Anything
// else there is internal.
var early = map[sallyport.Code]struct{ rpc, http int }{
	sallyport.Unauthenticated: {codeUnauthenticated, http.StatusUnauthorized},
	sallyport.Denied:          {codeDenied, http.StatusForbidden},
	sallyport.RateLimited:     {codeRateLimited, http.StatusTooManyRequests},
	sallyport.TooLarge:        {codeTooLarge, http.StatusRequestEntityTooLarge},
	sallyport.Unavailable:     {codeUnavailable, http.StatusServiceUnavailable},
	sallyport.NotFound:        {wire.CodeInvalidParams, http.StatusOK},
	sallyport.Invalid:         {wire.CodeInvalidParams, http.StatusOK},
	sallyport.Quarantined:     {wire.CodeInvalidParams, http.StatusOK},
	sallyport.Conflict:        {codeConflict, http.StatusOK},
	sallyport.Timeout:         {codeUnavailable, http.StatusServiceUnavailable},
	sallyport.Canceled:        {codeUnavailable, http.StatusServiceUnavailable},
}

var validateAt = slices.Index(sallyport.Steps, sallyport.Validate)

// late reports whether a refusal came at validate or after it: the agent asked
// properly and should read why not.
func late(e *sallyport.Error) bool { return slices.Index(sallyport.Steps, e.Step) >= validateAt }

// safe returns err as what the caller may see. Anything that is not ours, or
// is Internal, is logged and shown as an id only.
func (x *exchange) safe(err error) *sallyport.Error {
	e, ours := errors.AsType[*sallyport.Error](err)
	if ours && e.Code != sallyport.Internal {
		return e
	}
	id, step := newLogID(), sallyport.Receive
	shown := &sallyport.Error{Code: sallyport.Internal}
	if ours {
		step, shown.CallID, shown.Ticket = e.Step, e.CallID, e.Ticket
	}
	shown.Step = step
	shown.Message = "internal error " + id
	shown.Hint = "the operator finds the reason in the log under this id"
	x.s.opts.Log.Error("internal error", "id", id, "call", shown.CallID, "step", step, "method", x.msg.Method, "error", err)
	return shown
}

// refuse answers with an error of the gateway's as a JSON-RPC error.
func (x *exchange) refuse(err error) { x.refuseAs(x.safe(err)) }

// refuseAs does so with an error that is safe to show.
func (x *exchange) refuseAs(e *sallyport.Error) {
	status, rpc := http.StatusInternalServerError, wire.CodeInternal
	if to, ok := early[e.Code]; ok {
		status, rpc = to.http, to.rpc
	}
	switch status {
	case http.StatusUnauthorized:
		if x.flooded() {
			return
		}
		x.challenge("invalid_token")
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if e.RetryAfter > 0 {
			x.w.Header().Set("Retry-After", itoa(refusal.Seconds(e.RetryAfter)))
		}
	}
	x.failWith(status, rpc, e)
}

// failWith answers with a JSON-RPC error that tells what the refusal was.
func (x *exchange) failWith(status, rpc int, e *sallyport.Error) {
	data := refusal.Append([]byte{'{'}, e, false)
	if e.CallID != "" {
		data = wire.AppendString(append(data, `,"call_id":`...), e.CallID)
	}
	if uri, ok := wire.String(wire.Member(x.msg.Params, "uri")); ok && e.Code == sallyport.NotFound {
		data = wire.AppendString(append(data, `,"uri":`...), uri) // where the protocol wants it
	}
	x.fail(status, &wire.Error{Code: rpc, Message: e.Message, Data: append(data, '}')})
}
