package mcpserver

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/mcpserver/progress"
	"sallyport.dev/sallyport/wire"
)

// A reply is the answer to one call. It stays plain JSON for as long as it can
// and becomes an event stream when there is something to say before the end,
// or when the end takes long.
type reply struct {
	x      *exchange
	ask    hears
	stream bool   // the client reads event streams
	cancel func() // ends the call, for a stateless client that can't be reached

	mu        sync.Mutex
	streaming bool
	settled   bool // the call has ended: only finish may write
	closed    bool
	broken    bool // a write failed: nobody listens
	timer     *time.Timer
	meter     progress.Meter
	waiting   string // said again at each sign of life, "" if not waiting
	buf       []byte
}

func newReply(x *exchange, ask hears, cancel func()) *reply {
	p := &reply{x: x, ask: ask, stream: x.accept.Stream, cancel: cancel}
	if p.stream {
		p.mu.Lock()
		p.timer = time.AfterFunc(x.s.opts.StreamAfter, p.tick)
		p.mu.Unlock()
	}
	return p
}

// settle says that the call has ended. From here on the answer's headers are
// the request's own goroutine's to change.
func (p *reply) settle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settled = true
}

// canProgress reports whether the caller can be told of progress.
func (p *reply) canProgress() bool { return p.stream && p.ask.token != nil }

// tick gives a sign of life, so that nobody between the two ends gives up.
func (p *reply) tick() {
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
	p.timer.Reset(p.x.s.opts.KeepAlive)
}

// wait tells the caller that its call waits for a human.
func (p *reply) wait(e *sallyport.Error) {
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

// message writes a message to the client's stream, and reports whether it got off.
func (p *reply) message(msg []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.settled || p.closed || !p.stream {
		return false
	}
	p.waiting = "" // it runs
	p.send(wire.AppendEvent(p.buf[:0], "message", msg))
	return !p.broken
}

// notify passes a notice of the running call on, if the caller asked for such.
func (p *reply) notify(n sallyport.Notice) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.settled || p.closed || !p.stream {
		return
	}
	p.waiting = "" // it runs
	switch n.Method {
	case "notifications/progress":
		p.forwardProgress(n.Params)
	case "notifications/message":
		level, _ := wire.String(wire.Member(n.Params, "level"))
		if rank := wire.LogRank(level); p.ask.level >= 0 && rank >= p.ask.level {
			p.notification(n.Method, n.Params)
		}
	case "notifications/elicitation/complete":
		if !p.x.modern && p.x.session.version >= wire.Version2025_11_25 {
			p.notification(n.Method, n.Params)
		}
	}
}

// forwardProgress sends an upstream's progress under the caller's own token.
// A value that does not grow, which the protocol forbids, is raised a little.
// Preconditions: p.mu is held.
func (p *reply) forwardProgress(params json.RawMessage) {
	if p.ask.token == nil {
		return
	}
	v := p.meter.Pass(wire.Member(params, "progress"))
	if v == nil {
		return
	}
	params, err := wire.SetMember(params, "progressToken", p.ask.token)
	if err == nil {
		params, err = wire.SetMember(params, "progress", v)
	}
	if err == nil {
		p.notification("notifications/progress", params)
	}
}

// progress sends a message of our own. Preconditions: p.mu is held.
func (p *reply) progress(message string) {
	if p.ask.token == nil {
		return
	}
	v := p.meter.Next()
	if v == nil {
		return
	}
	b := append(append(append([]byte(`{"progressToken":`), p.ask.token...), `,"progress":`...), v...)
	b = wire.AppendString(append(b, `,"message":`...), message)
	p.notification("notifications/progress", append(b, '}'))
}

// Preconditions: p.mu is held.
func (p *reply) notification(method string, params json.RawMessage) {
	p.send(wire.AppendEvent(p.buf[:0], "message", wire.AppendNotification(nil, method, params)))
}

// send writes to the stream, and opens it if need be. Preconditions: p.mu is held.
func (p *reply) send(b []byte) {
	p.buf = b[:0]
	if p.broken || !p.stream {
		return
	}
	if !p.streaming {
		p.streaming = true
		h := p.x.w.Header()
		h["Content-Type"] = []string{wire.TypeSSE}
		h["X-Accel-Buffering"] = []string{"no"}
		p.x.w.WriteHeader(http.StatusOK)
	}
	if !p.put(b) {
		p.broken = true
		if p.x.modern {
			p.cancel()
		}
	}
}

// put writes and flushes within the time for it. net/http lifts the deadline
// after the request.
func (p *reply) put(b []byte) bool {
	rc := http.NewResponseController(p.x.w)
	_ = rc.SetWriteDeadline(time.Now().Add(p.x.s.opts.WriteTimeout)) // best effort
	if _, err := p.x.w.Write(b); err != nil {
		return false
	}
	return rc.Flush() == nil
}

// largeReply is what may not fit the socket's buffers: writing it can block.
const largeReply = 64 << 10

// finish sends the last message, as what the reply has become. ok says that it
// is a result; an error can still have an HTTP status of its own.
func (p *reply) finish(status int, msg []byte, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.shut()
	switch {
	case p.streaming || ok && p.stream && (p.ask.token != nil || !p.x.accept.JSON):
		p.send(wire.AppendEvent(p.buf[:0], "message", msg))
	case len(msg) > largeReply:
		h := p.x.w.Header()
		h["Content-Type"] = jsonContentType
		h["Content-Length"] = []string{itoa(int64(len(msg)))}
		p.x.w.WriteHeader(status)
		p.put(msg)
	default:
		writeJSON(p.x.w, status, msg)
	}
}

// abandoned reports whether a cancelled call needs no answer: the stateless
// client is gone, and one that sent notifications/cancelled expects none.
func (p *reply) abandoned(modern bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if modern || p.streaming {
		p.shut()
		return true
	}
	return false
}

// close makes sure that nothing is written once the request is over.
func (p *reply) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut()
}

// Preconditions: p.mu is held.
func (p *reply) shut() {
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
}
