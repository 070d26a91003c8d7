package asked

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/pause"
	"sallyport.dev/sallyport/wire"
	"sallyport.dev/sallyport/wire/ask"
)

// ErrMalformed is a server's answer that is not what the protocol says.
var ErrMalformed = errors.New("malformed answer")

const (
	maxShed = 3                      // times that a server says no more than "come back"
	rest    = 100 * time.Millisecond // before the first of them is obeyed, doubled
	visit   = 5 * time.Second        // for a user at an address, before the server is asked again
)

// Converse makes a request of a job with send, and makes it again as often as its
// server asks for something first. more are members for the request made again. The
// desk is that of a session; without one the server is stateless.
func Converse(ctx context.Context, job sallyport.Job, desk *Desk, send func(more []byte) (wire.Message, error)) (wire.Message, error) {
	var more []byte
	for shed := 0; shed < MaxRounds; shed++ {
		m, err := send(more)
		if err != nil {
			return m, err
		}
		if urls := URLFirst(m.Error); urls != nil && desk != nil && job.Can.URL {
			if err := desk.Send(ctx, urls, visit); err != nil {
				return m, err
			}
			continue
		}
		required, asks, err := ask.ReadRequired(m.Result)
		if !asks || desk != nil {
			return m, nil
		}
		switch {
		case err != nil:
		case len(required.Questions) == 0:
			if shed >= maxShed {
				err = fmt.Errorf("it said %d times no more than that the call was to be made again", shed)
			} else if !pause.For(ctx, rest<<shed) {
				return m, ctx.Err()
			}
		case job.Ask == nil:
			err = fmt.Errorf("it asks for %s, though the call's client cannot be asked", required.Questions[0].Method)
		}
		if err != nil {
			return m, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		if more, err = fulfil(ctx, job, required); err != nil {
			return m, err
		}
	}
	return wire.Message{}, fmt.Errorf("%w: it asked more than %d times", ErrMalformed, MaxRounds)
}

// fulfil gets what a server requires, as members of the next request.
func fulfil(ctx context.Context, job sallyport.Job, required ask.Required) ([]byte, error) {
	if len(required.Questions) == 0 {
		return required.AppendRetry(nil, nil), nil
	}
	answers, err := job.Ask(ctx, required.Questions)
	if err != nil {
		return nil, err
	}
	for _, a := range answers {
		if a.Result == nil {
			return nil, Refused(a)
		}
	}
	return required.AppendRetry(nil, answers), nil
}

// Level is the level of log lines that a server with sessions was told, shared by
// all callers of its session; each hears only what it asked for.
type Level struct {
	mu   sync.Mutex
	told bool
	rank int
}

// Lower has the server log what a caller wants to hear, and never less.
func (l *Level) Lower(name string, tell func(params json.RawMessage) error) {
	rank := wire.LogRank(name)
	l.mu.Lock()
	defer l.mu.Unlock()
	if rank >= 0 && (!l.told || rank < l.rank) && tell(json.RawMessage(`{"level":"`+name+`"}`)) == nil {
		l.told, l.rank = true, rank
	}
}
