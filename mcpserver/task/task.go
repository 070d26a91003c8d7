// Package task writes the tasks of stateless clients (SEP-2663): a call that waits
// for a human. The task is the ticket; nothing is stored beside it.
package task

import (
	"strconv"
	"strings"
	"time"

	"sallyport.dev/sallyport/wire"
)

// PollEvery is how often a client should ask whether a human has decided.
const PollEvery = 2 * time.Second

// A Task is a ticket, and when the task for it was made.
type Task struct {
	Ticket string
	Made   time.Time
}

// ID names a task.
func (t Task) ID() string { return t.Ticket + "." + strconv.FormatInt(t.Made.UnixMilli(), 36) }

// Read reads an id. The time in it is what the client is told again, and nothing
// else.
func Read(id string) (t Task, ok bool) {
	ticket, at, ok := strings.Cut(id, ".")
	ms, err := strconv.ParseInt(at, 36, 64)
	if !ok || err != nil || ms < 0 || ticket == "" || len(id) > 128 {
		return t, false
	}
	return Task{ticket, time.UnixMilli(ms)}, true
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
