package upstream

import (
	"context"
	"errors"
	"math"
	"time"

	"sallyport.dev/sallyport/backend/upstream/given"
	"sallyport.dev/sallyport/backend/upstream/pipe"
	"sallyport.dev/sallyport/pause"
)

// A program has its environment from its start, and HTTP+SSE the headers of its stream.
// Where a secret in them was changed, the calls that run end where they are, and those
// to come go to a new one. Requests of streamable HTTP have each what holds when it is sent.

// errStale is why a session was left whose server is given something else by now.
var errStale = errors.New("it is given something else by now")

// give is what a connection begins with.
func (s *server) give(ctx context.Context) (given.Values, error) {
	v, turn, err := s.given.Now(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn = turn
	return v, err
}

// renew leaves a session that is stale, and has a server that is down be tried again
// with what it is given now. Errors wrap ErrNotExecuted.
func (s *server) renew(ctx context.Context) error {
	_, turn, err := s.given.Now(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	se, stale := s.se, s.turn != turn
	if stale && s.state == StateDown {
		s.anew()
	}
	s.mu.Unlock()
	if se == nil || !stale {
		return nil
	}
	if _, fixed := se.link.(*pipe.Pipe); fixed {
		select {
		case se.stale <- struct{}{}:
		default:
		}
		s.leave(se)
	}
	return nil
}

// Renew has what servers are given read again before the next call of each.
func (b *Backend) Renew() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.servers {
		s.given.Forget()
		s.owns.mu.Lock()
		for _, own := range s.owns.all {
			own.given.Forget()
		}
		s.owns.mu.Unlock()
	}
}

// part ends a session, one that is stale once its calls have ended.
func (s *server) part(ctx context.Context, se *session, why error) {
	program, _ := se.link.(*pipe.Pipe)
	if !errors.Is(why, errStale) || program == nil {
		se.link.Close(s.o.Grace)
		return
	}
	s.parting.Go(func() {
		const look = 50 * time.Millisecond
		for program.Works(math.MaxInt64) && pause.For(ctx, look) {
		}
		program.Close(s.o.Grace)
	})
}
