package upstream

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/outcome"
	"sallyport.dev/sallyport/backend/upstream/line"
	"sallyport.dev/sallyport/wire"
)

var (
	// errGone: the connection is over.
	errGone = errors.New("the connection is over")
	// errProbeKilled: the program ended instead of answering server/discover.
	errProbeKilled = errors.New("it ended when asked server/discover")
	// errTooLarge: an answer beyond Options.MaxMessage.
	errTooLarge = errors.New("response_too_large")
	// errMalformed: an answer that is not what the protocol says.
	errMalformed = errors.New("malformed answer")
)

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
	if op, ok := errors.AsType[*net.OpError](err); ok && errors.Is(err, errNoConnection) {
		return line.Printable(fmt.Sprintf("%v: %v", errNoConnection, op), 1000)
	}
	if e, ok := errors.AsType[*sallyport.Error](err); ok && !errors.Is(err, errNoConnection) {
		text := e.Message
		if e.Hint != "" {
			text += " (" + e.Hint + ")"
		}
		return line.Printable(text, 1000)
	}
	return line.Printable(err.Error(), 1000)
}

// exited is how a program ended, with its last words.
func exited(server string, status error, words []string) error {
	how := "status 0"
	if status != nil {
		how = status.Error()
	}
	message := fmt.Sprintf("upstream_exited: server %q ended: %s", server, line.Printable(how, 200))
	if len(words) > 0 {
		message += "; its last words: " + strings.Join(slices.Compact(words), " | ")
	}
	return &sallyport.Error{
		Code: sallyport.Upstream, Step: sallyport.Execute, Message: message,
		Hint: outcome.MayHaveActed, Err: errGone,
	}
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
	status, isStatus := errors.AsType[*statusError](err)
	switch {
	case errors.Is(err, errTooLarge):
		e.Message = fmt.Sprintf("response_too_large: the answer of server %q is larger than %d bytes", s.Name, s.o.MaxMessage)
		e.Hint = "ask for less; the call may have taken effect"
	case isRPC:
		e.Message = fmt.Sprintf("server %q answered with error %d: %s", s.Name, rpc.Code, rpcText(rpc))
		e.Hint = "correct the call, or ask the operator of the server"
		if neverRan(rpc.Code) {
			e.Err = outcome.NotSent(err)
		}
	case isStatus:
		e.Message = fmt.Sprintf("server %q answered with HTTP status %d", s.Name, status.code)
		e.Hint = status.hint()
		if status.refused() {
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

// neverRan: codes with which a peer says that it did not even look at the
// method. Invalid params is not one: a tool may answer so half-way.
func neverRan(code int) bool {
	switch code {
	case wire.CodeParse, wire.CodeInvalidRequest, wire.CodeMethodNotFound,
		wire.CodeHeaderMismatch, wire.CodeMissingCapability, wire.CodeUnsupportedVersion:
		return true
	}
	return false
}
