package upstream

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/outcome"
	"sallyport.dev/sallyport/backend/upstream/asked"
	"sallyport.dev/sallyport/backend/upstream/entry"
	"sallyport.dev/sallyport/backend/upstream/turn"
	"sallyport.dev/sallyport/backend/upstream/web"
	"sallyport.dev/sallyport/limit/share"
)

// A server that has sessions may keep something in them. So each principal has one of
// its own: what one does there, another neither sees nor ends, and what the server asks
// in it is asked of nobody else. The session of the gateway itself only lists. A program
// has one session as long as it runs: so it is one process for each principal, of which
// the first keeps the one that lists, unless an operator says that they share it.

const (
	ownIdle     = 5 * time.Minute // after which an own session is closed, until the next call
	ownMost     = 2000            // of one server, of which each tenant and each agent has a share
	ownPrograms = 64              // processes of one program, beside the first; the same
	ownQueue    = 16              // calls of one principal that may wait for their turn
)

// owns are the own sessions of one server, each a server of its own kind.
type owns struct {
	mu     sync.Mutex
	all    map[string]*server
	shares *share.Pool
}

// own is the server as one principal has it, nil if it is this one: of a program, the
// process that was there when the call came may have ended, and the next be another's.
func (s *server) own(se *session, job sallyport.Job) (*server, error) {
	whose := asked.Whose(job.Who)
	if !s.divided(job) || !se.isSession() || s.URL == "" && se.room.Keep(whose) {
		return nil, nil
	}
	return s.owns.take(s, whose, job.Who, nil)
}

// divided reports whether each principal has the server for itself. What is followed is
// followed by the session that listens.
func (s *server) divided(job sallyport.Job) bool {
	return !s.mute && job.Who.ID != "" && job.Kind != sallyport.Subscribe && (s.URL != "" || s.Processes != entry.One)
}

// isSession reports whether the server behind a URL knows the connection again.
func (se *session) isSession() bool {
	l, isWeb := se.link.(*web.Link)
	return se.era == eraLegacy && (!isWeb || l.InSession())
}

// process is the process of a program that a principal's calls go to, nil if it is the
// one that is there, and whether nobody else's do.
func (s *server) process(ctx context.Context, job sallyport.Job) (own *server, alone bool, err error) {
	if s.mute {
		return nil, true, nil
	}
	if s.URL != "" || !s.divided(job) {
		return nil, false, nil
	}
	if own := s.owns.of(asked.Whose(job.Who)); own != nil {
		return own, true, nil
	}
	se, err := s.acquire(ctx)
	if err != nil || se.era != eraLegacy {
		return nil, false, err
	}
	own, err = s.own(se, job)
	return own, true, err
}

// takeTurn has the calls of a principal, whose client can be asked, come one at a time
// where the server asks without saying for which call. Errors wrap ErrNotExecuted.
func (s *server) takeTurn(ctx context.Context, job sallyport.Job) (leave func(), err error) {
	if !s.asks.Load() || !job.Can.Any() {
		return func() {}, nil
	}
	const hint, what = "answer what an open call asks, or cancel it; try again after retry_after", "asks without saying for which call, so your calls to it run one at a time, and "
	leave, err = s.solo.Enter(ctx, "")
	switch _, _, wait := s.solo.Bounds(); {
	case errors.Is(err, turn.ErrFull):
		err = s.busy(hint, what+"%d more of your calls wait already", ownQueue)
	case errors.Is(err, turn.ErrLong):
		err = s.busy(hint, what+"the one before this has not ended for %v", wait)
	case err != nil:
		err = outcome.NotSent(err)
	}
	return leave, err
}

// take is the server that has a key: a session like that of s, for somebody, by another
// way if there is one.
func (o *owns) take(s *server, key string, who sallyport.Principal, way http.RoundTripper) (*server, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if own := o.all[key]; own != nil {
		return own, nil
	}
	most := ownMost
	if s.URL == "" {
		most = ownPrograms
	}
	if o.shares == nil {
		o.shares = share.New(int64(most))
	}
	for !o.shares.Take(who.Tenant, who.ID, 1) {
		if !o.makeRoom(who) {
			return nil, s.busy("try again after retry_after", "has %d sessions, of which you have your share, and all are in use", len(o.all))
		}
	}
	c := s.Config
	if c.Lazy = true; c.Idle == 0 || c.Idle > ownIdle {
		c.Idle = ownIdle
	}
	if way != nil {
		c.HTTP, c.Apart = way, nil
	}
	own := prepare(c, s.o)
	own.mute, own.plain, own.asks, own.who = true, way == nil, s.asks, who
	s.mu.Lock()
	own.older = s.older && way == nil
	s.mu.Unlock()
	own.begin(s.life)
	if o.all == nil {
		o.all = map[string]*server{}
	}
	o.all[key] = own
	return own, nil
}

// of returns the one that has a key, nil if there is none.
func (o *owns) of(key string) *server {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all[key]
}

// gone returns when all of them have ended, which they do with their server.
func (o *owns) gone() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.all {
		<-s.ended
	}
}

// unused reports whether no call is in the server, and none waits for its client's answer,
// since when, and whether it has nothing to lose.
func (s *server) unused() (is bool, since time.Time, asleep bool) {
	since, empty := s.line.Empty()
	s.mu.Lock()
	defer s.mu.Unlock()
	return empty && (s.se == nil || s.se.room.Empty()), since, s.state == StateIdle
}

// makeRoom ends a session that nobody uses, so that who has a place, and of those the one
// that is missed least. It takes none away from who has no more than the other.
// Preconditions: o.mu is held.
func (o *owns) makeRoom(who sallyport.Principal) bool {
	last, best, since := "", 0, time.Time{}
	for key, s := range o.all {
		is, at, asleep := s.unused()
		if y := o.shares.Yields(s.who.Tenant, s.who.ID, who.Tenant, who.ID, asleep); is && (y > best || y > 0 && y == best && at.Before(since)) {
			last, best, since = key, y, at
		}
	}
	s := o.all[last]
	if s == nil {
		return false
	}
	delete(o.all, last)
	o.shares.Give(s.who.Tenant, s.who.ID, 1)
	s.cancel()
	return true
}
