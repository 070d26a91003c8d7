// Package pace says how long to wait before the next of several tries in a row.
package pace

import (
	"math/rand/v2"
	"time"
)

// Before is the pause before the nth try after the first: anything up to base,
// doubled for each try, at most most. The whole of it is left to chance ("full
// jitter"), so that those who lost a server at one moment do not come back to it
// at another.
func Before(n int, base, most time.Duration) time.Duration {
	d := Span(n, base, most)
	return rand.N(d + 1) //nolint:gosec // jitter needs no secrecy
}

// Span is the longest that Before returns.
func Span(n int, base, most time.Duration) time.Duration {
	d := min(base, most)
	for ; n > 1 && d < most; n-- {
		if d > most/2 {
			return most
		}
		d *= 2
	}
	return max(d, 0)
}
