// Package outcome tells callers what became of a call to a server: above all,
// whether it certainly had no effect, which errors say that wrap
// sallyport.ErrNotExecuted.
package outcome

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sallyport.dev/sallyport"
)

// MayHaveActed is the hint for a call that was sent and not answered.
const MayHaveActed = "the call may have taken effect; look before you call again"

// notSentError is an error of a call that certainly had no effect.
type notSentError struct{ err error }

func (e notSentError) Error() string   { return e.err.Error() }
func (e notSentError) Unwrap() []error { return []error{e.err, sallyport.ErrNotExecuted} }

// NotSent is err of a call that certainly had no effect.
func NotSent(err error) error { return notSentError{err} }

// Unavailable is for calls that were never sent.
func Unavailable(err error, message, hint string) error {
	return &sallyport.Error{Code: sallyport.Unavailable, Step: sallyport.Execute, Message: message, Hint: hint, Err: NotSent(err)}
}

// Closed is for calls to a backend that is closed.
func Closed() error {
	return Unavailable(errors.New("the backend is closed"), "the gateway is shutting down", "")
}

// CutOff is for calls that a breaker keeps away from a server until wait is over; why is
// what became of those before.
func CutOff(server string, wait time.Duration, why string) *sallyport.Error {
	return &sallyport.Error{
		Code: sallyport.Unavailable, Step: sallyport.Execute, Err: sallyport.ErrNotExecuted, RetryAfter: wait,
		Message: fmt.Sprintf("server %q gets no calls for now (circuit open, next try in %v), for several in a row %s", server, wait.Round(time.Second/10), why),
		Hint:    "try after retry_after: one call is let through then, to see whether the server is well again",
	}
}

// Gone is for calls to a server that nobody knows any more.
func Gone(server string) error {
	return &sallyport.Error{
		Code: sallyport.Unavailable, Step: sallyport.Execute,
		Message: fmt.Sprintf("server %.80q is not there any more", server),
		Hint:    "list the tools again", Err: sallyport.ErrNotExecuted,
	}
}

// Changed is for calls that were decided about another server than the one that
// has the name now.
func Changed(server string) error {
	return &sallyport.Error{
		Code: sallyport.Conflict, Step: sallyport.Execute,
		Message: fmt.Sprintf("server %q was changed after this call was decided", server),
		Hint:    "call again", Err: sallyport.ErrNotExecuted,
	}
}

// Late is for calls that were not answered within their limit.
func Late(server string, limit time.Duration, err error) error {
	return &sallyport.Error{
		Code: sallyport.Timeout, Step: sallyport.Execute, Err: err,
		Message: fmt.Sprintf("server %q did not answer within %v", server, limit),
		Hint:    MayHaveActed,
	}
}

// Canceled is why the caller's ctx ended, of a call that failed with err because
// of it.
func Canceled(ctx context.Context, err error) error {
	if errors.Is(err, sallyport.ErrNotExecuted) {
		return NotSent(ctx.Err())
	}
	return ctx.Err()
}

// IsContext tells whether an error says that a context ended.
func IsContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
