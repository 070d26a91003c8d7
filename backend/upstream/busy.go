package upstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/outcome"
	"sallyport.dev/sallyport/backend/upstream/turn"
)

// However many calls come, a server is one program, with so many calls at once;
// more wait in line, and when the line is full they are told to come back.

// comeBack is how long a call that found the line full is told to wait.
const comeBack = time.Second

// enter takes one of the server's places, and waits for one if there is room in
// the line. Errors wrap ErrNotExecuted.
func (s *server) enter(ctx context.Context, who sallyport.Principal) (leave func(), err error) {
	leave, err = s.line.Enter(ctx, who.Tenant+" "+who.ID)
	at, queue, wait := s.line.Bounds()
	switch {
	case errors.Is(err, turn.ErrFull):
		return nil, s.busy("try again after retry_after; an operator can raise calls and queue of the server", "has %d calls at once and %d more that wait", at, queue)
	case errors.Is(err, turn.ErrLong):
		return nil, s.busy("try again after retry_after; an operator can raise calls and wait of the server",
			"has had %d calls at once for %v, and none of their places came free for this one", at, wait)
	case err != nil:
		return nil, outcome.NotSent(err)
	}
	return leave, nil
}

// busy tells a call to come back. what says of the server why.
func (s *server) busy(hint, what string, args ...any) error {
	return &sallyport.Error{
		Code: sallyport.RateLimited, Step: sallyport.Execute, RetryAfter: comeBack, Err: sallyport.ErrNotExecuted,
		Message: fmt.Sprintf("server %q ", s.Name) + fmt.Sprintf(what, args...), Hint: hint,
	}
}
