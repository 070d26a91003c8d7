package sallyport

import (
	"errors"
	"fmt"
	"time"
)

// A Code says what kind of failure it was; doors map it to HTTP, JSON-RPC and
// exit codes.
type Code string

// The codes.
const (
	Unauthenticated Code = "unauthenticated"
	NotFound        Code = "not_found"
	Invalid         Code = "invalid_arguments"
	Denied          Code = "denied"
	Rejected        Code = "rejected"         // a human said no, or nobody decided in time
	Pending         Code = "approval_pending" // Ticket says which
	Conflict        Code = "conflict"         // same key or ticket, other arguments
	InFlight        Code = "in_flight"        // same key, still running
	OutcomeUnknown  Code = "outcome_unknown"  // it may have acted; nobody knows
	RateLimited     Code = "rate_limited"
	TooLarge        Code = "too_large"
	Quarantined     Code = "quarantined"
	Timeout         Code = "timeout"
	Canceled        Code = "canceled"
	Unavailable     Code = "unavailable"
	Upstream        Code = "upstream_error"
	Internal        Code = "internal"

	// AuthorizationRequired: a server wants a human's consent, or more of it; Hint
	// says which command asks for it. It says nothing about what the caller may do here.
	AuthorizationRequired Code = "authorization_required"
)

// Codes are all of them.
var Codes = []Code{Unauthenticated, NotFound, Invalid, Denied, Rejected, Pending, Conflict, InFlight, OutcomeUnknown,
	RateLimited, TooLarge, Quarantined, Timeout, Canceled, Unavailable, Upstream, Internal, AuthorizationRequired}

// ErrNotExecuted is wrapped by a backend's error when the job certainly had no
// effect, so that its key may be used again.
var ErrNotExecuted = errors.New("not executed")

// ErrRevoked is wrapped where a credential is refused whose agent was stopped, rotated
// or removed: what it began is not to go on.
var ErrRevoked = errors.New("the agent was stopped")

// An Error is a failure at one step. Code, Message, Hint, Ticket and RetryAfter
// are safe to show the caller; the wrapped error is for the log only.
type Error struct {
	Code       Code
	Step       Step
	Message    string
	Hint       string
	Ticket     string
	RetryAfter time.Duration
	CallID     string
	Err        error
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s", e.Code, e.Message)
	if e.Step != "" {
		s = string(e.Step) + ": " + s
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// CodeOf reports the code of err; an error that is not ours is Internal.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return Internal
}
