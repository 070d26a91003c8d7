// Package standing looks, while a call runs or waits, whether its agent is still one:
// what a stopped agent began does not go on, and it is told nothing more.
package standing

import (
	"context"
	"errors"
	"sync"
	"time"

	"sallyport.dev/sallyport"
)

// Every is how often it is looked. A shorter call is not looked at again.
const Every = 10 * time.Second

// Lost is by whom a call is cancelled whose agent was stopped.
const Lost = "revocation"

// An Authenticator says who sent a credential. (gateway)
type Authenticator interface {
	Authenticate(ctx context.Context, profile, bearer string) (sallyport.Principal, error)
}

// Watch returns a context that ends with ctx, or when the agent of a request was
// stopped since. A credential that has merely run out ends nothing, nor does a store
// that cannot be asked. cancel ends it for another reason. The caller must call over.
func Watch(ctx context.Context, a Authenticator, req sallyport.Request) (watched context.Context, cancel context.CancelCauseFunc, over func()) {
	watched, cancel = context.WithCancelCause(ctx)
	w := &watch{ask: func() bool {
		_, err := a.Authenticate(watched, req.Profile, req.Credential)
		return errors.Is(err, sallyport.ErrRevoked)
	}, lost: func() { cancel(&sallyport.Cancellation{By: Lost}) }}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next = time.AfterFunc(Every, w.look)
	return watched, cancel, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.over = true
		w.next.Stop()
		cancel(nil)
	}
}

type watch struct {
	ask  func() (stopped bool)
	lost func()

	mu   sync.Mutex // guards what follows
	next *time.Timer
	over bool
}

func (w *watch) look() {
	if w.ask() {
		w.lost()
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.next.Reset(Every)
	}
}
