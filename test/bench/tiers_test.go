package bench

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/isolate"
	"sallyport.dev/sallyport/isolate/isolatetest"
	"sallyport.dev/sallyport/microvm"
	"sallyport.dev/sallyport/microvm/microvmtest"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/tiertest"
	"sallyport.dev/sallyport/wasm"
	"sallyport.dev/sallyport/wasm/wasmtest"
)

// A contestant is one tier in the table of tiers.
type contestant struct {
	name string
	open func(b *testing.B, warm int) tier.Tier
	says tier.Request // prints 1
}

var contestants = []contestant{
	{"gvisor", func(b *testing.B, warm int) tier.Tier {
		return gvisortest.Open(b, func(c *gvisor.Config) { c.Warm = warm })
	}, python},
	{"microvm", func(b *testing.B, warm int) tier.Tier {
		return microvmtest.Open(b, func(c *microvm.Config) { c.Warm = warm })
	}, python},
	{"isolate", func(b *testing.B, warm int) tier.Tier {
		return isolatetest.Open(b, func(c *isolate.Config) { c.Warm = warm })
	}, tier.Request{Owner: "bench", Argv: []string{"main.js"}, Module: &tier.Module{Language: "javascript", Code: []byte("console.log(1)")}}},
	{"wasm", func(b *testing.B, warm int) tier.Tier {
		h, _ := wasmtest.Open(b, func(c *wasm.Config) { c.Warm = warm })
		return h
	}, tier.Request{Argv: []string{"main.wasm", "say", "1"}}},
}

var python = tier.Request{Image: "default", Argv: []string{"python3", "main.py"}, Files: []tier.File{{Path: "main.py", Content: []byte("print(1)\n")}}}

// BenchmarkTiers is the table of tiers, in one run: what a host's first run takes,
// what each one takes that has no sandbox which waits ("cold"; a restored snapshot
// where the tier has them), what one takes that has ("warm"), and what each that
// waits holds of memory.
func BenchmarkTiers(b *testing.B) {
	const n = 12
	for _, c := range contestants {
		c.says.Limits = sallyport.DefaultLimits()
		if c.name == "wasm" {
			c.says.Module = &tier.Module{Language: "wasm", Code: tiertest.Module(b)}
		}
		b.Run(c.name, func(b *testing.B) {
			var first, each float64
			var cold, warm []time.Duration
			for b.Loop() {
				none, one := c.open(b, 0), c.open(b, 1)
				first = ms(c.one(b, none))
				for range 3 {
					c.one(b, one)
				}
				for range n { // in turns
					cold = append(cold, c.one(b, none))
					c.settled(b, one, 1)
					if d, waited := c.timed(b, one); waited {
						warm = append(warm, d)
					}
				}
				if c, ok := one.(interface{ Close() error }); ok {
					_ = c.Close() // what waits is counted next
				}
				each = c.idle(b)
			}
			b.ReportMetric(first, "first-ms")
			report(b, "cold", cold)
			report(b, "warm", warm)
			b.ReportMetric(float64(len(warm)), "warm-runs")
			b.ReportMetric(each, "MiB/idle")
			b.ReportMetric(0, "ns/op")
			b.Logf("load %s", loadNow())
		})
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// one runs it once.
func (c contestant) one(b *testing.B, h tier.Tier) time.Duration {
	d, _ := c.timed(b, h)
	return d
}

func (c contestant) timed(b *testing.B, h tier.Tier) (took time.Duration, waited bool) {
	began := time.Now()
	res, err := h.Run(b.Context(), c.says)
	took = time.Since(began)
	if err != nil || res.ExitCode != 0 || string(res.Stdout) != "1\n" {
		b.Fatalf("%s: %v: %+v", c.name, err, res)
	}
	return took, res.Receipt.Warm
}

// settled waits until so many sandboxes wait, and nothing is going on. One that
// could not be made is made at the next run only.
func (c contestant) settled(b *testing.B, h tier.Tier, n int) {
	w, ok := h.(interface{ Waiting() int })
	for next, deadline := time.Now().Add(10*time.Second), time.Now().Add(2*time.Minute); ok && w.Waiting() < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("%d of %d wait", w.Waiting(), n)
		}
		if time.Now().After(next) {
			c.one(b, h)
			next = time.Now().Add(10 * time.Second)
		}
	}
	time.Sleep(map[bool]time.Duration{true: 50 * time.Millisecond, false: refilled}[ok])
}

// idle is what a sandbox that waits costs: the proportional set size of all processes
// in the control groups of those of this test, of which there is one for each.
func (c contestant) idle(b *testing.B) float64 {
	const n = 4
	h := c.open(b, n)
	for range 2 * n { // its pool grows with demand
		c.one(b, h)
		c.settled(b, h, 1)
	}
	time.Sleep(2 * time.Second)
	sum, groups := waitingPSS(b)
	return float64(sum) / float64(groups) / (1 << 20)
}

// group is the control group of one sandbox.
var group = regexp.MustCompile(`/sallyport/[^/\s]+/[^/\s]+`)

// waitingPSS sums the proportional set size of what descends from this process and
// is in a control group of a sandbox, and counts those.
func waitingPSS(b *testing.B) (sum int64, groups int) {
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		b.Fatal(err)
	}
	children := map[string][]string{}
	for _, f := range all {
		s, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(s), ") ")
		parent := strings.Fields(rest)[1]
		children[parent] = append(children[parent], filepath.Base(filepath.Dir(f)))
	}
	seen := map[string]bool{}
	for next := slices.Clone(children[strconv.Itoa(os.Getpid())]); len(next) > 0; next = next[1:] {
		next = append(next, children[next[0]]...)
		own, _ := os.ReadFile("/proc/" + next[0] + "/cgroup")
		g := group.FindString(string(own))
		if g == "" {
			continue
		}
		seen[g] = true
		rollup, _ := os.ReadFile("/proc/" + next[0] + "/smaps_rollup")
		for line := range strings.Lines(string(rollup)) {
			if f := strings.Fields(line); len(f) == 3 && f[0] == "Pss:" {
				kib, _ := strconv.ParseInt(f[1], 10, 64)
				sum += kib << 10
			}
		}
	}
	if len(seen) == 0 {
		b.Fatal("no sandbox waits")
	}
	return sum, len(seen)
}
