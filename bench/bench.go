// Package bench measures what the gateway costs, beside a direct call and
// beside a plain reverse proxy, on the same upstream in one run; and how long
// a sandbox lives for a trivial program. Machines are shared and noisy: the
// ratios are worth keeping, the absolute times are not.
package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// Options say what to measure. Zero fields mean the defaults.
type Options struct {
	Self   []string // command line of this program
	Out    io.Writer
	Rounds int           // interleaved rounds per target: 3
	Length time.Duration // of one round: 2 s
	Lives  int           // sandbox runs per program: 30
}

// A Report is everything that was measured.
type Report struct {
	Load      string             `json:"load"` // of the machine, before and after
	Calls     []Calls            `json:"calls"`
	Ratios    map[string]float64 `json:"ratios"`
	Sandboxes []Lives            `json:"sandboxes"`
}

// Calls are the figures of one way to the echo upstream.
type Calls struct {
	Way    string  `json:"way"` // direct, proxy, governed read-only, governed mutating
	Client string  `json:"client"`
	C      int     `json:"concurrency"`
	N      int     `json:"n"`
	Errors int     `json:"errors"`
	P50    float64 `json:"p50_us"`
	P99    float64 `json:"p99_us"`
	RPS    float64 `json:"rps"`
	CPU    float64 `json:"cpu_us_per_call"` // of the process in the middle
}

// Lives are the figures of one program's whole life in a sandbox.
type Lives struct {
	Program string  `json:"program"`
	N       int     `json:"n"`
	Min     float64 `json:"min_ms"`
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
}

// Run measures and prints a report.
func Run(ctx context.Context, o Options) (Report, error) {
	if o.Rounds == 0 {
		o.Rounds = 3
	}
	if o.Length == 0 {
		o.Length = 2 * time.Second
	}
	if o.Lives == 0 {
		o.Lives = 30
	}
	r := Report{Load: load(), Ratios: map[string]float64{}}
	s, err := start(ctx, o)
	if err != nil {
		return r, err
	}
	defer s.close()
	for _, c := range []int{1, 32} {
		fmt.Fprintf(o.Out, "calls at concurrency %d …\n", c)
		calls, err := s.calls(ctx, o, c)
		if err != nil {
			return r, err
		}
		r.Calls = append(r.Calls, calls...)
	}
	fmt.Fprintf(o.Out, "sandboxes, %d lives each …\n", o.Lives)
	if r.Sandboxes, err = s.lives(ctx, o); err != nil {
		return r, err
	}
	r.Load += " → " + load()
	r.compare()
	return r, nil
}

// compare fills in the ratios that docs/spec.md promises.
func (r *Report) compare() {
	at := func(way string, c int) Calls {
		i := slices.IndexFunc(r.Calls, func(x Calls) bool { return x.Way == way && x.C == c })
		return r.Calls[i]
	}
	direct, proxy, governed := at("direct", 1), at("proxy", 1), at("governed read-only", 1)
	r.Ratios["c=1: governed p50 / direct p50"] = governed.P50 / direct.P50
	r.Ratios["c=1: what governed adds / what the proxy adds"] = (governed.P50 - direct.P50) / (proxy.P50 - direct.P50)
	r.Ratios["c=1: mutating p50 / read-only p50"] = at("governed mutating", 1).P50 / governed.P50
	r.Ratios["c=1: governed CPU / proxy CPU"] = governed.CPU / proxy.CPU
	r.Ratios["c=32: governed rps / proxy rps"] = at("governed read-only", 32).RPS / at("proxy", 32).RPS
}

// Print writes the report for a person.
func (r Report) Print(w io.Writer) {
	fmt.Fprintf(w, "\nload average: %s\n\n%-20s %4s %8s %8s %8s %8s %10s %7s\n", r.Load, "way", "c", "calls", "p50 µs", "p99 µs", "calls/s", "CPU µs", "errors")
	for _, c := range r.Calls {
		fmt.Fprintf(w, "%-20s %4d %8d %8.0f %8.0f %8.0f %10.0f %7d\n", c.Way, c.C, c.N, c.P50, c.P99, c.RPS, c.CPU, c.Errors)
	}
	names := make([]string, 0, len(r.Ratios))
	for n := range r.Ratios {
		names = append(names, n)
	}
	slices.Sort(names)
	fmt.Fprintln(w)
	for _, n := range names {
		fmt.Fprintf(w, "%-48s %.2f\n", n, r.Ratios[n])
	}
	fmt.Fprintf(w, "\n%-28s %4s %8s %8s %8s\n", "whole life in gVisor", "n", "min ms", "p50 ms", "p99 ms")
	for _, l := range r.Sandboxes {
		fmt.Fprintf(w, "%-28s %4d %8.0f %8.0f %8.0f\n", l.Program, l.N, l.Min, l.P50, l.P99)
	}
}

func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(b))[:3], " ")
}

// percentile of sorted values.
func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// echo is what every call sends: about 1 KB, as calls often are.
func echo() json.RawMessage {
	b, err := json.Marshal(map[string]string{"message": strings.Repeat("one kilobyte of text. ", 45)})
	if err != nil {
		panic(err) // a string marshals
	}
	return b
}
