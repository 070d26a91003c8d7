package cli

import "testing"

// A failure is one for whoever looks at the status, whatever a module's was.
func TestStatusesThatDoNotFit(t *testing.T) {
	for n, want := range map[int]int{0: 0, 1: 1, 255: 255, 256: 255, 1 << 16: 255, 1<<31 - 1: 255, -1: 255} {
		if got := ExitCode(Exit(n)); got != want {
			t.Errorf("%d: %d, want %d", n, got, want)
		}
	}
}
