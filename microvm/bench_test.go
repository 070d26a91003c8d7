package microvm_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/microvm"
	"sallyport.dev/sallyport/microvm/microvmtest"
	"sallyport.dev/sallyport/tier"
)

// BenchmarkAnswer measures the time to the first line of a Python program, from a
// snapshot ("restore") and in a guest that waits ("waiting"), and to its result.
// Beside them it tells the machine's load.
func BenchmarkAnswer(b *testing.B) {
	for name, warm := range map[string]int{"restore": 0, "waiting": 1} {
		b.Run(name, func(b *testing.B) {
			h := microvmtest.Open(b, func(c *microvm.Config) { c.Warm = warm })
			r := python("print(6*7)")
			var answered time.Time
			r.Told = func(bool, []byte) { answered = time.Now() }
			if err := h.Prepare(b.Context(), r); err != nil {
				b.Fatal(err)
			}
			var answers, results []time.Duration
			for b.Loop() {
				b.StopTimer()
				for end := time.Now().Add(20 * time.Second); warm > 0 && len(answers) > 0 && h.Waiting() == 0 && time.Now().Before(end); {
					time.Sleep(5 * time.Millisecond)
				}
				b.StartTimer()
				began := time.Now()
				res, err := h.Run(b.Context(), r)
				if err != nil || !bytes.Equal(res.Stdout, []byte("42\n")) {
					b.Fatal(err, res)
				}
				answers, results = append(answers, answered.Sub(began)), append(results, time.Since(began))
			}
			report(b, "answer", answers)
			report(b, "result", results)
		})
	}
}

// BenchmarkFork measures how long the source of a fork is held.
func BenchmarkFork(b *testing.B) {
	h := microvmtest.Open(b)
	s, err := h.OpenSession(b.Context(), request("-"))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Run(b.Context(), "python", []byte("import json, random; x = list(range(100000))"), nil); err != nil {
		b.Fatal(err)
	}
	var paused []time.Duration
	for b.Loop() {
		f, err := s.Fork(b.Context(), tier.Way{})
		if err != nil {
			b.Fatal(err)
		}
		paused = append(paused, f.Paused)
		f.Siblings[0].Close()
	}
	report(b, "paused", paused)
}

func report(b *testing.B, what string, all []time.Duration) {
	slices.Sort(all)
	ms := func(i int) float64 { return float64(all[i].Microseconds()) / 1000 }
	b.ReportMetric(ms(0), what+"-min-ms")
	b.ReportMetric(ms(len(all)/2), what+"-p50-ms")
	b.ReportMetric(ms(len(all)-1), what+"-max-ms")
	load, _ := os.ReadFile("/proc/loadavg")
	b.Logf("%s: n=%d, load %s", what, len(all), strings.Fields(string(load))[0])
}
