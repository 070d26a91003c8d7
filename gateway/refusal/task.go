package refusal

import (
	"encoding/json"
	"errors"
	"strings"
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

// A kept refusal is what the caller of a call that failed was told.
type kept struct {
	Code    sallyport.Code `json:"code"`
	Message string         `json:"message"`
	Hint    string         `json:"hint,omitempty"`
}

// maxKept bounds what is kept of a message, in bytes.
const maxKept = 4 << 10

// Keep is an error as it is kept for who asks later, nil if there is none to keep.
func Keep(err error) json.RawMessage {
	e, ok := errors.AsType[*sallyport.Error](err)
	if !ok {
		return nil
	}
	k := kept{e.Code, e.Message, e.Hint}
	if len(k.Message) > maxKept {
		k.Message = strings.ToValidUTF8(k.Message[:maxKept], "") + "…"
	}
	raw, err := json.Marshal(k)
	if err != nil {
		return nil
	}
	return raw
}

// Kept is the error that was kept of a call that failed.
func Kept(callID string, raw json.RawMessage) error {
	var k kept
	if err := json.Unmarshal(raw, &k); err != nil || k.Code == "" {
		k = kept{sallyport.Upstream, "the call failed and changed nothing; why is not kept", "make the call again; the record has the reason, by the call's id"}
	}
	return &sallyport.Error{Code: k.Code, Step: sallyport.Execute, CallID: callID, Message: k.Message, Hint: k.Hint}
}
