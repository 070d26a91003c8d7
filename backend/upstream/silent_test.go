package upstream_test

import (
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/test/await"
)

// Whoever added a server that says nothing is told so, with its last words and
// what it may be waiting for.
func TestASilentServerIsExplained(t *testing.T) {
	t.Parallel()
	o := options()
	o.Probe, o.Connect = 100*time.Millisecond, 300*time.Millisecond
	b := open(t, o, upstream.Config{Name: "mute", Isolation: "none",
		Argv: []string{"/bin/sh", "-c", "echo fetching >&2; echo fetching >&2; exec sleep 1000"}})
	var said string
	await.That(t, "it is told with its last words", func() bool {
		said = status(t, b, "mute").Error
		return strings.Contains(said, "last words")
	})
	for _, want := range []string{"not answered within 300ms", "its last words: fetching;", "--env"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q lacks %q", said, want)
		}
	}
}
