package refusal

import (
	"errors"
	"time"

	"sallyport.dev/sallyport"
)

// NoTask is what is said of a task that never was, is no longer kept, or is somebody
// else's: the same.
func NoTask() error {
	return &sallyport.Error{
		Code: sallyport.NotFound, Step: sallyport.Resolve, Message: "unknown task, or one that is no longer kept",
		Hint: "use the task's id as the agent, and for the user, that it was given to, at the same endpoint",
	}
}

// Of says which call an error is about; nil stays nil.
func Of(callID string, err error) error {
	if e, ok := errors.AsType[*sallyport.Error](err); ok {
		c := *e
		c.CallID = callID
		return &c
	}
	return err
}

// Running says that a call goes on.
func Running(callID string) error {
	return &sallyport.Error{
		Code: sallyport.InFlight, Step: sallyport.Execute, CallID: callID, RetryAfter: time.Second,
		Message: "the call is running", Hint: "ask for the task again",
	}
}

// Unsure says that nobody knows what became of a call.
func Unsure(callID string) error {
	return &sallyport.Error{
		Code: sallyport.OutcomeUnknown, Step: sallyport.Execute, CallID: callID,
		Message: "what ran the call has ended, so nobody knows whether the call acted; it is not run again",
		Hint:    "do not repeat it blindly: check the effect; an operator settles it with `sallyport reservations resolve`",
	}
}

// Forgotten says that a call failed, and that why is not known any more.
func Forgotten(callID string) error {
	return &sallyport.Error{
		Code: sallyport.Upstream, Step: sallyport.Execute, CallID: callID,
		Message: "the call failed and changed nothing; the gateway that ran it does not tell any more why", Hint: "make the call again; the record has the reason, by the call's id",
	}
}
