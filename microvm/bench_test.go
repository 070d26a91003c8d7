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
)

// BenchmarkAnswer measures the time to the first line of a Python program, and to its
// result: from a snapshot ("restore"), from a snapshot in a VMM that was started before
// the call ("parked"), and in a guest that waits ("waiting"). Beside them it tells the
// machine's load.
func BenchmarkAnswer(b *testing.B) {
	for _, name := range []string{"restore", "parked", "waiting"} {
		b.Run(name, func(b *testing.B) {
			h := microvmtest.Open(b, func(c *microvm.Config) {
				switch name {
				case "parked":
					c.Parked = 1
				case "waiting":
					c.Warm = 1
				}
			})
			r := python("print(6*7)")
			var answered time.Time
			r.Told = func(bool, []byte) { answered = time.Now() }
			if err := h.Prepare(b.Context(), r); err != nil {
				b.Fatal(err)
			}
			var answers, results []time.Duration
			for b.Loop() {
				b.StopTimer()
				for end := time.Now().Add(20 * time.Second); name != "restore" && len(answers) > 0 && h.Waiting()+h.Parked() == 0 && time.Now().Before(end); {
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

func report(b *testing.B, what string, all []time.Duration) {
	slices.Sort(all)
	ms := func(i int) float64 { return float64(all[i].Microseconds()) / 1000 }
	b.ReportMetric(ms(0), what+"-min-ms")
	b.ReportMetric(ms(len(all)/2), what+"-p50-ms")
	b.ReportMetric(ms(len(all)-1), what+"-max-ms")
	load, _ := os.ReadFile("/proc/loadavg")
	b.Logf("%s: n=%d, load %s", what, len(all), strings.Fields(string(load))[0])
}
