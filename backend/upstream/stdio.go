package upstream

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/outcome"
	"sallyport.dev/sallyport/backend/upstream/line"
	"sallyport.dev/sallyport/wire"
)

// A request is one JSON-RPC request on its way out.
type request struct {
	id     int64 // also the progress token
	method string
	name   string // of the tool, for HTTP headers
	params json.RawMessage
	header map[string]string // besides the usual ones; HTTP only
	notify func(sallyport.Notice)
	quiet  bool // giving up is not told to the peer
}

func (r request) rawID() json.RawMessage { return strconv.AppendInt(nil, r.id, 10) }

// A link carries messages to one server and back.
type link interface {
	// exchange sends a request and waits for the answer, a result or an error
	// object. Errors that wrap ErrNotExecuted mean that it never got out.
	exchange(ctx context.Context, r request) (wire.Message, error)
	// inform sends a notification.
	inform(ctx context.Context, method string, params json.RawMessage) error
	// done is closed when nothing more can be exchanged; failure then says why.
	done() <-chan struct{}
	failure() error
	close(grace time.Duration)
}

// pipeLink speaks to a program over its standard input and output.
type pipeLink struct {
	s    *server
	proc Process
	out  chan *parcel
	over chan struct{}
	err  error // set before over is closed
	read int64 // bytes of input that the program may have read; set before over is closed

	mu      sync.Mutex // guards what follows
	waiting map[int64]*waiter
	written int64 // bytes of input, those on their way out too
}

var _ link = (*pipeLink)(nil)

// parcel is one line on its way to the program.
type parcel struct {
	line []byte

	mu      sync.Mutex
	begun   bool  // the writer has it: it may be out
	dropped bool  // the sender gave up first
	start   int64 // offset of the line in the input, if begun
}

// take is for the writer; drop for the sender. Only one of them succeeds.
func (p *parcel) take(start int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun, p.start = !p.dropped, start
	return p.begun
}

// missed reports whether a program that read so many bytes saw nothing of it.
func (p *parcel) missed(read int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.begun && p.start >= read
}

// putBack is for a writer that got nothing out.
func (p *parcel) putBack() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun = false
}

func (p *parcel) drop() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropped = !p.begun
	return p.dropped
}

// waiter is one call that waits for its answer.
type waiter struct {
	reply  chan answer           // holds one
	events chan sallyport.Notice // progress; what does not fit is dropped
}

type answer struct {
	msg wire.Message
	err error
}

func newPipeLink(s *server, p Process) *pipeLink {
	l := &pipeLink{s: s, proc: p, out: make(chan *parcel, 64), over: make(chan struct{}), waiting: map[int64]*waiter{}}
	said := make(chan struct{})
	go l.listen(said)
	go l.write()
	go l.hear(said)
	return l
}

func (l *pipeLink) done() <-chan struct{} { return l.over }

func (l *pipeLink) failure() error {
	select {
	case <-l.over:
		return l.err
	default:
		return errGone
	}
}

func (l *pipeLink) close(grace time.Duration) { _ = l.proc.Stop(grace) }

// listen keeps what the program says on its standard error.
func (l *pipeLink) listen(said chan<- struct{}) {
	defer close(said)
	r := bufio.NewReaderSize(l.proc.Stderr(), 4<<10)
	for {
		text, err := r.ReadSlice('\n')
		if len(text) > 0 {
			l.s.note(strings.TrimSuffix(string(text), "\n"))
		}
		for errors.Is(err, bufio.ErrBufferFull) { // the rest of a very long line
			_, err = r.ReadSlice('\n')
		}
		if err != nil {
			return
		}
	}
}

// write owns the program's standard input.
func (l *pipeLink) write() {
	for {
		select {
		case <-l.over:
			return
		case p := <-l.out:
			l.mu.Lock()
			taken := p.take(l.written)
			if taken { // counted before it is out: what was read is never understated
				l.written += int64(len(p.line))
			}
			l.mu.Unlock()
			if !taken {
				continue
			}
			if n, err := l.proc.Stdin().Write(p.line); err != nil {
				if n == 0 {
					p.putBack()
				}
				_ = l.proc.Stop(l.s.o.Grace) // it reads no more
				return
			}
		}
	}
}

// hear owns the program's standard output. When that ends, so does the link.
func (l *pipeLink) hear(said <-chan struct{}) {
	lines := line.NewReader(l.proc.Stdout(), l.s.o.MaxMessage)
	var err error
	for err == nil {
		var text []byte
		var id json.RawMessage
		var tooLarge bool
		text, id, tooLarge, err = lines.Next()
		switch {
		case tooLarge:
			l.deliver(id, answer{err: errTooLarge})
		case err == nil && len(text) > 0:
			l.receive(text)
		}
	}
	if errors.Is(err, line.ErrEndless) {
		l.s.note("(sallyport: stopped, for it wrote a line without end)")
		_ = l.proc.Stop(l.s.o.Grace)
	}
	l.end(said)
}

// end finds out how the program ended and closes the link.
func (l *pipeLink) end(said <-chan struct{}) {
	ended := make(chan error, 1)
	go func() { ended <- l.proc.Wait() }()
	var status error
	select {
	case status = <-ended:
	case <-time.After(l.s.o.Grace): // it closed its output and lives on
		_ = l.proc.Stop(l.s.o.Grace)
		status = <-ended
	}
	select {
	case <-said:
	case <-time.After(200 * time.Millisecond):
	}
	l.err = exited(l.s.Name, status, l.s.lastWords(3))
	l.read = math.MaxInt64
	if u, ok := l.proc.(unreader); ok {
		if left := u.Unread(); left >= 0 {
			l.mu.Lock()
			l.read = l.written - int64(left)
			l.mu.Unlock()
		}
	}
	close(l.over)
}

// receive takes one message in.
func (l *pipeLink) receive(text []byte) {
	m, err := wire.ParseMessage(text)
	switch {
	case err != nil:
		// Not strict JSON, perhaps; if it can be told whose answer it was to be,
		// that call need not wait.
		id := m.ID
		if id == nil {
			id = wire.Member(text, "id")
		}
		if !l.deliver(id, answer{err: fmt.Errorf("%w: %w", errMalformed, err)}) {
			l.s.o.Log.Debug("upstream wrote something else than a message", "server", l.s.Name, "error", err)
		}
	case m.IsResponse():
		l.deliver(m.ID, answer{msg: m})
	case m.IsRequest():
		l.post(&parcel{line: answerPeer(m)})
	default:
		l.notice(m)
	}
}

// answerPeer answers a request of the server: ping is understood, nothing else.
func answerPeer(m wire.Message) []byte {
	reply := wire.Message{ID: m.ID, Result: json.RawMessage("{}")}
	if m.Method != "ping" {
		reply = wire.Message{ID: m.ID, Error: &wire.Error{Code: wire.CodeMethodNotFound, Message: "method not found: this client answers ping only"}}
	}
	return reply.AppendLine(nil)
}

// post hands a line to the writer if there is room, and forgets it otherwise.
func (l *pipeLink) post(p *parcel) {
	select {
	case l.out <- p:
	default:
	}
}

func (l *pipeLink) waiter(id json.RawMessage) *waiter {
	n, err := strconv.ParseInt(string(id), 10, 64)
	if err != nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting[n]
}

func (l *pipeLink) deliver(id json.RawMessage, a answer) bool {
	w := l.waiter(id)
	if w == nil {
		return false
	}
	select {
	case w.reply <- a:
	default: // answered twice: the first one counts
	}
	return true
}

// notice routes a notification. Progress goes to the call that it names. Other
// messages name no call, and this program works for many callers: they go
// to nobody.
func (l *pipeLink) notice(m wire.Message) {
	switch m.Method {
	case "notifications/progress":
		if w := l.waiter(wire.Member(m.Params, "progressToken")); w != nil {
			select {
			case w.events <- sallyport.Notice{Method: m.Method, Params: m.Params}:
			default:
			}
		}
	default:
		l.s.heard(m)
	}
}

func (l *pipeLink) exchange(ctx context.Context, r request) (wire.Message, error) {
	w := &waiter{reply: make(chan answer, 1), events: make(chan sallyport.Notice, 64)}
	l.mu.Lock()
	l.waiting[r.id] = w
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.waiting, r.id)
		l.mu.Unlock()
	}()
	msg := wire.Message{ID: r.rawID(), Method: r.method, Params: r.params}
	p := &parcel{line: msg.AppendLine(nil)}
	select {
	case <-l.over:
		return wire.Message{}, outcome.NotSent(l.err)
	case <-ctx.Done():
		return wire.Message{}, outcome.NotSent(ctx.Err())
	case l.out <- p:
	}
	for {
		select {
		case a := <-w.reply:
			drain(w, r.notify)
			return a.msg, a.err
		case n := <-w.events:
			r.notify(n)
		case <-ctx.Done():
			return wire.Message{}, l.abandon(p, r, ctx.Err())
		case <-l.over:
			return l.last(w, p, r)
		}
	}
}

// drain hands over the progress that came before the answer.
func drain(w *waiter, notify func(sallyport.Notice)) {
	for {
		select {
		case n := <-w.events:
			notify(n)
		default:
			return
		}
	}
}

// last looks for an answer that came just before the end.
func (l *pipeLink) last(w *waiter, p *parcel, r request) (wire.Message, error) {
	select {
	case a := <-w.reply:
		drain(w, r.notify)
		return a.msg, a.err
	default:
	}
	if p.drop() || p.missed(l.read) {
		return wire.Message{}, outcome.NotSent(l.err)
	}
	return wire.Message{}, l.err
}

// abandon gives a call up: unsent if it is still here, else told to stop.
func (l *pipeLink) abandon(p *parcel, r request, why error) error {
	if p.drop() {
		return outcome.NotSent(why)
	}
	if !r.quiet {
		params := fmt.Appendf(nil, `{"requestId":%d,"reason":"the caller gave up"}`, r.id)
		m := wire.Message{Method: "notifications/cancelled", Params: params}
		l.post(&parcel{line: m.AppendLine(nil)})
	}
	return why
}

func (l *pipeLink) inform(ctx context.Context, method string, params json.RawMessage) error {
	m := wire.Message{Method: method, Params: params}
	select {
	case l.out <- &parcel{line: m.AppendLine(nil)}:
		return nil
	case <-l.over:
		return l.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
