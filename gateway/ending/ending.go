// Package ending tells who ended a call that did not come to its own end.
package ending

import (
	"context"
	"errors"

	"sallyport.dev/sallyport"
)

// By names who ended ctx, "" if it goes on or its time was up.
func By(ctx context.Context) string {
	if c, ok := errors.AsType[*sallyport.Cancellation](context.Cause(ctx)); ok {
		return c.By
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return "disconnect"
	}
	return ""
}

// Deserted reports whether nobody listens to a call that may go on.
func Deserted(req sallyport.Request) bool {
	select {
	case <-req.Gone: // never, where it is nil
		return true
	default:
		return false
	}
}
