package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/isolate"
	"sallyport.dev/sallyport/isolate/isolatetest"
	"sallyport.dev/sallyport/microvm"
	"sallyport.dev/sallyport/microvm/microvmtest"
	"sallyport.dev/sallyport/test/proc"
	"sallyport.dev/sallyport/test/stage"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/wasm"
	"sallyport.dev/sallyport/wasm/wasmtest"
)

// A contestant is one tier in the table of tiers.
type contestant struct {
	name  string
	open  func(b *testing.B, warm int) tier.Tier
	fresh func(b *testing.B) tier.Tier // with none of what earlier hosts have kept; nil: open keeps nothing
	says  tier.Request                 // prints 1
	tool  string                       // the same through MCP
	args  map[string]any
}

var contestants = []contestant{
	{name: "gvisor", open: func(b *testing.B, warm int) tier.Tier {
		return gvisortest.Open(b, func(c *gvisor.Config) { c.Warm = warm })
	}, says: python, tool: "run_python", args: map[string]any{"code": "print(1)"}},
	{name: "microvm", open: func(b *testing.B, warm int) tier.Tier {
		return microvmtest.Open(b, func(c *microvm.Config) { c.Warm = warm })
	}, fresh: func(b *testing.B) tier.Tier {
		return microvmtest.Open(b, func(c *microvm.Config) { c.Cache = kernelsOnly(b, c.Cache) })
	}, says: python, tool: "run_python", args: map[string]any{"code": "print(1)", "tier": sallyport.TierMicroVM}},
	{name: "isolate", open: func(b *testing.B, warm int) tier.Tier {
		return isolatetest.Open(b, func(c *isolate.Config) { c.Warm = warm })
	}, says: tier.Request{Owner: "bench", Argv: []string{"main.js"}, Module: &tier.Module{Language: "javascript", Code: []byte("console.log(1)")}},
		tool: "run_javascript", args: map[string]any{"code": "console.log(1)", "tier": sallyport.TierIsolate}},
	{name: "wasm", open: func(b *testing.B, warm int) tier.Tier {
		h, _ := wasmtest.Open(b, func(c *wasm.Config) { c.Warm = warm })
		return h
	}, says: tier.Request{Argv: []string{"main.wasm"}}, tool: "one", args: map[string]any{}},
}

var python = tier.Request{Image: "default", Argv: []string{"python3", "main.py"}, Files: []tier.File{{Path: "main.py", Content: []byte("print(1)\n")}}}

// prints1 is a module of Go, of 1.5 MB: most of what it takes is the start of Go's own runtime.
const prints1 = `package main

import "os"

func main() { os.Stdout.WriteString("1\n") }
`

// kernelsOnly is a cache that has the guest kernels of another, and no snapshots.
func kernelsOnly(b *testing.B, cache string) string {
	dir := b.TempDir()
	if err := os.Symlink(filepath.Join(cache, "kernels"), filepath.Join(dir, "kernels")); err != nil {
		b.Fatal(err)
	}
	return dir
}

// A row is what one tier takes, and holds.
type row struct {
	first                     time.Duration
	cold, warm, calls, starts []time.Duration
	idle                      float64 // MiB
}

// BenchmarkTiers is the table of tiers, in one run: what a host's first run takes
// ("first": a microVM is booted, a module compiled), what each one takes that has no
// sandbox which waits ("cold"; a microVM is restored from its snapshot), what one takes
// that has ("warm"), both again as calls of an agent through MCP, and what each that
// waits holds of memory. Calls take turns.
func BenchmarkTiers(b *testing.B) {
	const n = 12
	module := wasmtest.Go(b, prints1)
	rows := make([]row, len(contestants))
	for i, c := range contestants {
		c.says.Limits = sallyport.DefaultLimits()
		if c.name == "wasm" {
			c.says.Module = &tier.Module{Language: "wasm", Code: module}
		}
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				rows[i] = c.measure(b, n)
			}
			rows[i].report(b)
		})
	}
	b.Run("through MCP", func(b *testing.B) {
		for b.Loop() {
			callThroughMCP(b, module, rows, n)
		}
		for i, c := range contestants {
			report(b, c.name+"-warm", rows[i].calls)
			report(b, c.name+"-cold", rows[i].starts)
		}
		b.ReportMetric(0, "ns/op")
		b.Logf("load %s", loadNow())
	})
	b.Log("\n" + tableOf(rows))
}

// measure takes the row of a tier, without calls.
func (c contestant) measure(b *testing.B, n int) (r row) {
	none, one := c.open(b, 0), c.open(b, 1)
	if c.fresh == nil {
		r.first = c.one(b, none)
	} else {
		r.first = c.one(b, c.fresh(b))
	}
	for range 3 {
		c.one(b, none)
		c.one(b, one)
	}
	for range n { // in turns
		r.cold = append(r.cold, c.one(b, none))
		c.settled(b, one, 1)
		if d, waited := c.timed(b, one); waited {
			r.warm = append(r.warm, d)
		}
	}
	if c, ok := one.(interface{ Close() error }); ok {
		_ = c.Close() // what waits is counted next
	}
	r.idle = c.idle(b)
	return r
}

func (r row) report(b *testing.B) {
	b.ReportMetric(ms(r.first), "first-ms")
	report(b, "cold", r.cold)
	report(b, "warm", r.warm)
	b.ReportMetric(float64(len(r.warm)), "warm-runs")
	b.ReportMetric(r.idle, "MiB/idle")
	b.ReportMetric(0, "ns/op")
	b.Logf("load %s", loadNow())
}

// callThroughMCP calls each tier's tool as an agent does, on a gateway whose sandboxes
// wait and on one that starts each for its call.
func callThroughMCP(b *testing.B, module []byte, rows []row, n int) {
	sessions := map[bool]*mcp.ClientSession{}
	for _, warm := range []bool{true, false} {
		g := stage.New(b)
		g.Write("sallyport.yaml", g.Config(fmt.Sprintf("sandbox: {warm: %d}\nlimits: {rate: 100000, burst: 100000}\n", map[bool]int{true: 4}[warm])))
		g.Write("tools/one.wasm", string(module))
		g.Write("tools/one.yaml", fmt.Sprintf(oneTool, wasmtest.Digest(module)))
		g.Start()
		sessions[warm] = client(b, g.URL+"/mcp", g.Token(""))
	}
	for i, c := range contestants {
		for range 4 { // the first calls of a kind make what later ones are made of
			for _, s := range sessions {
				run(b, s, c.tool, c.args)
			}
			time.Sleep(4 * refilled)
		}
		for range n {
			for _, warm := range []bool{true, false} {
				if time.Sleep(2 * refilled); c.name == "microvm" {
					time.Sleep(2 * refilled)
				}
				switch took, waited := run(b, sessions[warm], c.tool, c.args); {
				case warm && waited:
					rows[i].calls = append(rows[i].calls, took)
				case !warm:
					rows[i].starts = append(rows[i].starts, took)
				}
			}
		}
	}
}

const oneTool = `
name: one
description: Prints one, so that somebody can see how long that takes.
language: wasm
module: one.wasm
digest: sha256:%s
trust: light
input_schema: {type: object, additionalProperties: false}
`

// tableOf is the table as docs/spec.md has it: p50 and p99 in ms.
func tableOf(rows []row) string {
	var t strings.Builder
	fmt.Fprintln(&t, "| tier | first | cold, or restored | one that waits | call through MCP, one that waits | the same, cold | MiB of one that waits |\n|---|---|---|---|---|---|---|")
	for i, r := range rows {
		fmt.Fprintf(&t, "| %s | %.0f | %s | %s | %s | %s | %.0f |\n", contestants[i].name, ms(r.first), both(r.cold), both(r.warm), both(r.calls), both(r.starts), r.idle)
	}
	return t.String() + "load " + loadNow()
}

func both(all []time.Duration) string {
	if len(all) == 0 {
		return "–"
	}
	slices.Sort(all)
	return fmt.Sprintf("%.1f, %.1f", ms(all[len(all)/2]), ms(all[len(all)-1]))
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
	seen := map[string]bool{}
	for _, pid := range proc.Descendants(b, os.Getpid()) {
		of := "/proc/" + strconv.Itoa(pid)
		own, _ := os.ReadFile(of + "/cgroup")
		g := group.FindString(string(own))
		if g == "" {
			continue
		}
		seen[g] = true
		rollup, _ := os.ReadFile(of + "/smaps_rollup")
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
