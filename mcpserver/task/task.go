// Package task writes the tasks of stateless clients (SEP-2663): calls that wait for a
// human, or take long. The task is the ticket, or the call; nothing is stored beside them.
package task

import (
	"strconv"
	"strings"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
)

// PollEvery is how often a client should ask how a task is.
const PollEvery = 2 * time.Second

// The statuses of a task.
const (
	Working   = "working"
	Asks      = "input_required"
	Completed = "completed"
	Cancelled = "cancelled"
)

// StatusOf is the status of a task whose call came to an error, and a word on it.
func StatusOf(e *sallyport.Error) (status, message string) {
	switch e.Code {
	case sallyport.Pending, sallyport.InFlight:
		return Working, e.Message
	case sallyport.Canceled:
		return Cancelled, e.Message
	}
	return Completed, ""
}

// A Task is what it stands for, and when it was made.
type Task struct {
	Of   string // the id of a ticket, or the sealed name of a call
	Made time.Time
}

// IsTicket reports whether a task waits for a human, or did.
func (t Task) IsTicket() bool { return !strings.HasPrefix(t.Of, "run_") }

// maxID bounds an id, in characters.
const maxID = 2100

// ID names a task.
func (t Task) ID() string { return t.Of + "." + strconv.FormatInt(t.Made.UnixMilli(), 36) }

// Read reads an id. The time in it is what the client is told again, and nothing
// else.
func Read(id string) (t Task, ok bool) {
	of, at, ok := strings.Cut(id, ".")
	ms, err := strconv.ParseInt(at, 36, 64)
	if !ok || err != nil || ms < 0 || of == "" || len(id) > maxID {
		return t, false
	}
	return Task{of, time.UnixMilli(ms)}, true
}

// Append appends the members of a task.
func (t Task) Append(b []byte, status, message string, now time.Time) []byte {
	b = wire.AppendString(append(b, `"taskId":`...), t.ID())
	b = wire.AppendString(append(b, `,"status":`...), status)
	if message != "" {
		b = wire.AppendString(append(b, `,"statusMessage":`...), message)
	}
	b = wire.AppendString(append(b, `,"createdAt":`...), t.Made.UTC().Format(time.RFC3339Nano))
	b = wire.AppendString(append(b, `,"lastUpdatedAt":`...), now.UTC().Format(time.RFC3339Nano))
	return strconv.AppendInt(append(b, `,"ttlMs":null,"pollIntervalMs":`...), PollEvery.Milliseconds(), 10)
}
