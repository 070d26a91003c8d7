package session_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/tier/session"
	"sallyport.dev/sallyport/tier/stay"
)

// A call in a session that is awake, and the first one after a rest.
func BenchmarkSession(b *testing.B) {
	x := session.Open(session.Config{Hosts: map[string]stay.Host{sallyport.TierGVisor: gvisortest.Open(b)}, Max: 2, PerOwner: 2, Idle: time.Hour, Life: time.Hour, Dir: b.TempDir()})
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

// BenchmarkFork measures how long the source of a fork is held.
func BenchmarkFork(b *testing.B) {
	x, _ := vmPlace(b)
	c := inMicroVM("a", "s", "python", "import json, random; x = list(range(100000))")
	if _, err := x.Run(b.Context(), c); err != nil {
		b.Fatal(err)
	}
	var paused []float64
	for b.Loop() {
		name := fmt.Sprint("t", len(paused))
		held, err := x.Fork(b.Context(), c.Key, nil, []string{name})
		if err == nil {
			err = x.End(session.Key{Owner: "a", Name: name})
		}
		if err != nil {
			b.Fatal(err)
		}
		paused = append(paused, float64(held.Microseconds())/1000)
	}
	slices.Sort(paused)
	for name, i := range map[string]int{"min": 0, "p50": len(paused) / 2, "max": len(paused) - 1} {
		b.ReportMetric(paused[i], name+"-ms-held")
	}
	load, _ := os.ReadFile("/proc/loadavg")
	b.Logf("load %s", strings.Fields(string(load))[0])
}
