// Package failure says what went wrong with a call to a server: to its caller, to the
// operator, and about the server.
package failure

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/outcome"
	"sallyport.dev/sallyport/backend/upstream/breaker"
	"sallyport.dev/sallyport/backend/upstream/line"
	"sallyport.dev/sallyport/backend/upstream/link"
	"sallyport.dev/sallyport/backend/upstream/result"
	"sallyport.dev/sallyport/backend/upstream/status"
	"sallyport.dev/sallyport/wire"
	"sallyport.dev/sallyport/wire/ask"
)

// Brief is an error on one line that is safe to show. Addresses are not.
func Brief(err error) string {
	if errors.Is(err, link.ErrNoConnection) {
		return link.ErrNoConnection.Error()
	}
	if e, ok := errors.AsType[*sallyport.Error](err); ok {
		return line.Printable(e.Message, 500)
	}
	return line.Printable(err.Error(), 500)
}

// Detail is an error for the operator.
func Detail(err error) string {
	if errors.Is(err, link.ErrNoConnection) { // wrapped by each who passed it on: the innermost says why
		text := strings.TrimSuffix(err.Error(), fmt.Sprintf(" (%v)", link.ErrGone))
		return line.Printable(text[max(0, strings.LastIndex(text, link.ErrNoConnection.Error())):], 1000)
	}
	if e, ok := errors.AsType[*sallyport.Error](err); ok {
		text := e.Message
		if e.Hint != "" {
			text += " (" + e.Hint + ")"
		}
		return line.Printable(text, 1000)
	}
	return line.Printable(err.Error(), 1000)
}

// Of turns what went wrong with a call that was sent into an error for the caller. most
// is how many bytes a message of the server may have. Errors of the context and of ours pass.
func Of(err error, server string, most int) error {
	if _, ours := errors.AsType[*sallyport.Error](err); ours || outcome.IsContext(err) {
		return err
	}
	e := &sallyport.Error{Code: sallyport.Upstream, Step: sallyport.Execute, Err: err}
	rpc, isRPC := errors.AsType[*wire.Error](err)
	st, isStatus := errors.AsType[*status.Error](err)
	switch {
	case errors.Is(err, link.ErrTooLarge):
		e.Message = fmt.Sprintf("response_too_large: the answer of server %q is larger than %d bytes", server, most)
		e.Hint = "ask for less; the call may have taken effect"
	case isRPC:
		e.Message = fmt.Sprintf("server %q answered with error %d: %s", server, rpc.Code, rpcText(rpc))
		e.Hint = "correct the call, or ask the operator of the server"
		if result.NeverRan(rpc.Code) {
			e.Err = outcome.NotSent(err)
		}
		if rpc.Code == wire.CodeMissingCapability {
			e.Err = outcome.NotSent(&sallyport.MissingAbility{Needs: ask.Abilities(wire.Member(rpc.Data, "requiredCapabilities"))})
		}
	case isStatus:
		e.Message = fmt.Sprintf("server %q answered with HTTP status %d", server, st.Code)
		e.Hint = st.Hint()
		if st.Refused() {
			e.Err = outcome.NotSent(err)
		}
	default:
		e.Message = fmt.Sprintf("server %q: %s", server, Brief(err))
		e.Hint = outcome.MayHaveActed
		if errors.Is(err, sallyport.ErrNotExecuted) {
			e.Code, e.Hint = sallyport.Unavailable, "try again"
		}
	}
	return e
}

func rpcText(e *wire.Error) string {
	if e.Message == "" {
		return "(no message)"
	}
	return line.Printable(e.Message, 1000)
}

// Verdict is what a call's end says of the server: that a tool fails says nothing
// against it, and what was never sent nothing at all.
func Verdict(err error) breaker.Verdict {
	st, isStatus := errors.AsType[*status.Error](err)
	_, isRPC := errors.AsType[*wire.Error](err)
	switch {
	case err == nil, isRPC, errors.Is(err, link.ErrTooLarge), errors.Is(err, link.ErrMalformed):
		return breaker.Served
	case isStatus && (st.Code < 500 || st.RPC || st.Code == http.StatusNotImplemented):
		return breaker.Served
	case outcome.IsContext(err), errors.Is(err, sallyport.ErrNotExecuted):
		return breaker.Untold
	}
	return breaker.Failed
}
