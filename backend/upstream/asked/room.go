package asked

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
	"sallyport.dev/sallyport/wire/ask"
)

// On a connection with a session a server's question may name no call. Then it is put
// to somebody only where it can be of nobody else: all calls that the connection ever
// had are of one principal, and one of them is under way. So it is never another
// principal's, not even that of a call which ended or was given up before.

const (
	maxHeld  = 16               // questions that wait until it is clear whose they are
	longHeld = 30 * time.Second // of one
)

// A Room is all the calls of one connection.
type Room struct {
	Asked func()        // is told of a question in the middle of a call that it does not name, if set; must not block
	Hold  time.Duration // for a question until it is clear whose it is, 30 s

	mu      sync.Mutex // guards what follows
	desks   map[*Desk]bool
	whose   string // who had the first call here, "" if nobody had
	several bool   // others have had calls, too
	ended   bool   // a call has ended here
	held    []*heldBack
}

// heldBack is a question of one of several calls of one principal.
type heldBack struct {
	m     wire.Message
	send  Send
	timer *time.Timer
}

// Send sends a response to the server.
type Send = func(context.Context, wire.Message) error

// Whose names a principal: calls of the same may be each other's neighbours.
func Whose(p sallyport.Principal) string {
	return fmt.Sprintf("%q %q %q", p.Tenant, p.ID, p.OnBehalfOf)
}

// Keep reports whether all calls of the connection are of one principal, and those to
// come are meant to be. The first who asks has it.
func (r *Room) Keep(whose string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.whose == "" {
		r.whose = whose
	}
	return r.whose == whose && !r.several
}

// Several reports whether calls of more than one principal were made here.
func (r *Room) Several() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.several
}

// Open returns a desk for a call. The caller must close it.
func (r *Room) Open(ctx context.Context, job sallyport.Job) *Desk {
	d := &Desk{room: r, ask: job.Ask, tell: job.Notify, open: map[string]context.CancelCauseFunc{}, urls: map[string]chan struct{}{}}
	if d.tell == nil {
		d.tell = func(sallyport.Notice) {}
	}
	d.ctx, d.cancel = context.WithCancel(ctx)
	whose := Whose(job.Who)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.desks == nil {
		r.desks = map[*Desk]bool{}
	}
	r.desks[d] = true
	if r.whose == "" {
		r.whose = whose
	}
	if r.whose != whose {
		r.several = true
		r.settle(nil, strangers)
	}
	return d
}

// Close takes back what is still asked.
func (d *Desk) Close() {
	if d == nil {
		return
	}
	d.cancel()
	r := d.room
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.desks, d)
	r.ended = true
	switch len(r.desks) {
	case 0:
		r.settle(nil, noCall)
	case 1:
		for last := range r.desks {
			r.settle(last, "")
		}
	}
}

// settle puts what is held back to a call, or refuses it. Preconditions: r.mu is held.
func (r *Room) settle(d *Desk, why string) {
	for _, h := range r.held {
		h.timer.Stop()
		if d != nil {
			d.Take(h.m, h.send)
		} else {
			go deliver(h.send, wire.Message{ID: h.m.ID, Error: nobodys(why)})
		}
	}
	r.held = nil
}

// Why a question is put to nobody.
const (
	noCall    = "no call is under way"
	strangers = "several callers use this connection, and the question does not say which call it belongs to. From now on each caller has a connection of its own, where the server can be had more than once: let the call be made again"
	tooLong   = "several calls of the same caller are under way, and the question does not say which of them it belongs to. From now on they come one at a time: let the call be made again"
)

func nobodys(why string) *wire.Error {
	return &wire.Error{Code: wire.CodeInvalidRequest, Message: "nobody knows which call this belongs to: " + why}
}

// Put has the call that a request of the server belongs to answer it: the one whose
// task it names, or the only one that it can be of. It does not wait.
func (r *Room) Put(m wire.Message, send Send) {
	if id, ok := wire.String(wire.Path(m.Params, "_meta", related, "taskId")); ok {
		r.ofTask(id).Take(m, send)
		return
	}
	if !ask.Known(m.Method) {
		(*Desk)(nil).Take(m, send)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Asked != nil && len(r.desks) > 0 && (m.Method != sallyport.AskRoots || r.ended) { // many ask for folders once, when they start
		r.Asked()
	}
	switch {
	case len(r.desks) == 0:
		go deliver(send, wire.Message{ID: m.ID, Error: nobodys(noCall)})
	case r.several:
		go deliver(send, wire.Message{ID: m.ID, Error: nobodys(strangers)})
	case len(r.desks) == 1:
		for d := range r.desks {
			d.Take(m, send)
		}
	case len(r.held) >= maxHeld:
		go deliver(send, wire.Message{ID: m.ID, Error: nobodys(tooLong)})
	default:
		r.hold(m, send)
	}
}

// hold keeps a question until only one call is left, or for too long.
// Preconditions: r.mu is held.
func (r *Room) hold(m wire.Message, send Send) {
	h := &heldBack{m: m, send: send}
	patience := r.Hold
	if patience == 0 {
		patience = longHeld
	}
	h.timer = time.AfterFunc(patience, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if i := slices.Index(r.held, h); i >= 0 {
			r.held = slices.Delete(r.held, i, i+1)
			go deliver(send, wire.Message{ID: m.ID, Error: nobodys(tooLong)})
		}
	})
	r.held = append(r.held, h)
}

// takenBack forgets a question that is held back, which needs no response, and reports
// whether it was.
func (r *Room) takenBack(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.held, func(h *heldBack) bool { return wire.IDKey(h.m.ID) == key })
	if i < 0 {
		return false
	}
	r.held[i].timer.Stop()
	r.held = slices.Delete(r.held, i, i+1)
	return true
}

// ofTask is the desk of the call that became a task. Where a server gave several calls
// the same, it is nobody's.
func (r *Room) ofTask(id string) (of *Desk) {
	for _, d := range r.all() {
		if !d.named(func() bool { return d.task == id }) {
			continue
		}
		if of != nil {
			return nil
		}
		of = d
	}
	return of
}

// Empty reports whether there is no call.
func (r *Room) Empty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.desks) == 0
}

func (r *Room) all() (all []*Desk) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for d := range r.desks {
		all = append(all, d)
	}
	return all
}

// speaks finds words of which servers whose tools ask make use.
var speaks = regexp.MustCompile(`(?i)elicit|sampling request|llm sampling|sampling/createmessage|roots/list|roots list`)

// Speaks reports whether a tool's definition says that it asks in the middle of a call.
// It only decides how calls are kept apart.
func Speaks(tool json.RawMessage) bool {
	name, _ := wire.String(wire.Member(tool, "name"))
	text, _ := wire.String(wire.Member(tool, "description"))
	return speaks.MatchString(name) || speaks.MatchString(text)
}
