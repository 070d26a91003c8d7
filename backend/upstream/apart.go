package upstream

import (
	"context"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/upstream/entry"
	"sallyport.dev/sallyport/backend/upstream/link"
	"sallyport.dev/sallyport/backend/upstream/web"
)

// Calls that are authorised for different agents or users take connections of their
// own: a server may bind a session to whose token began it, and nobody is to
// be answered in another's.

// An Apart says for whom a call is made, "" for the gateway, and by which way.
type Apart = entry.Apart

// of returns the connection that calls of a principal take.
func (s *server) of(who sallyport.Principal) (*server, error) {
	if s.Apart == nil {
		return s, nil
	}
	key, way, err := s.Apart(who)
	if err != nil || key == "" {
		return s, err
	}
	return s.owns.take(s, key, who, way)
}

// askAgain is how often a server that wants an authorisation is asked again by
// those who call it: somebody may have logged in at another gateway.
const askAgain = 2 * time.Second

// unauthorised tells whether the server is down because it wants an authorisation,
// and was asked a moment ago. Preconditions: mu is held.
func (s *server) unauthorised() bool {
	if s.state != StateDown || sallyport.CodeOf(s.lastErr) != sallyport.AuthorizationRequired {
		return false
	}
	if time.Since(s.tried) < askAgain {
		return true
	}
	select {
	case s.kick <- struct{}{}:
	default:
	}
	return false
}

// Again has a server, or its connection for somebody, begin anew: what it was
// refused before, it may be allowed now.
func (b *Backend) Again(name, key string) {
	s := b.server(name)
	if s != nil && key != "" {
		s = s.owns.of(key)
	}
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.se != nil {
		l, ok := s.se.link.(*web.Link)
		if !ok {
			return // a program has no token
		}
		l.End(link.ErrGone)
	}
	s.se = nil
	s.anew()
}

// anew has a server that is down be tried now. Preconditions: mu is held.
func (s *server) anew() {
	s.down, s.lastErr = time.Now(), nil
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// rest is a pause that Again ends.
func (s *server) rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.kick:
		return true
	case <-ctx.Done():
		return false
	}
}
