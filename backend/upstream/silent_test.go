package upstream_test

import (
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/backend/upstream"
)

// Whoever added a server that says nothing is told so, with its last words and
// what it may be waiting for.
func TestASilentServerIsExplained(t *testing.T) {
	o := options()
	o.Probe, o.Connect = 100*time.Millisecond, 300*time.Millisecond
	b := open(t, o, upstream.Config{Name: "mute", Isolation: "none",
		Argv: []string{"/bin/sh", "-c", "echo fetching >&2; echo fetching >&2; exec sleep 1000"}})
	var said string
	for until := time.Now().Add(30 * time.Second); !strings.Contains(said, "last words") && time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		if s := status(t, b, "mute"); s.Error != "" {
			said = s.Error
		}
	}
	for _, want := range []string{"not answered within 300ms", "its last words: fetching;", "--env"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q lacks %q", said, want)
		}
	}
}
