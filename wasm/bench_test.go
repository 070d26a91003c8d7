package wasm_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/wasm"
	"sallyport.dev/sallyport/wasm/wasmtest"
)

// The time of one run: of a child that waited, of one that is started with a module
// that was compiled before, and with one that has to be compiled. The first two are
// those of a small module and of one that Go built (2.7 MB).
func BenchmarkRun(b *testing.B) {
	small := wasmtest.Module{Pages: 1}.Bytes()
	for name, code := range map[string][]byte{"small": small, "go": wasmtest.Go(b, program)} {
		b.Run(name+"/waiting", func(b *testing.B) {
			h, _ := wasmtest.Open(b, func(c *wasm.Config) { c.Warm = 4 })
			var warm []time.Duration
			for b.Loop() {
				res := run(b, h, request(code, "exit", "0"))
				if res.Receipt.Warm {
					warm = append(warm, res.Duration)
				}
				b.StopTimer()
				time.Sleep(300 * time.Millisecond) // for the next to be ready
				b.StartTimer()
			}
			slices.Sort(warm)
			if n := len(warm); n > 0 {
				b.ReportMetric(float64(warm[0].Microseconds())/1e3, "min-ms")
				b.ReportMetric(float64(warm[n/2].Microseconds())/1e3, "p50-ms")
				b.ReportMetric(float64(warm[n*9/10].Microseconds())/1e3, "p90-ms")
			}
			b.ReportMetric(float64(pss(b))/(1<<20), "idle-MiB")
		})
		b.Run(name+"/compiled", func(b *testing.B) {
			h, _ := wasmtest.Open(b)
			run(b, h, request(code, "exit", "0"))
			for b.Loop() {
				run(b, h, request(code, "exit", "0"))
			}
		})
		b.Run(name+"/new", func(b *testing.B) {
			dir := b.TempDir()
			h, _ := wasmtest.Open(b, func(c *wasm.Config) { c.Dir = filepath.Join(dir, "compiled") })
			for b.Loop() {
				run(b, h, request(code, "exit", "0"))
				if err := os.RemoveAll(filepath.Join(dir, "compiled")); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// pss is the memory of a child that waits: its own pages, and its share of those
// that it has in common with others.
func pss(b *testing.B) (bytes int64) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range all {
		cmd, _ := os.ReadFile(p)
		if !strings.HasPrefix(string(cmd), wasm.Program+"\x00run") {
			continue
		}
		rollup, _ := os.ReadFile(filepath.Join(filepath.Dir(p), "smaps_rollup"))
		for line := range strings.Lines(string(rollup)) {
			var kib int64
			if n, _ := fmt.Sscanf(line, "Pss: %d kB", &kib); n == 1 {
				bytes = kib << 10
			}
		}
	}
	return bytes
}
