package stream

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"sallyport.dev/sallyport/limit/share"
	"sallyport.dev/sallyport/wire"
)

// Bounds of what is kept for clients that lost the stream of a call.
const (
	maxTails     = 64       // of one session, those of calls that run among them
	maxTailBytes = 1 << 20  // of one session
	maxAllBytes  = 64 << 20 // of all sessions, of which each tenant and each principal has a share

	keptFor = 5 * time.Minute // after the call's end
)

// Tails are the streams of one session's calls: what was said on each, for a client
// that was cut off in the middle. The oldest make room. The zero value keeps nothing.
type Tails struct {
	kept              *share.Pool // bytes of all sessions
	tenant, principal string      // whose this is

	mu   sync.Mutex // guards what follows, and what is in the tails
	last uint64
	all  []*Tail // the oldest first
	size int
}

// NewKept returns what all sessions share.
func NewKept() *share.Pool { return share.New(maxAllBytes) }

// NewTails returns the tails of a principal's session.
func NewTails(kept *share.Pool, tenant, principal string) *Tails {
	return &Tails{kept: kept, tenant: tenant, principal: principal}
}

// A Tail is what was said on the stream of one call. A nil Tail keeps nothing.
type Tail struct {
	of     *Tails
	name   uint64
	events [][]byte
	size   int
	ended  bool
	gone   bool        // it had to make room
	heard  int         // who listens to it now: one, and those that are on their way out
	next   *Signal     // ends who listens, since another does; nil before the first
	timer  *time.Timer // forgets it, once it has ended
	wake   chan struct{}
}

// Open begins a tail. It is nil where nothing is kept.
func (t *Tails) Open() *Tail {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kept == nil {
		return nil
	}
	if len(t.all) >= maxTails {
		t.drop(t.all[0])
	}
	t.last++
	n := &Tail{of: t, name: t.last, wake: make(chan struct{})}
	t.all = append(t.all, n)
	return n
}

// Close forgets all of them. The session has ended.
func (t *Tails) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.all) > 0 {
		t.drop(t.all[0])
	}
	t.kept = nil
}

// Preconditions: t.mu is held.
func (t *Tails) drop(n *Tail) {
	for i, o := range t.all {
		if o == n {
			t.all = append(t.all[:i:i], t.all[i+1:]...)
		}
	}
	if n.timer != nil {
		n.timer.Stop()
	}
	t.size -= n.size
	t.kept.Give(t.tenant, t.principal, int64(n.size))
	n.events, n.size, n.gone = nil, 0, true
	n.rouse()
}

// Preconditions: the mu of its tails is held.
func (n *Tail) rouse() {
	close(n.wake)
	n.wake = make(chan struct{})
}

// Put keeps a message, and returns its number.
func (n *Tail) Put(msg []byte) uint64 {
	t := n.of
	t.mu.Lock()
	defer t.mu.Unlock()
	number := uint64(len(n.events)) + 1
	if n.gone {
		return number
	}
	for t.size+len(msg) > maxTailBytes && t.all[0] != n {
		t.drop(t.all[0])
	}
	if t.size+len(msg) > maxTailBytes || !t.kept.Take(t.tenant, t.principal, int64(len(msg))) {
		t.drop(n)
		return number
	}
	n.events = append(n.events, append([]byte(nil), msg...))
	n.size += len(msg)
	t.size += len(msg)
	n.rouse()
	return number
}

// End says that nothing more comes.
func (n *Tail) End() {
	if n == nil {
		return
	}
	n.of.mu.Lock()
	defer n.of.mu.Unlock()
	if n.ended || n.gone {
		return
	}
	n.ended = true
	n.timer = time.AfterFunc(keptFor, func() {
		n.of.mu.Lock()
		defer n.of.mu.Unlock()
		if !n.gone {
			n.of.drop(n)
		}
	})
	n.rouse()
}

// Heard reports whether a client has come back and listens.
func (n *Tail) Heard() bool {
	if n == nil {
		return false
	}
	n.of.mu.Lock()
	defer n.of.mu.Unlock()
	return n.heard > 0
}

// tailPrefix names these streams in the ids of their events.
const tailPrefix = "call-"

// AppendID appends the line with the id of a message.
func (n *Tail) AppendID(b []byte, number uint64) []byte {
	b = strconv.AppendUint(append(b, "id: "+tailPrefix...), n.name, 10)
	return append(strconv.AppendUint(append(b, '-'), number, 10), '\n')
}

// Find reads the id of a message: whose stream it was, and how much of that the client
// has. ours is false for an id of no call's stream; n is nil where it is not kept.
func (t *Tails) Find(id string) (n *Tail, after uint64, ours bool) {
	text, ours := strings.CutPrefix(id, tailPrefix)
	if !ours {
		return nil, 0, false
	}
	name, number, _ := strings.Cut(text, "-")
	after, err := strconv.ParseUint(number, 10, 32)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range t.all {
		if err == nil && strconv.FormatUint(o.name, 10) == name && strconv.FormatUint(after, 10) == number && after <= uint64(len(o.events)) {
			return o, after, true
		}
	}
	return nil, 0, true
}

// since is what came after a message, whether nothing more will, and what is closed
// when there is more.
func (n *Tail) since(after uint64) (events [][]byte, over bool, more <-chan struct{}) {
	n.of.mu.Lock()
	defer n.of.mu.Unlock()
	if after < uint64(len(n.events)) {
		events = n.events[after:]
	}
	return events, n.ended || n.gone, n.wake
}

// listen takes the place of who listens, and returns what ends that again.
func (n *Tail) listen() (replaced <-chan struct{}, leave func()) {
	n.of.mu.Lock()
	defer n.of.mu.Unlock()
	if n.next != nil {
		n.next.Fire()
	}
	n.heard++
	n.next = NewSignal()
	return n.next.C, func() {
		n.of.mu.Lock()
		defer n.of.mu.Unlock()
		n.heard--
	}
}

// Serve writes what came after a message, and what is still to come, to the end of it,
// or until another request comes for it.
func (n *Tail) Serve(w http.ResponseWriter, r *http.Request, after uint64, o Outlet) {
	replaced, leave := n.listen()
	defer leave()
	put := o.begin(w)
	tick := time.NewTicker(o.KeepAlive)
	defer tick.Stop()
	for ok := put(wire.AppendComment(nil, "alive")); ok; {
		events, over, more := n.since(after)
		for _, msg := range events {
			after++
			if !put(wire.AppendEvent(n.AppendID(nil, after), "message", msg)) {
				return
			}
		}
		if over {
			return
		}
		select {
		case <-more:
		case <-tick.C:
			ok = o.Alive() && put(wire.AppendComment(nil, "alive"))
		case <-o.Stop:
			return
		case <-replaced:
			return
		case <-r.Context().Done():
			return
		}
	}
}
