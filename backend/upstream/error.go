package upstream

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/outcome"
	"sallyport.dev/sallyport/backend/upstream/line"
	"sallyport.dev/sallyport/backend/upstream/link"
	"sallyport.dev/sallyport/backend/upstream/result"
	"sallyport.dev/sallyport/backend/upstream/status"
	"sallyport.dev/sallyport/wire"
	"sallyport.dev/sallyport/wire/ask"
)

// errProbeKilled: the program ended instead of answering server/discover.
var errProbeKilled = errors.New("it ended when asked server/discover")

// brief is an error on one line that is safe to show. Addresses are not.
func brief(err error) string {
	if errors.Is(err, errNoConnection) {
		return errNoConnection.Error()
	}
	if e, ok := errors.AsType[*sallyport.Error](err); ok {
		return line.Printable(e.Message, 500)
	}
	return line.Printable(err.Error(), 500)
}

// detail is an error for the operator.
func detail(err error) string {
	if errors.Is(err, errNoConnection) { // wrapped by each who passed it on: the innermost says why
		text := strings.TrimSuffix(err.Error(), fmt.Sprintf(" (%v)", link.ErrGone))
		return line.Printable(text[max(0, strings.LastIndex(text, errNoConnection.Error())):], 1000)
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

// silent is that a server did not greet in time. What a program most often waits
// for is the network, in an environment that is not the operator's.
func (s *server) silent(err error) error {
	message := fmt.Sprintf("it has not answered within %s of its start, and is started again", s.o.Connect)
	if s.URL != "" {
		return fmt.Errorf("it has not answered within %s: %w", s.o.Connect, err)
	}
	if words := s.lastWords(3); len(words) > 0 {
		message += "; its last words: " + strings.Join(slices.Compact(words), " | ")
	}
	return fmt.Errorf("%s; a program that downloads first may need longer, or a proxy or registry in its --env: %w", message, err)
}

// fail turns what went wrong with a call that was sent into an error for the
// caller. Errors of the context and of ours pass.
func (s *server) fail(err error) error {
	if _, ours := errors.AsType[*sallyport.Error](err); ours || outcome.IsContext(err) {
		return err
	}
	e := &sallyport.Error{Code: sallyport.Upstream, Step: sallyport.Execute, Err: err}
	rpc, isRPC := errors.AsType[*wire.Error](err)
	st, isStatus := errors.AsType[*status.Error](err)
	switch {
	case errors.Is(err, link.ErrTooLarge):
		e.Message = fmt.Sprintf("response_too_large: the answer of server %q is larger than %d bytes", s.Name, s.o.MaxMessage)
		e.Hint = "ask for less; the call may have taken effect"
	case isRPC:
		e.Message = fmt.Sprintf("server %q answered with error %d: %s", s.Name, rpc.Code, rpcText(rpc))
		e.Hint = "correct the call, or ask the operator of the server"
		if result.NeverRan(rpc.Code) {
			e.Err = outcome.NotSent(err)
		}
		if rpc.Code == wire.CodeMissingCapability {
			e.Err = outcome.NotSent(&sallyport.MissingAbility{Needs: ask.Abilities(wire.Member(rpc.Data, "requiredCapabilities"))})
		}
	case isStatus:
		e.Message = fmt.Sprintf("server %q answered with HTTP status %d", s.Name, st.Code)
		e.Hint = st.Hint()
		if st.Refused() {
			e.Err = outcome.NotSent(err)
		}
	default:
		e.Message = fmt.Sprintf("server %q: %s", s.Name, brief(err))
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
