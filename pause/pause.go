// Package pause waits, as long as that is wanted.
package pause

import (
	"context"
	"sync"
	"time"
)

// Then has f run after d. stop keeps it from that, or waits for its end.
func Then(d time.Duration, f func()) (stop func()) {
	ended := make(chan struct{})
	t := time.AfterFunc(d, func() {
		defer close(ended)
		f()
	})
	return sync.OnceFunc(func() {
		if !t.Stop() {
			<-ended
		}
	})
}

// For waits for d. It returns false at once where ctx ends before.
func For(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
