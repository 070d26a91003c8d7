package stream

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"sallyport.dev/sallyport/wire"
)

// Bounds of a box: what is older makes room.
const (
	maxEvents = 256
	maxBytes  = 256 << 10
)

// A Box keeps what a stream has to say, and the last of what it has said. Its
// zero value is empty.
type Box struct {
	mu     sync.Mutex
	first  uint64 // number of events[0]; the first of all is 1
	events [][]byte
	size   int
	taken  uint64        // number of the last event that since has returned
	wake   chan struct{} // closed by the next Put
}

// Put adds a message, unless the same one is still to be taken: who says one thing
// over and over pushes out nothing that others say.
func (b *Box) Put(msg []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.first = max(b.first, 1)
	for i := len(b.events) - 1; i >= 0 && b.first+uint64(i) > b.taken; i-- {
		if bytes.Equal(b.events[i], msg) {
			return
		}
	}
	b.events = append(b.events, msg)
	for b.size += len(msg); len(b.events) > maxEvents || b.size > maxBytes && len(b.events) > 1; {
		b.size -= len(b.events[0])
		b.events[0], b.events = nil, b.events[1:]
		b.first++
	}
	if b.wake != nil {
		close(b.wake)
		b.wake = nil
	}
}

// Lead puts a message before all others. Nothing was taken yet.
func (b *Box) Lead(msg []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.first = max(b.first, 1)
	b.events = append([][]byte{msg}, b.events...)
	b.size += len(msg)
}

// since returns what came after an event, the number of the first of it, and
// what is closed when there is more.
func (b *Box) since(after uint64) (events [][]byte, first uint64, wake <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wake == nil {
		b.wake = make(chan struct{})
	}
	first = max(b.first, after+1)
	if i := first - b.first; b.first > 0 && i < uint64(len(b.events)) {
		events = append(events, b.events[i:]...)
		b.taken = max(b.taken, b.first+uint64(len(b.events))-1)
	}
	return events, first, b.wake
}

// End is the number of the last event, 0 if there is none.
func (b *Box) End() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.first == 0 {
		return 0
	}
	return b.first + uint64(len(b.events)) - 1
}

// idPrefix names the stream in the ids of its events.
const idPrefix = "get-"

// ParseID reads an event's id. ok is false for one that the box never gave.
func (b *Box) ParseID(id string) (after uint64, ok bool) {
	text, ok := strings.CutPrefix(id, idPrefix)
	if !ok {
		return 0, false
	}
	after, err := strconv.ParseUint(text, 10, 63)
	return after, err == nil && strconv.FormatUint(after, 10) == text && after <= b.End()
}

// A Signal is given once, by whoever is first.
type Signal struct {
	once sync.Once
	C    chan struct{} // closed then
}

// NewSignal returns a signal that was not given yet.
func NewSignal() *Signal { return &Signal{C: make(chan struct{})} }

// Fire gives the signal.
func (s *Signal) Fire() { s.once.Do(func() { close(s.C) }) }

// Fired reports whether it was given.
func (s *Signal) Fired() bool {
	select {
	case <-s.C:
		return true
	default:
		return false
	}
}

// An Outlet says how a box is written to a client.
type Outlet struct {
	Box   *Box
	After uint64          // the last event that the client has
	IDs   bool            // events have ids, to come back with
	Prime bool            // an id comes first, alone
	Stop  <-chan struct{} // ends the stream
	End   []byte          // the last message then, nil for none

	KeepAlive, WriteTimeout time.Duration
	Alive                   func() bool // asked at each sign of life; false ends the stream
}

// Serve writes the stream until the client is gone, or Stop closes. The first
// bytes go out at once, so that nobody between takes the stream for dead.
func (o Outlet) Serve(w http.ResponseWriter, r *http.Request) {
	put := o.begin(w)
	hello := wire.AppendComment(nil, "alive")
	if o.Prime {
		hello = append(o.id(nil, o.After), "data: \n\n"...)
	}
	if !put(hello) {
		return
	}
	tick := time.NewTicker(o.KeepAlive)
	defer tick.Stop()
	for at := o.After; ; {
		events, first, more := o.Box.since(at)
		if !o.IDs && first != at+1 { // a client that cannot come back has missed something
			return
		}
		for i, msg := range events {
			b := []byte(nil)
			if at = first + uint64(i); o.IDs {
				b = o.id(b, at)
			}
			if !put(wire.AppendEvent(b, "message", msg)) {
				return
			}
		}
		select {
		case <-more:
		case <-tick.C:
			if !o.Alive() || !put(wire.AppendComment(nil, "alive")) {
				return
			}
		case <-o.Stop:
			if o.End != nil {
				put(wire.AppendEvent(nil, "message", o.End))
			}
			return
		case <-r.Context().Done():
			return
		}
	}
}

// begin makes a stream of an answer, and returns what writes to it.
func (o Outlet) begin(w http.ResponseWriter) (put func([]byte) bool) {
	h := w.Header()
	h["Content-Type"] = []string{wire.TypeSSE}
	h["X-Accel-Buffering"] = []string{"no"}
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	return func(b []byte) bool {
		_ = rc.SetWriteDeadline(time.Now().Add(o.WriteTimeout)) // best effort
		_, err := w.Write(b)
		return err == nil && rc.Flush() == nil
	}
}

func (o Outlet) id(b []byte, n uint64) []byte {
	return append(strconv.AppendUint(append(b, "id: "+idPrefix...), n, 10), '\n')
}
