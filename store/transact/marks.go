package transact

import (
	"strings"
	"time"
)

// Marks is a list of n arguments, in parentheses.
func Marks(n int) string { return "(?" + strings.Repeat(", ?", n-1) + ")" }

// Nanos is a time as it is stored, 0 for the zero time.
func Nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// TimeAt is the time of Nanos.
func TimeAt(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
