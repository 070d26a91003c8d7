package isolate

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/cage/cagetest"
	"sallyport.dev/sallyport/isolate/workerd"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/realtest"
)

func openHost(b testing.TB) *Host {
	b.Helper()
	realtest.Root(b)
	if _, err := os.Stat(workerd.Path(realtest.Cache())); err != nil {
		b.Skip("skipped: no workerd; `make build` fetches it")
	}
	h, err := Open(Config{House: cagetest.Open(b, realtest.Dir(b)), Cache: realtest.Cache(), Warm: 2})
	if err != nil {
		b.Fatal(err)
	}
	h.again = await.Patience
	b.Cleanup(func() { h.Close() })
	return h
}

// middle reports the median.
func middle(b *testing.B, all []time.Duration, unit string) {
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, unit)
}

// Calls in processes that wait, in turns: of a module that was called before, whose
// isolate is made ahead, of a script that prints, and of another module each time. Beside them a bare round trip to
// such a process, which makes no isolate.
func BenchmarkCall(b *testing.B) {
	h := openHost(b)
	h.shelf.max = 3 // a process for each
	l := sallyport.DefaultLimits()
	took := map[string][]time.Duration{}
	n := 0
	call := func(owner, code string) {
		r := tier.Request{
			Owner: owner, Argv: []string{"main.js"}, Stdin: []byte(`{"items":[1,2,3]}`), Limits: l,
			Module: &tier.Module{Language: "javascript", Code: []byte(code)},
		}
		began := time.Now()
		res, err := h.Run(b.Context(), r)
		if err != nil || string(res.Stdout) != "{\"sum\":6}\n" {
			b.Fatalf("%+v, %v", res, err)
		}
		if res.Receipt.Warm && n > 2 {
			took[owner] = append(took[owner], time.Since(began))
		}
		time.Sleep(10 * time.Millisecond) // whoever called reads the answer
	}
	const code = `export default ({items}) => ({sum: items.reduce((a, b) => a + b, 0)})`
	for b.Loop() {
		call("same", code)
		call("prints", `console.log('{"sum":6}')`)
		call("another", fmt.Sprintf("%s // %d", code, n))
		n++
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
		took["bare"] = append(took["bare"], time.Since(began))
	}
	for name, all := range took {
		middle(b, all, name+"-p50-ms")
	}
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
