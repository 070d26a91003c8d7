package session_test

import (
	"testing"
	"time"

	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/gvisor/session"
)

// A call in a session that is awake, and the first one after a rest.
func BenchmarkSession(b *testing.B) {
	x := session.Open(session.Config{Host: gvisortest.Open(b), Max: 2, PerOwner: 2, Idle: time.Hour, Life: time.Hour, Dir: b.TempDir()})
	defer x.Close()
	run := func(b *testing.B, lang, code string) {
		b.Helper()
		if _, err := x.Run(b.Context(), call("a", "s", lang, code)); err != nil {
			b.Fatal(err)
		}
	}
	for lang, code := range map[string]string{"python": "print(1)", "javascript": "console.log(1)", "shell": "echo 1"} {
		b.Run(lang, func(b *testing.B) {
			run(b, lang, code)
			for b.Loop() {
				run(b, lang, code)
			}
		})
	}
}
