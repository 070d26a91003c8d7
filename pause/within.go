package pause

import (
	"context"
	"time"
)

// parts is into how many a time is cut. Where the process does not run, no more than
// one of them passes.
const parts = 10

// Within is context.WithTimeout for work that needs the processor: while the whole
// process is kept from running, on a machine that is too busy or was suspended, the
// time stands still. The cause of a context whose time is up is
// context.DeadlineExceeded; its Err is context.Canceled.
func Within(parent context.Context, d time.Duration) (ctx context.Context, end context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	left := parts
	var part *time.Timer
	armed := make(chan struct{})
	part = time.AfterFunc(d/parts, func() {
		<-armed
		if left--; left <= 0 {
			cancel(context.DeadlineExceeded)
		} else if ctx.Err() == nil {
			part.Reset(d / parts)
		}
	})
	close(armed)
	return ctx, func() {
		part.Stop()
		cancel(nil)
	}
}
