// Package session keeps sandboxes for callers that come back.
//
// A session is one sandbox of one owner: what an interpreter holds, and the
// files, are there at the next call. Read Sessions.Run first. One call is in a
// session at a time; others wait, a few of them, for a while. Owner and name
// together find a session, and nothing else does: the owner is what the gateway
// says, and an agent never does.
package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier/stay"
)

// A Key finds a session.
type Key struct {
	Owner string // opaque; the same for one principal of one tenant
	Name  string // that the caller chose
}

// A Config bounds sessions. No field but Rest may be zero.
type Config struct {
	Hosts    map[string]stay.Host // by tier
	Max      int                  // sessions at once
	PerOwner int                  // of one owner
	Idle     time.Duration        // without a call, after which a session ends
	Life     time.Duration        // after which it ends in any case
	Rest     time.Duration        // without a call, after which its state goes to disk, encrypted; 0: never
	Dir      string               // for files without a name
}

const (
	maxWaiting = 4                // calls that wait for their turn in one session
	patience   = 20 * time.Second // of one that waits
	sweepEvery = time.Second
)

// Sessions are the sessions of a sandbox host. It is safe for concurrent use.
type Sessions struct {
	cfg Config

	mu     sync.Mutex
	open   map[Key]*session
	closed bool

	stop chan struct{}
	work sync.WaitGroup
}

// Open makes a place for sessions, with none in it.
func Open(cfg Config) *Sessions {
	x := &Sessions{cfg: cfg, open: map[Key]*session{}, stop: make(chan struct{})}
	x.work.Go(x.sweep)
	return x
}

// Close ends every session, and returns when they are gone. It is idempotent.
func (x *Sessions) Close() {
	if x == nil {
		return
	}
	x.mu.Lock()
	if !x.closed {
		x.closed = true
		close(x.stop)
	}
	x.mu.Unlock()
	x.work.Wait()
	for _, s := range x.all() {
		x.end(s, "the sandbox host is closing")
	}
}

// A Terms is what a session was made with, in words: a call with others is
// refused. Each is NAME=VALUE.
type Terms []string

func (t Terms) differs(other Terms) (names []string) {
	for i, v := range t {
		if i >= len(other) || other[i] != v {
			name, _, _ := cut(v)
			names = append(names, name)
		}
	}
	return names
}

// enter finds the owner's session, or makes it if may says so, and waits for
// its turn in it. The caller must leave.
func (x *Sessions) enter(ctx context.Context, k Key, terms Terms, may *Call) (s *session, fresh bool, err error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		s, fresh, err = x.find(k, terms, may != nil)
		if err != nil {
			return nil, false, err
		}
		if fresh {
			s.secret = may.Secret
			err := s.begin(ctx, x.cfg.Hosts[may.Tier], may.Request)
			if err != nil {
				x.end(s, "it could not be started")
			}
			return s, true, err
		}
		if !s.queue() {
			return nil, false, busy(k)
		}
		select {
		case s.turn <- struct{}{}:
			s.waiting.Add(-1)
			if !s.over() {
				err := s.wake(ctx)
				if err != nil {
					<-s.turn
				}
				return s, false, err
			}
			<-s.turn // it ended meanwhile: look again
		case <-s.gone:
			s.waiting.Add(-1)
		case <-late.C:
			s.waiting.Add(-1)
			return nil, false, busy(k)
		case <-ctx.Done():
			s.waiting.Add(-1)
			return nil, false, ctx.Err()
		}
		x.forget(s)
	}
}

// find returns a session, or a new one that has no sandbox yet and whose turn is
// the caller's.
func (x *Sessions) find(k Key, terms Terms, may bool) (s *session, fresh bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.open[k]; s != nil && !s.over() {
		if d := terms.differs(s.terms); len(d) > 0 {
			return nil, false, refuse(sallyport.Conflict, "say the same as when it began, use another session name, or end this one with the tool sandbox_session",
				"the session %q was made with another %s", k.Name, join(d))
		}
		return s, false, nil
	}
	if !may {
		return nil, false, unknown(k)
	}
	s, err = x.place(k, terms)
	return s, err == nil, err
}

// place makes a session that has no sandbox yet and whose turn is the caller's.
// Preconditions: mu is held, and there is none of that key.
func (x *Sessions) place(k Key, terms Terms) (*session, error) {
	if x.closed {
		return nil, refuse(sallyport.Unavailable, "start it again", "the sandbox host is closing")
	}
	own := 0
	for other := range x.open {
		if other.Owner == k.Owner {
			own++
		}
	}
	if own >= x.cfg.PerOwner {
		return nil, full("this agent has %d sessions, and may have no more", own)
	}
	if len(x.open) >= x.cfg.Max {
		return nil, full("all %d sessions of this gateway are in use", x.cfg.Max)
	}
	s := newSession(k, terms)
	s.turn <- struct{}{}
	x.open[k] = s
	return s, nil
}

// leave ends a turn.
func (x *Sessions) leave(s *session) {
	s.touch()
	<-s.turn
}

// end ends a session, and returns when nothing is left of it.
func (x *Sessions) end(s *session, why string) {
	s.end(why)
	x.forget(s)
}

// forget takes a session that is over from the list.
func (x *Sessions) forget(s *session) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s.over() && x.open[s.key] == s {
		delete(x.open, s.key)
	}
}

func (x *Sessions) all() []*session {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := make([]*session, 0, len(x.open))
	for _, s := range x.open {
		all = append(all, s)
	}
	return all
}

// sweep ends what is idle, old or broken.
func (x *Sessions) sweep() {
	t := time.NewTicker(sweepEvery)
	defer t.Stop()
	for {
		select {
		case <-x.stop:
			return
		case <-t.C:
		}
		for _, s := range x.all() {
			select {
			case s.turn <- struct{}{}: // nobody is in it
				if why := s.tired(x.cfg); why != "" {
					x.end(s, why)
				} else if s.rests(x.cfg) {
					s.freeze(x.cfg.Dir)
				}
				<-s.turn
			default:
			}
			x.forget(s)
		}
	}
}

// An Info tells of a session.
type Info struct {
	Name   string
	ID     string // "" where it has no sandbox now
	Since  time.Time
	Used   time.Time
	Jobs   int // that run
	Frozen bool
}

// List tells the sessions of an owner.
func (x *Sessions) List(owner string) []Info {
	var out []Info
	for _, s := range x.all() {
		if s.key.Owner == owner && s.ready.Load() && !s.over() {
			out = append(out, s.info())
		}
	}
	return out
}

// EndOf ends every session whose owner begins so, also while calls are in them.
func (x *Sessions) EndOf(prefix, why string) (ended int) {
	for _, s := range x.all() {
		if strings.HasPrefix(s.key.Owner, prefix) && !s.over() {
			x.end(s, why)
			ended++
		}
	}
	return ended
}

// A Held tells how many sessions there are, and what bounds them.
type Held struct {
	Kept, Frozen      int // frozen ones are kept too
	Most, MostOfOwner int
	Rest, Idle, Life  time.Duration
}

// Held counts the sessions of all owners.
func (x *Sessions) Held() Held {
	h := Held{Most: x.cfg.Max, MostOfOwner: x.cfg.PerOwner, Rest: x.cfg.Rest, Idle: x.cfg.Idle, Life: x.cfg.Life}
	for _, s := range x.all() {
		if !s.ready.Load() || s.over() {
			continue
		}
		h.Kept++
		if s.info().Frozen {
			h.Frozen++
		}
	}
	return h
}

// End ends the owner's session, also while a call is in it.
func (x *Sessions) End(k Key) error {
	x.mu.Lock()
	s := x.open[k]
	x.mu.Unlock()
	if s == nil || s.over() || !s.ready.Load() {
		return unknown(k)
	}
	x.end(s, "it was ended")
	return nil
}

func refuse(code sallyport.Code, hint, format string, args ...any) *sallyport.Error {
	return &sallyport.Error{
		Code: code, Step: sallyport.Execute, Hint: hint,
		Message: fmt.Sprintf(format, args...), Err: sallyport.ErrNotExecuted,
	}
}

// unknown is said of what is not there, of what was, and of what is somebody
// else's.
func unknown(k Key) error {
	return refuse(sallyport.NotFound, "a session begins with the first run that names it, and ends when it is idle", "unknown session %.64q", k.Name)
}

// withheld is said of what would come out without being looked through for the
// secrets that the session was given.
var withheld = refuse(sallyport.Denied, "have the program print what is needed, or give the tool its secret as a header (egress) instead",
	"the session's environment holds secrets, so neither its files nor the output of jobs are handed out")

func busy(k Key) error {
	e := refuse(sallyport.Unavailable, "wait for the calls that run, or use another session", "the session %.64q is busy", k.Name)
	e.RetryAfter = time.Second
	return e
}

func full(format string, args ...any) error {
	e := refuse(sallyport.Unavailable, "end one with the tool sandbox_session, or wait until one is idle", format, args...)
	e.RetryAfter = 5 * time.Second
	return e
}

// sandboxError is said where the sandbox, and not the program, failed.
func sandboxError(why string) error {
	return &sallyport.Error{
		Code: sallyport.Unavailable, Step: sallyport.Execute, Message: "the session has ended: " + why,
		Hint: "call again: a new session begins", Err: errors.New(why),
	}
}
