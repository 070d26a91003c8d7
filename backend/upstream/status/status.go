// Package status says what HTTP statuses of servers tell about a request: whether it
// went any further, whether it is worth another try, what there is to do.
package status

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"

	"sallyport.dev/sallyport/wire"
)

// An Error is an HTTP status instead of an answer.
type Error struct {
	Code int
	Text string // from the body, for the log
	RPC  bool   // the body was an error of the protocol
}

func (e *Error) Error() string { return fmt.Sprintf("HTTP status %d: %s", e.Code, e.Text) }

// Refused reports whether the status tells that the request went no further.
func (e *Error) Refused() bool {
	switch e.Code {
	case 301, 302, 303, 307, 308, 401, 404, 405, 406, 411, 413, 415, 421:
		return true
	}
	return false
}

// Passing reports whether the status says nothing about what there will be later: it
// is a proxy's, or that of a server which is busy or broken.
func (e *Error) Passing() bool {
	switch e.Code {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return e.Code/100 == 5
}

// Passes reports whether what failed with err may come right by itself: there was no
// status, or a passing one.
func Passes(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return !ok || e.Passing()
}

// Credential reports whether the server wants another credential.
func (e *Error) Credential() bool { return e.Code == 401 || e.Code == 403 }

// forgets finds words of servers that answer a request with an error of the protocol
// because they do not know its session.
var forgets = regexp.MustCompile(`(?i)\b(session\b.*\b(not found|unknown|invalid|expired|terminated|not exist)|(no|unknown|invalid|expired|missing)( valid)? session)\b`)

// Forgets reports whether an error of the protocol says that the session is not known.
func Forgets(e *wire.Error) bool {
	return e != nil && e.Code <= -32000 && e.Code >= -32600 && forgets.MatchString(e.Message)
}

// Hint says what to do.
func (e *Error) Hint() string {
	switch {
	case e.Credential():
		return "the operator must give the gateway a valid credential for this server: with `servers add`, --header, or --oauth gateway where it wants a login"
	case e.Code >= 300 && e.Code < 400:
		return "redirects to another place are not followed: the operator must configure the final url"
	case e.Code == 404 || e.Code == 405:
		return "the operator must check the server's url"
	}
	return "try later; the call may have taken effect"
}
