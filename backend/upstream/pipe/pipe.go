// Package pipe speaks to one program over its standard input and output, a message
// on each line. It tells which calls a program that died certainly had not seen.
package pipe

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/outcome"
	"sallyport.dev/sallyport/backend/upstream/asked"
	"sallyport.dev/sallyport/backend/upstream/line"
	"sallyport.dev/sallyport/backend/upstream/link"
	"sallyport.dev/sallyport/limit/bulk"
	"sallyport.dev/sallyport/wire"
)

// Options say for whom a pipe works. All fields are required.
type Options struct {
	Server string               // its name, in errors
	Most   int                  // bytes of one message
	Grace  time.Duration        // for the program to end
	Room   *asked.Room          // the calls that are under way
	Note   func(line string)    // takes each line of standard error
	Words  func(n int) []string // the last of those lines
	Heard  func(m wire.Message) // takes what the server says about itself
	Log    *slog.Logger
}

// A Pipe is a link.Link to one program.
type Pipe struct {
	o    Options
	proc Process
	out  chan *parcel
	pen  chan struct{} // holds one: who writes to the program, or its end
	over chan struct{}
	err  error        // set before over is closed
	read int64        // bytes of input that the program may have read; set before over is closed
	said atomic.Int64 // when it last said something

	mu      sync.Mutex // guards what follows
	waiting map[int64]*waiter
	written int64 // bytes of input, those on their way out too
}

var _ link.Link = (*Pipe)(nil)

// waiter is one call that waits for its answer.
type waiter struct {
	aside  bool                  // it keeps the program at nothing: a question whether it lives, or a stream
	reply  chan answer           // holds one
	events chan sallyport.Notice // progress; what does not fit is dropped
	room   func(bytes int)       // waits until there is room for the answer, or nobody wants it
}

type answer struct {
	msg  wire.Message
	size int // in bytes
	err  error
}

// New begins to speak to a program. Its end is the pipe's.
func New(p Process, o Options) *Pipe {
	l := &Pipe{o: o, proc: p, out: make(chan *parcel, 64), pen: make(chan struct{}, 1), over: make(chan struct{}), waiting: map[int64]*waiter{}}
	said := make(chan struct{})
	go l.listen(said)
	go l.write()
	go l.hear(said)
	return l
}

// Done is closed when the program has ended.
func (l *Pipe) Done() <-chan struct{} { return l.over }

// Err is how the program ended.
func (l *Pipe) Err() error {
	select {
	case <-l.over:
		return l.err
	default:
		return link.ErrGone
	}
}

// Close stops the program.
func (l *Pipe) Close(grace time.Duration) { _ = l.proc.Stop(grace) }

// Silence is how long the program has said nothing.
func (l *Pipe) Silence() time.Duration { return time.Since(time.Unix(0, l.said.Load())) }

// Works tells whether a call is open that is at least as old as an ID.
func (l *Pipe) Works(upTo int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, w := range l.waiting {
		if id <= upTo && !w.aside {
			return true
		}
	}
	return false
}

// listen keeps what the program says on its standard error.
func (l *Pipe) listen(said chan<- struct{}) {
	defer close(said)
	r := bufio.NewReaderSize(l.proc.Stderr(), 4<<10)
	for {
		text, err := r.ReadSlice('\n')
		if len(text) > 0 {
			l.o.Note(strings.TrimSuffix(string(text), "\n"))
		}
		for errors.Is(err, bufio.ErrBufferFull) { // the rest of a very long line
			_, err = r.ReadSlice('\n')
		}
		if err != nil {
			return
		}
	}
}

// hear owns the program's standard output. When that ends, so does the link.
func (l *Pipe) hear(said <-chan struct{}) {
	lines := line.NewReader(l.proc.Stdout(), l.o.Most)
	var err error
	for err == nil {
		var text []byte
		var id json.RawMessage
		var tooLarge bool
		text, id, tooLarge, err = lines.Next()
		l.said.Store(time.Now().UnixNano())
		switch {
		case tooLarge:
			l.deliver(id, answer{err: link.ErrTooLarge})
		case err == nil && len(text) > 0:
			for part := range wire.Each(text) {
				l.receive(part)
			}
		}
	}
	if errors.Is(err, line.ErrEndless) {
		l.o.Note("(sallyport: stopped, for it wrote a line without end)")
		_ = l.proc.Stop(l.o.Grace)
	}
	l.end(said)
}

// end finds out how the program ended and closes the link.
func (l *Pipe) end(said <-chan struct{}) {
	ended := make(chan error, 1)
	go func() { ended <- l.proc.Wait() }()
	var status error
	select {
	case status = <-ended:
	case <-time.After(l.o.Grace): // it closed its output and lives on
		_ = l.proc.Stop(l.o.Grace)
		status = <-ended
	}
	select {
	case <-said:
	case <-time.After(200 * time.Millisecond):
	}
	select { // what is being written now has come out or not, and nothing follows it
	case l.pen <- struct{}{}:
	case <-time.After(l.o.Grace):
	}
	l.err = exited(l.o.Server, status, l.o.Words(3))
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
func (l *Pipe) receive(text []byte) {
	m, err := wire.ParseAnswer(text)
	switch {
	case err != nil:
		// Not strict JSON, perhaps; if it can be told whose answer it was to be,
		// that call need not wait.
		id := m.ID
		if id == nil {
			id = wire.Member(text, "id")
		}
		if wire.Member(text, "method") != nil {
			id = nil // a request of its own, under whatever id
		}
		if !l.deliver(id, answer{err: fmt.Errorf("%w: %w", link.ErrMalformed, err)}) {
			l.o.Log.Debug("upstream wrote something else than a message", "server", l.o.Server, "error", err)
		}
	case m.IsResponse():
		l.deliver(m.ID, answer{msg: m, size: len(text)})
	case m.IsRequest():
		l.o.Room.Put(m, l.Send)
	default:
		l.notice(m)
	}
}

func (l *Pipe) waiter(id json.RawMessage) *waiter {
	n, err := strconv.ParseInt(string(id), 10, 64)
	if err != nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting[n]
}

func (l *Pipe) deliver(id json.RawMessage, a answer) bool {
	w := l.waiter(id)
	if w == nil {
		return false
	}
	if a.size > bulk.Light {
		w.room(a.size) // nothing more is read meanwhile
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
func (l *Pipe) notice(m wire.Message) {
	switch m.Method {
	case "notifications/progress":
		if w := l.waiter(wire.Member(m.Params, "progressToken")); w != nil {
			select {
			case w.events <- sallyport.Notice{Method: m.Method, Params: m.Params}:
			default:
			}
			return
		}
		l.o.Room.Notice(m)
	default:
		if !l.o.Room.Notice(m) {
			l.o.Heard(m)
		}
	}
}

// Exchange sends a request and waits for its answer.
func (l *Pipe) Exchange(ctx context.Context, r link.Request) (wire.Message, error) {
	w := &waiter{aside: r.Quiet || r.Method == "subscriptions/listen", reply: make(chan answer, 1), events: make(chan sallyport.Notice, 64)}
	w.room = func(bytes int) { _ = r.Room.Want(ctx, bytes) }
	l.mu.Lock()
	l.waiting[r.ID] = w
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.waiting, r.ID)
		l.mu.Unlock()
	}()
	m := r.Message()
	p := &parcel{line: m.AppendLine(nil)}
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
			drain(w, r.Notify)
			return r.Take(a.msg, a.err)
		case n := <-w.events:
			r.Notify(n)
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
func (l *Pipe) last(w *waiter, p *parcel, r link.Request) (wire.Message, error) {
	select {
	case a := <-w.reply:
		drain(w, r.Notify)
		return r.Take(a.msg, a.err)
	default:
	}
	if p.drop() || p.missed(l.read) {
		return wire.Message{}, outcome.NotSent(l.err)
	}
	return wire.Message{}, l.err
}

// exited is how a program ended, with its last words.
func exited(server string, status error, words []string) error {
	how := "status 0"
	if status != nil {
		how = status.Error()
	}
	message := fmt.Sprintf("upstream_exited: server %q ended: %s", server, line.Printable(how, 200))
	if len(words) > 0 {
		message += "; its last words: " + strings.Join(slices.Compact(words), " | ")
	}
	return &sallyport.Error{
		Code: sallyport.Upstream, Step: sallyport.Execute, Message: message,
		Hint: outcome.MayHaveActed, Err: link.ErrGone,
	}
}
