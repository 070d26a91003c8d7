// Package stream tells clients what changes while they ask for nothing: that a
// list is another one for them, that a resource which they follow was updated.
//
// A Hub knows who listens. What it has to say goes into a Box, from which a
// stream is written; a client of the earlier revisions that lost its stream
// comes back for the rest.
package stream

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
)

// Views say what a caller may see. (gateway)
type Views interface {
	Identify(ctx context.Context, credential, profile string) (sallyport.Principal, error)
	Enter(ctx context.Context, credential, profile string, size int) (who sallyport.Principal, leave func(), err error)
	See(who sallyport.Principal, profile string, shelf sallyport.Shelf) (sallyport.Sight, error)
	Sees(who sallyport.Principal, profile, address string) (sallyport.Tool, bool)
}

const (
	settle     = 100 * time.Millisecond // changes that come together are told once
	maxEars    = 20_000
	maxPerUser = 128 // ears of one principal
)

// MaxFollows bounds the resources of one ear.
const MaxFollows = 1000

// A Hub passes on what changes. Its zero value is not usable.
type Hub struct {
	views    Views
	unfollow func(server, address string)

	mu      sync.Mutex // guards what follows
	ears    map[*Ear]struct{}
	users   map[user]int
	timer   *time.Timer // set while a change waits to be told
	changes int         // so far
	closed  bool
}

type user struct{ tenant, id, onBehalfOf string }

// NewHub returns a hub. unfollow ends what an operation of kind Subscribe began.
func NewHub(views Views, unfollow func(server, address string)) *Hub {
	return &Hub{views: views, unfollow: unfollow, ears: map[*Ear]struct{}{}, users: map[user]int{}}
}

// Wants are the lists of which an ear wants to hear.
type Wants struct{ Tools, Prompts, Resources bool }

// A Caller is who listens, and by which right.
type Caller struct{ Credential, Profile string }

// An Ear is one who listens.
type Ear struct {
	hub   *Hub
	wants Wants
	tell  func(method string, params json.RawMessage)
	gone  func()
	user  user

	mu      sync.Mutex // guards what follows
	caller  Caller
	last    map[string]string // digests of the lists as they were told, by method
	follows map[string]place  // by exposed address
}

type place struct{ server, address string }

// Listen makes an ear for a caller, who is authenticated and admitted as for a
// list. tell is called for each
// change, gone when the caller's right has ended; neither may block.
// Code RateLimited says that too many listen already.
func (h *Hub) Listen(ctx context.Context, c Caller, w Wants, tell func(method string, params json.RawMessage), gone func()) (*Ear, error) {
	who, leave, err := h.views.Enter(ctx, c.Credential, c.Profile, 0)
	if err != nil {
		return nil, err
	}
	defer leave()
	h.mu.Lock()
	before := h.changes
	h.mu.Unlock()
	e := &Ear{hub: h, wants: w, tell: tell, gone: gone, caller: c, user: user{who.Tenant, who.ID, who.OnBehalfOf}, follows: map[string]place{}}
	e.last = e.digests(who, map[string]string{})
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.ears) >= maxEars || h.users[e.user] >= maxPerUser {
		return nil, ErrTooMany
	}
	h.ears[e] = struct{}{}
	h.users[e.user]++
	if h.changes != before { // while it looked
		h.rouse()
	}
	return e, nil
}

// ErrTooMany is what a caller is told who listens too often already, or to too much.
var ErrTooMany = &sallyport.Error{
	Code: sallyport.RateLimited, Step: sallyport.Admit, RetryAfter: time.Minute,
	Message: "too many streams are open", Hint: "listen to everything on one stream",
}

// Listening is how many listen.
func (h *Hub) Listening() int { return len(h.all()) }

// Sees reports whether a principal may read a resource, and which it is.
func (h *Hub) Sees(who sallyport.Principal, profile, address string) (sallyport.Tool, bool) {
	return h.views.Sees(who, profile, address)
}

// Changed says that some list may be another one for somebody.
func (h *Hub) Changed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changes++
	h.rouse()
}

// Preconditions: h.mu is held.
func (h *Hub) rouse() {
	if h.timer == nil && !h.closed {
		h.timer = time.AfterFunc(settle, h.flush)
	}
}

// Close ends the hub. What listens is told that it is gone.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	if h.timer != nil {
		h.timer.Stop()
	}
	h.mu.Unlock()
	for _, e := range h.all() {
		e.gone()
	}
}

func (h *Hub) all() []*Ear {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*Ear, 0, len(h.ears))
	for e := range h.ears {
		all = append(all, e)
	}
	return all
}

// flush tells each ear which lists changed for it: the same digests serve all
// that see the same.
func (h *Hub) flush() {
	h.mu.Lock()
	h.timer = nil
	h.mu.Unlock()
	known := map[string]map[string]string{}
	for _, e := range h.all() {
		e.look(known)
	}
}

// look tells what changed since it looked last.
func (e *Ear) look(known map[string]map[string]string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	who, err := e.hub.views.Identify(context.Background(), e.caller.Credential, e.caller.Profile)
	if err != nil {
		e.gone()
		return
	}
	key := string(keyOf(who, e.caller.Profile))
	if known[key] == nil {
		known[key] = map[string]string{}
	}
	for method, now := range e.digests(who, known[key]) {
		if now != e.last[method] {
			e.last[method] = now
			e.tell(method, nil)
		}
	}
}

func keyOf(who sallyport.Principal, profile string) []byte {
	b, _ := json.Marshal([]any{who.Tenant, who.ID, who.OnBehalfOf, who.Roles, profile}) // plain values
	return b
}

// lists are what each notification is about.
var lists = map[string][]sallyport.Shelf{
	"notifications/tools/list_changed":     {""},
	"notifications/prompts/list_changed":   {sallyport.Prompts},
	"notifications/resources/list_changed": {sallyport.Resources, sallyport.Templates},
}

// digests are those of the lists that the ear wants to hear of. known keeps what
// was computed already.
func (e *Ear) digests(who sallyport.Principal, known map[string]string) map[string]string {
	out := map[string]string{}
	for method, wanted := range map[string]bool{
		"notifications/tools/list_changed": e.wants.Tools, "notifications/prompts/list_changed": e.wants.Prompts, "notifications/resources/list_changed": e.wants.Resources,
	} {
		if !wanted {
			continue
		}
		if _, ok := known[method]; !ok {
			known[method] = e.hub.digest(who, e.caller.Profile, lists[method])
		}
		out[method] = known[method]
	}
	return out
}

func (h *Hub) digest(who sallyport.Principal, profile string, shelves []sallyport.Shelf) string {
	sum := sha256.New()
	for _, shelf := range shelves {
		sight, err := h.views.See(who, profile, shelf)
		if err != nil {
			continue // as good as empty
		}
		for _, t := range sight.List {
			_, _ = sum.Write([]byte(t.Shown() + "\x00" + t.Digest + "\x00")) // a hash takes everything
			_, _ = sum.Write(t.Definition)                                   // a profile may show it otherwise than before
		}
	}
	return string(sum.Sum(nil))
}

// Renew gives the ear the caller's newest credential, and tells what was missed
// while the old one was no good.
func (e *Ear) Renew(credential string) {
	e.mu.Lock()
	e.caller.Credential = credential
	e.mu.Unlock()
	e.look(map[string]map[string]string{})
}

// Follow has the ear hear of a resource, for which Subscribe has run. It takes
// over to end that.
func (e *Ear) Follow(t sallyport.Tool) (ok bool) {
	p := place{t.Origin.Server, t.Origin.Name}
	e.mu.Lock()
	_, twice := e.follows[t.Shown()]
	if ok = !twice && len(e.follows) < MaxFollows; ok {
		e.follows[t.Shown()] = p
	}
	e.mu.Unlock()
	if !ok {
		e.hub.unfollow(p.server, p.address)
	}
	return ok || twice
}

// Unfollow ends a Follow.
func (e *Ear) Unfollow(address string) {
	e.mu.Lock()
	p, ok := e.follows[address]
	delete(e.follows, address)
	e.mu.Unlock()
	if ok {
		e.hub.unfollow(p.server, p.address)
	}
}

// Close ends the ear. It is idempotent.
func (e *Ear) Close() {
	e.hub.mu.Lock()
	if _, ok := e.hub.ears[e]; ok {
		delete(e.hub.ears, e)
		if e.hub.users[e.user]--; e.hub.users[e.user] == 0 {
			delete(e.hub.users, e.user)
		}
	}
	e.hub.mu.Unlock()
	e.mu.Lock()
	follows := e.follows
	e.follows = map[string]place{}
	e.mu.Unlock()
	for _, p := range follows {
		e.hub.unfollow(p.server, p.address)
	}
}

// Updated says that a resource has changed. Those hear it who follow it, and may
// still read it.
func (h *Hub) Updated(server, address string) {
	at := place{server, address}
	for _, e := range h.all() {
		e.updated(at)
	}
}

func (e *Ear) updated(at place) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for exposed, p := range e.follows {
		if p != at {
			continue
		}
		who, err := e.hub.views.Identify(context.Background(), e.caller.Credential, e.caller.Profile)
		if err != nil {
			e.gone()
			return
		}
		if _, ok := e.hub.views.Sees(who, e.caller.Profile, exposed); ok {
			e.tell("notifications/resources/updated", append(wire.AppendString([]byte(`{"uri":`), exposed), '}'))
		}
	}
}
