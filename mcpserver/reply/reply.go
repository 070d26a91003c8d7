// Package reply writes the answer to one call: plain JSON for as long as it can be,
// and an event stream when there is something to say before the end, or when the end
// takes long.
package reply

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/mcpserver/progress"
	"sallyport.dev/sallyport/mcpserver/stream"
	"sallyport.dev/sallyport/pause"
	"sallyport.dev/sallyport/wire"
)

// Hears says what a caller wants to hear while its call runs.
type Hears struct {
	Token json.RawMessage // progress token, as it was written; nil if none
	Level int             // of log lines, -1 for none
}

// Options say to whom a reply goes.
type Options struct {
	W            http.ResponseWriter
	Hears        Hears
	JSON, Stream bool          // what the client reads
	Tails        *stream.Tails // keeps what a client with a session may come back for; nil for stateless ones
	Version      string        // of the session's protocol, "" if stateless
	Cancel       func()        // ends the call, for a stateless client that can't be reached

	StreamAfter, KeepAlive, WriteTimeout time.Duration
}

// A Reply is one answer.
type Reply struct {
	o Options

	mu        sync.Mutex
	streaming bool
	settled   bool // the call has ended: only finish may write
	closed    bool
	broken    bool // a write failed: nobody listens
	timer     *time.Timer
	meter     progress.Meter
	waiting   string // said again at each sign of life, "" if not waiting
	buf       []byte
	tail      *stream.Tail // nil where nothing is kept
}

// New begins a reply.
func New(o Options) *Reply {
	p := &Reply{o: o}
	if o.Stream {
		p.mu.Lock()
		p.timer = time.AfterFunc(o.StreamAfter, p.tick)
		p.mu.Unlock()
	}
	return p
}

// Settle says that the call has ended. From here on the answer's headers are
// the request's own goroutine's to change.
func (p *Reply) Settle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settled = true
}

// CanProgress reports whether the caller can be told of progress.
func (p *Reply) CanProgress() bool { return p.o.Stream && p.o.Hears.Token != nil }

// tick gives a sign of life, so that nobody between the two ends gives up.
func (p *Reply) tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.settled || p.closed {
		return
	}
	if p.waiting != "" {
		p.progress(p.waiting)
	} else {
		p.send(wire.AppendComment(p.buf[:0], "alive"))
	}
	p.timer.Reset(p.o.KeepAlive)
}

// Wait tells the caller that its call waits for a human.
func (p *Reply) Wait(e *sallyport.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.settled || p.closed {
		return
	}
	p.waiting = "waiting: " + e.Message
	if e.Ticket != "" {
		p.waiting = "waiting for approval of ticket " + e.Ticket
	}
	p.progress(p.waiting)
}

// Message writes a message to the client's stream, and reports whether it got off.
func (p *Reply) Message(msg []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.settled || p.closed || !p.o.Stream {
		return false
	}
	p.waiting = "" // it runs
	p.event(msg)
	return !p.broken || p.tail != nil
}

// Notify passes a notice of the running call on, if the caller asked for such.
func (p *Reply) Notify(n sallyport.Notice) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.settled || p.closed || !p.o.Stream {
		return
	}
	p.waiting = "" // it runs
	switch n.Method {
	case "notifications/progress":
		p.forwardProgress(n.Params)
	case "notifications/message":
		level, _ := wire.String(wire.Member(n.Params, "level"))
		if rank := wire.LogRank(level); p.o.Hears.Level >= 0 && rank >= p.o.Hears.Level {
			p.notification(n.Method, n.Params)
		}
	case "notifications/elicitation/complete":
		if p.o.Version >= wire.Version2025_11_25 {
			p.notification(n.Method, n.Params)
		}
	}
}

// forwardProgress sends an upstream's progress under the caller's own token.
// A value that does not grow, which the protocol forbids, is raised a little.
// Preconditions: p.mu is held.
func (p *Reply) forwardProgress(params json.RawMessage) {
	if p.o.Hears.Token == nil {
		return
	}
	v := p.meter.Pass(wire.Member(params, "progress"))
	if v == nil {
		return
	}
	params, err := wire.SetMember(params, "progressToken", p.o.Hears.Token)
	if err == nil {
		params, err = wire.SetMember(params, "progress", v)
	}
	if err == nil {
		p.notification("notifications/progress", params)
	}
}

// progress sends a message of our own. Preconditions: p.mu is held.
func (p *Reply) progress(message string) {
	if p.o.Hears.Token == nil {
		return
	}
	v := p.meter.Next()
	if v == nil {
		return
	}
	b := append(append(append([]byte(`{"progressToken":`), p.o.Hears.Token...), `,"progress":`...), v...)
	b = wire.AppendString(append(b, `,"message":`...), message)
	p.notification("notifications/progress", append(b, '}'))
}

// Preconditions: p.mu is held.
func (p *Reply) notification(method string, params json.RawMessage) {
	p.event(wire.AppendNotification(nil, method, params))
}

// event sends a message, under an id where the client may come back for it.
// Preconditions: p.mu is held.
func (p *Reply) event(msg []byte) {
	p.open()
	b := p.buf[:0]
	if p.tail != nil {
		b = p.tail.AppendID(b, p.tail.Put(msg))
	}
	p.send(wire.AppendEvent(b, "message", msg))
}

// open makes a stream of the reply. Preconditions: p.mu is held.
func (p *Reply) open() {
	if p.streaming || !p.o.Stream {
		return
	}
	p.streaming = true
	h := p.o.W.Header()
	h["Content-Type"] = []string{wire.TypeSSE}
	h["X-Accel-Buffering"] = []string{"no"}
	p.o.W.WriteHeader(http.StatusOK)
	if p.o.Tails == nil {
		return
	}
	if p.tail = p.o.Tails.Open(); p.tail != nil && p.o.Version >= wire.Version2025_11_25 {
		p.send(append(p.tail.AppendID(p.buf[:0], 0), "data: \n\n"...)) // who is cut off now can come back
	}
}

// send writes to the stream, and opens it if need be. Preconditions: p.mu is held.
func (p *Reply) send(b []byte) {
	if p.open(); p.broken || !p.o.Stream {
		return
	}
	p.buf = b[:0]
	if !p.put(b) {
		p.broken = true
		if p.o.Version == "" {
			p.o.Cancel()
		}
	}
}

// put writes and flushes within the time for it. net/http lifts the deadline
// after the request.
func (p *Reply) put(b []byte) bool {
	rc := http.NewResponseController(p.o.W)
	_ = rc.SetWriteDeadline(time.Now().Add(p.o.WriteTimeout)) // best effort
	if _, err := p.o.W.Write(b); err != nil {
		return false
	}
	return rc.Flush() == nil
}

// large is what may not fit the socket's buffers: writing it can block.
const large = 64 << 10

// Finish sends the last message, as what the reply has become. ok says that it
// is a result; an error can still have an HTTP status of its own.
func (p *Reply) Finish(status int, msg []byte, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.shut()
	switch {
	case p.streaming || ok && p.o.Stream && (p.o.Hears.Token != nil || !p.o.JSON):
		p.event(msg)
	default:
		h := p.o.W.Header()
		h["Content-Type"] = []string{wire.TypeJSON}
		h["Content-Length"] = []string{strconv.Itoa(len(msg))}
		p.o.W.WriteHeader(status)
		if len(msg) > large {
			p.put(msg)
		} else {
			_, _ = p.o.W.Write(msg)
		}
	}
}

// Abandoned reports whether a cancelled call needs no answer: the stateless
// client is gone, and one that sent notifications/cancelled expects none.
func (p *Reply) Abandoned() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.o.Version == "" || p.streaming {
		p.shut()
		return true
	}
	return false
}

// Close makes sure that nothing is written once the request is over.
func (p *Reply) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut()
	p.tail.End()
}

// Absent is for how long a client that was cut off may stay away from a stream that it
// can come back to.
const Absent = 5 * time.Second

// Gone is closed when nobody listens any more: the request has ended, and its client has
// not come back for the rest. It is of use until the call ends.
func (p *Reply) Gone(request, call context.Context) <-chan struct{} {
	c := make(chan struct{})
	go func() {
		select {
		case <-request.Done():
		case <-call.Done():
			return
		}
		const look = Absent / 20
		for away := time.Duration(0); away < Absent; away += look {
			p.mu.Lock()
			tail := p.tail
			p.mu.Unlock()
			if tail == nil {
				break
			}
			if tail.Heard() {
				away = 0
			}
			if !pause.For(call, look) {
				return
			}
		}
		close(c)
	}()
	return c
}

// Preconditions: p.mu is held.
func (p *Reply) shut() {
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
}
