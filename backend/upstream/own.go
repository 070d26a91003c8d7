package upstream

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"sallyport.dev/sallyport"
)

// A server behind a URL that has sessions may keep something in them. So each
// principal has one of its own: what one does there, another neither sees nor ends,
// and what the server asks in it is asked of nobody else. The session of the gateway
// itself only lists. A program has one session, with all who use it.

const (
	ownIdle = 5 * time.Minute // after which an own session is closed, until the next call
	ownMost = 1000            // of one server
)

// owns are the own sessions of one server, each a server of its own kind.
type owns struct {
	mu  sync.Mutex
	all map[string]*server
}

// own is the server as one principal has it; nil if all have the same. What is
// followed is followed by the session that listens.
func (s *server) own(se *session, job sallyport.Job) (*server, error) {
	web, _ := se.link.(*webLink)
	who := job.Who
	if s.mute || who.ID == "" || job.Kind == sallyport.Subscribe || se.era != eraLegacy || web == nil || web.id.Load() == nil {
		return nil, nil
	}
	key := fmt.Sprintf("%q %q %q", who.Tenant, who.ID, who.OnBehalfOf)
	return s.owns.take(s, key, nil)
}

// take is the server that has a key: a session like that of s, by another way if
// there is one.
func (o *owns) take(s *server, key string, way http.RoundTripper) (*server, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if own := o.all[key]; own != nil {
		return own, nil
	}
	if len(o.all) >= ownMost && !o.makeRoom() {
		return nil, &sallyport.Error{
			Code: sallyport.RateLimited, Step: sallyport.Execute, RetryAfter: comeBack, Err: sallyport.ErrNotExecuted,
			Message: fmt.Sprintf("server %q has %d sessions in use", s.Name, ownMost), Hint: "try again after retry_after",
		}
	}
	c := s.Config
	c.Lazy, c.Idle = true, ownIdle
	if way != nil {
		c.HTTP, c.Apart = way, nil
	}
	own := prepare(c, s.o)
	own.mute, own.plain = true, way == nil
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

// unasked reports whether no call of the server waits for its client's answer.
func (s *server) unasked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.se == nil || s.se.room.Empty()
}

// makeRoom ends a session that nobody uses. Preconditions: o.mu is held.
func (o *owns) makeRoom() bool {
	for key, s := range o.all {
		if _, empty := s.line.Empty(); empty && s.unasked() {
			delete(o.all, key)
			s.cancel()
			return true
		}
	}
	return false
}
