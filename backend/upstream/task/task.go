// Package task follows a call that its server made a task of, to its end: in the
// words of revision 2025-11-25, whose clients ask for a task, and in those of the
// extension io.modelcontextprotocol/tasks (SEP-2663), whose servers decide.
//
// From the moment that there is a task, nothing that goes wrong means that the call
// was not executed.
package task

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
	"sallyport.dev/sallyport/wire/ask"
)

// Declared is what a stateless request declares that can be answered with a task.
const Declared = `"extensions":{"io.modelcontextprotocol/tasks":{}}`

// maxID bounds the id of a task, which goes into headers.
const maxID = 1024

// The statuses of a task.
const (
	working   = "working"
	asks      = "input_required"
	completed = "completed"
	failed    = "failed"
	cancelled = "cancelled"
)

// A State is a task as its server told it last.
type State struct {
	ID        string
	Status    string
	Message   string
	Poll      time.Duration        // how often it wants to be asked, 0 if it does not say
	Questions []sallyport.Question // of a stateless server that asks
	Result    json.RawMessage      // of a stateless server, when completed
	Error     json.RawMessage      // of a stateless server, when failed
}

// Made reads the answer to a call. ok is false where it is no task.
func Made(result json.RawMessage, legacy bool) (s State, ok bool, err error) {
	if !legacy {
		if kind, _ := wire.String(wire.Member(result, "resultType")); kind != "task" {
			return s, false, nil
		}
		if s, err = read(result, false); s.Status == completed || s.Status == failed {
			s.Status = working // how it ended is told when it is asked for
		}
		return s, true, err
	}
	if result = wire.Member(result, "task"); !wire.IsObject(result) {
		return s, false, nil
	}
	s, err = read(result, true)
	return s, true, err
}

// read reads a task.
func read(raw json.RawMessage, legacy bool) (s State, err error) {
	interval := "pollIntervalMs"
	if legacy {
		interval = "pollInterval"
	}
	var ok bool
	if s.ID, ok = wire.String(wire.Member(raw, "taskId")); !ok || s.ID == "" || len(s.ID) > maxID {
		return s, errors.New("a task has no taskId that can be used")
	}
	s.Status, _ = wire.String(wire.Member(raw, "status"))
	s.Message, _ = wire.String(wire.Member(raw, "statusMessage"))
	if ms, err := strconv.ParseFloat(string(wire.Member(raw, interval)), 64); err == nil && ms > 0 {
		s.Poll = time.Duration(min(ms, float64(longest.Milliseconds()))) * time.Millisecond
	}
	switch s.Status {
	case working, cancelled:
	case asks:
		if !legacy {
			s.Questions, err = ask.Questions(wire.Member(raw, "inputRequests"))
		}
	case completed:
		s.Result = wire.Member(raw, "result")
	case failed:
		s.Error = wire.Member(raw, "error")
	default:
		err = fmt.Errorf("a task has the status %.40q", s.Status)
	}
	return s, err
}

// Params begins the parameters of a request about a task.
func params(id string) []byte { return wire.AppendString([]byte(`{"taskId":`), id) }

// Augment is the member of a call's parameters that asks a server of 2025-11-25 for a
// task that is kept for as long as somebody waits for it, and a while longer.
func Augment(wait time.Duration) []byte {
	return append(strconv.AppendInt([]byte(`,"task":{"ttl":`), (wait+spare).Milliseconds(), 10), '}')
}

// spare is for what stops the call's clock: answers of its client.
const spare = 15 * time.Minute

// Wanted reports whether an error of a call without a task can say that one was wanted.
func Wanted(code int) bool {
	return code == wire.CodeMethodNotFound || code == wire.CodeInvalidRequest
}
