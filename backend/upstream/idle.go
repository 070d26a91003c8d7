package upstream

import (
	"context"
	"errors"
	"time"
)

// errIdle is why a session was ended that nobody used.
var errIdle = errors.New("idle")

// retire takes a session away that no call uses, and none has for long enough.
func (s *server) retire(se *session, began time.Time) bool {
	idle := false
	s.set(func() {
		since, empty := s.line.Empty()
		idle = empty && se.room.Empty() && s.se == se && len(s.lists) == 0 && time.Since(since) > s.Idle && time.Since(began) > s.Idle
		if idle {
			s.state, s.se = StateIdle, nil
		}
	})
	return idle
}

// sleep waits until a call wakes the server.
func (s *server) sleep(ctx context.Context) bool {
	select {
	case <-s.kick:
		return true
	case <-ctx.Done():
		return false
	}
}

// wake starts a server that sleeps.
func (s *server) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == StateIdle {
		s.state, s.down = StateStarting, time.Now()
		select {
		case s.kick <- struct{}{}:
		default:
		}
	}
}
