package refusal

import (
	"time"

	"sallyport.dev/sallyport"
)

func key(r *sallyport.Reservation, code sallyport.Code, message, hint string, retry time.Duration) error {
	return &sallyport.Error{Code: code, Step: sallyport.Reserve, Message: message, Hint: hint, Ticket: r.Ticket, RetryAfter: retry}
}

// OtherCall says that a key stands for other arguments.
func OtherCall(r *sallyport.Reservation) error {
	return key(r, sallyport.Conflict, "this idempotency key was used with other arguments", "use a new key for a new call", 0)
}

// Unapproved says that the result of a call that no human approved is not shown now that one must.
func Unapproved(r *sallyport.Reservation) error {
	return key(r, sallyport.Denied, "by now a human must approve this call, and the earlier one with this key ran without that, so its result is not shown again",
		"make a new call with a new key, if it is still wanted", 0)
}

// StillRuns says that the call of a key goes on.
func StillRuns(r *sallyport.Reservation) error {
	return key(r, sallyport.InFlight, "a call with this key is still running", "wait and call again with the same key", time.Second)
}

// MayHaveActed says that nobody knows what became of the call of a key.
func MayHaveActed(r *sallyport.Reservation) error {
	return key(r, sallyport.OutcomeUnknown, "an earlier call with this key may have acted: its outcome is unknown",
		"an operator must find out and say so with `sallyport reservations resolve`", 0)
}
