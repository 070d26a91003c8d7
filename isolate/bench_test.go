package isolate

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/cage/cagetest"
	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/isolate/workerd"
	"sallyport.dev/sallyport/tier"
)

func openHost(b testing.TB) *Host {
	b.Helper()
	programs := cagetest.Programs(b)
	if _, err := os.Stat(workerd.Path(gvisortest.Cache())); err != nil {
		b.Skip("skipped: no workerd; `make build` fetches it")
	}
	dir, err := os.MkdirTemp("", "iso")
	if err != nil {
		b.Fatal(err)
	}
	h, err := Open(Config{Programs: programs, Cache: gvisortest.Cache(), Dir: filepath.Join(dir, "run"), Warm: 2})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { h.Close(); os.RemoveAll(dir) })
	return h
}

// middle reports the median, and what else is told of it.
func middle(b *testing.B, all []time.Duration, unit string) time.Duration {
	slices.Sort(all)
	p50 := all[len(all)/2]
	b.ReportMetric(float64(p50.Microseconds())/1000, unit)
	return p50
}

// A call in a process that waits, beside a bare round trip to the same process,
// which makes no isolate: what is more is the isolate's.
func BenchmarkCall(b *testing.B) {
	h := openHost(b)
	l := sallyport.DefaultLimits()
	r := tier.Request{
		Owner: "owner", Argv: []string{"main.js"}, Stdin: []byte(`{"items":[1,2,3]}`), Limits: l,
		Module: &tier.Module{Language: "javascript", Code: []byte(`export default ({items}) => ({sum: items.reduce((a, b) => a + b, 0)})`)},
	}
	var calls, bare []time.Duration
	warm := 0
	for b.Loop() {
		began := time.Now()
		res, err := h.Run(b.Context(), r)
		if err != nil || string(res.Stdout) != "{\"sum\":6}\n" {
			b.Fatalf("%+v, %v", res, err)
		}
		if res.Receipt.Warm {
			calls = append(calls, time.Since(began))
			warm++
		}
		time.Sleep(2 * time.Millisecond) // whoever called reads the answer
	}
	p, err := h.start(kind{memory: l.Memory, cpus: l.CPUs})
	if err != nil {
		b.Fatal(err)
	}
	defer p.end()
	for range 200 {
		began := time.Now()
		if err := p.ping(context.Background()); err != nil {
			b.Fatal(err)
		}
		bare = append(bare, time.Since(began))
	}
	if len(calls) == 0 {
		b.Skip("too few calls")
	}
	call, ping := middle(b, calls, "p50-ms"), middle(b, bare, "bare-p50-ms")
	b.ReportMetric(float64(call)/float64(ping), "ratio")
	b.ReportMetric(float64(p.resident())/1e6, "idle-MB")
}

// From nothing to a process that serves.
func BenchmarkProcess(b *testing.B) {
	h := openHost(b)
	l := sallyport.DefaultLimits()
	var all []time.Duration
	for b.Loop() {
		began := time.Now()
		p, err := h.start(kind{memory: l.Memory, cpus: l.CPUs})
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, time.Since(began))
		p.end()
	}
	middle(b, all, "p50-ms")
}
