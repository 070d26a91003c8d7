// Package await waits in tests for what happens in its own time.
package await

import (
	"testing"
	"time"
)

// Patience is how long: far beyond what a loaded machine takes.
const Patience = time.Minute

// That returns once ok does, and fails the test if that is never so. what says, in
// the words of a statement, what did not come about.
func That(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", Patience, what)
		}
	}
}

// Longer calls try with a time for something to happen in, until try says that it
// was enough: a short one where the machine is quiet, and in the end one that is far
// beyond what a loaded machine takes. The last try is to be judged.
func Longer(first time.Duration, try func(time.Duration) (enough bool)) {
	for d := first; !try(d) && d < Patience; d *= 4 {
	}
}
