// Package pause waits, as long as that is wanted.
package pause

import (
	"context"
	"time"
)

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
