// Package task writes the tasks of stateless clients (SEP-2663): calls that wait for a
// human, or take long. The task is the ticket, or the call; nothing is stored beside them.
package task

import (
	"crypto/hmac"
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
	default:
		return Completed, ""
	}
}

// A Task is what it stands for, and when it was made.
type Task struct {
	Of   string // the id of a ticket, or the sealed name of a call
	Made time.Time
	Code Code
}

// A Code stands for a text: nobody else can make it, and each gateway makes the same. A
// nil Code stands for none.
type Code func(text string) string

// IsTicket reports whether a task waits for a human, or did.
func (t Task) IsTicket() bool { return !strings.HasPrefix(t.Of, "run_") }

// A State is how a task is.
type State struct {
	Status, Message string
	Ended           time.Time     // zero while it goes on, and where it is not known
	Kept            time.Duration // after its end
}

// maxID bounds an id, in characters.
const maxID = 2100

// ID names a task.
func (t Task) ID() string {
	id := t.Of + "." + strconv.FormatInt(t.Made.UnixMilli(), 36)
	if t.Code != nil {
		id += "." + t.Code("task "+id)
	}
	return id
}

// Read reads an id, which is good only as it was given. The time in it is what the client
// is told again, and nothing else.
func Read(id string, code Code) (t Task, ok bool) {
	of, rest, _ := strings.Cut(id, ".")
	at, _, _ := strings.Cut(rest, ".")
	ms, err := strconv.ParseInt(at, 36, 64)
	if err != nil || ms < 0 || of == "" || len(id) > maxID {
		return t, false
	}
	t = Task{of, time.UnixMilli(ms), code}
	return t, hmac.Equal([]byte(t.ID()), []byte(id))
}

// Append appends the members of a task. It is kept for so long after its end; while it
// goes on nobody knows how long that is, and it is kept whatever comes: no end is told.
func (t Task) Append(b []byte, s State) []byte {
	updated, ttl := s.Ended, "null"
	if s.Ended.IsZero() {
		updated = time.Now()
	} else if s.Kept > 0 {
		ttl = strconv.FormatInt(max(0, s.Ended.Add(s.Kept).Sub(t.Made)).Milliseconds(), 10)
	}
	b = wire.AppendString(append(b, `"taskId":`...), t.ID())
	b = wire.AppendString(append(b, `,"status":`...), s.Status)
	if s.Message != "" {
		b = wire.AppendString(append(b, `,"statusMessage":`...), s.Message)
	}
	b = wire.AppendString(append(b, `,"createdAt":`...), t.Made.UTC().Format(time.RFC3339Nano))
	b = wire.AppendString(append(b, `,"lastUpdatedAt":`...), updated.UTC().Format(time.RFC3339Nano))
	return strconv.AppendInt(append(b, `,"ttlMs":`+ttl+`,"pollIntervalMs":`...), PollEvery.Milliseconds(), 10)
}
