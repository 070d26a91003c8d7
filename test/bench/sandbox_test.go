package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/tier"
)

// A way is one way to run a program apart from the host.
type way struct {
	name string
	run  func(b *testing.B, argv []string) (stdout []byte)
}

// What programs run, and a program that prints the time of its first output.
var programs = []struct {
	name  string
	argv  []string
	clock bool
}{
	{"true", []string{"true"}, false},
	{"python", []string{"/usr/bin/python3", "-c", "print(1)"}, false},
	{"clock", []string{"/usr/bin/python3", "-c", "import time; print(time.time(), flush=True)"}, true},
}

// BenchmarkSandbox holds Sallyport's sandboxes against plain runsc of the same
// version and against bubblewrap, in turns, in one run: whole life, and for
// "clock" the time until the first output.
func BenchmarkSandbox(b *testing.B) {
	ways := []way{sallyportWay(b, "cold", 0), sallyportWay(b, "pool", 4), runscWay(b), bubblewrapWay(b)}
	for _, p := range programs {
		took := make([][]time.Duration, len(ways))
		first := make([][]time.Duration, len(ways))
		b.Run(p.name, func(b *testing.B) {
			for b.Loop() {
				for i, w := range ways {
					began := time.Now()
					out := w.run(b, p.argv)
					took[i] = append(took[i], time.Since(began))
					if p.clock {
						at, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
						if err != nil {
							b.Fatalf("%s: %q", w.name, out)
						}
						first[i] = append(first[i], time.UnixMicro(int64(at*1e6)).Sub(began))
					}
				}
			}
			for i, w := range ways {
				report(b, w.name, took[i])
				if p.clock {
					report(b, w.name+"-first", first[i])
				}
			}
			b.ReportMetric(0, "ns/op")
			b.Logf("load %s", loadNow())
		})
	}
}

func report(b *testing.B, name string, d []time.Duration) {
	slices.Sort(d)
	for _, q := range []struct {
		name string
		at   float64
	}{{"p50", 0.5}, {"p99", 0.99}} {
		b.ReportMetric(float64(d[min(len(d)-1, int(q.at*float64(len(d))))].Microseconds())/1000, name+"-"+q.name+"-ms")
	}
}

func loadNow() string {
	b, _ := os.ReadFile("/proc/loadavg")
	return strings.TrimSpace(string(b))
}

// sallyportWay keeps up to warm sandboxes waiting, by demand.
func sallyportWay(b *testing.B, name string, warm int) way {
	h := gvisortest.Open(b, func(c *gvisor.Config) { c.Warm = warm })
	return way{name, func(b *testing.B, argv []string) []byte { return sandboxed(b, h, argv) }}
}

func sandboxed(b *testing.B, h *gvisor.Host, argv []string) []byte {
	l := sallyport.DefaultLimits()
	l.CPUs = 2
	res, err := h.Run(b.Context(), tier.Request{Image: "default", Argv: argv, Limits: l})
	if err != nil || res.ExitCode != 0 {
		b.Fatalf("%v: %+v", err, res)
	}
	return res.Stdout
}

// runscWay is upstream's runsc of the same version with its usual options: no
// network, and the host's root, read-only.
func runscWay(b *testing.B) way {
	runsc := filepath.Join(b.TempDir(), "runsc")
	build := exec.Command("go", "build", "-trimpath", "-o", runsc, "gvisor.dev/gvisor/runsc")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Skipf("upstream's runsc cannot be built: %v: %s", err, out)
	}
	bundle, state := b.TempDir(), b.TempDir()
	b.Cleanup(func() { _ = syscall.Unmount(filepath.Join(state, "null-netns"), 0) }) // runsc leaves it mounted
	n := 0
	return way{"runsc", func(b *testing.B, argv []string) []byte {
		spec, err := json.Marshal(map[string]any{
			"ociVersion": "1.0.0", "hostname": "bench",
			"process": map[string]any{"args": argv, "cwd": "/", "env": []string{"PATH=/usr/bin:/bin"}, "user": map[string]int{"uid": 1000, "gid": 1000}},
			"root":    map[string]any{"path": "/", "readonly": true},
			"mounts":  []map[string]any{{"destination": "/proc", "type": "proc", "source": "proc"}, {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"}},
			"linux":   map[string]any{"namespaces": []map[string]string{{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}, {"type": "network"}}},
		})
		if err == nil {
			err = os.WriteFile(filepath.Join(bundle, "config.json"), spec, 0o600)
		}
		if err != nil {
			b.Fatal(err)
		}
		n++
		return output(b, runsc, "--root="+state, "--network=none", "--ignore-cgroups", "--platform=systrap", "run", "--bundle="+bundle, fmt.Sprintf("bench-%d-%d", os.Getpid(), n))
	}}
}

func bubblewrapWay(b *testing.B) way {
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		b.Skip("bubblewrap is not installed: apt-get install bubblewrap")
	}
	return way{"bwrap", func(b *testing.B, argv []string) []byte {
		return output(b, bwrap, slices.Concat([]string{"--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--unshare-all", "--die-with-parent", "--"}, argv)...)
	}}
}

func output(b *testing.B, program string, args ...string) []byte {
	var out, stderr bytes.Buffer
	cmd := exec.CommandContext(b.Context(), program, args...)
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		b.Fatalf("%s: %v: %s", program, err, stderr.Bytes())
	}
	return out.Bytes()
}

// BenchmarkConcurrentSandboxes is how latency grows with how many run at once.
func BenchmarkConcurrentSandboxes(b *testing.B) {
	h := gvisortest.Open(b, func(c *gvisor.Config) { c.MaxRuns, c.Queue = 64, 64 })
	for _, n := range []int{1, 2, 4, 8, 16, 32, 64} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			var all []time.Duration
			for b.Loop() {
				took := make([]time.Duration, n)
				var wg sync.WaitGroup
				for i := range n {
					wg.Go(func() {
						began := time.Now()
						sandboxed(b, h, []string{"true"})
						took[i] = time.Since(began)
					})
				}
				wg.Wait()
				all = append(all, took...)
			}
			report(b, "life", all)
			b.Logf("load %s", loadNow())
		})
	}
}

// BenchmarkDensity is what an idle sandbox holds, in proportional set size, and
// how many fit into 1 GiB.
func BenchmarkDensity(b *testing.B) {
	const n = 16
	h := gvisortest.Open(b, func(c *gvisor.Config) { c.MaxRuns = n })
	for _, argv := range [][]string{{"sleep", "600"}, {"python3", "-c", "import time; time.sleep(600)"}} {
		b.Run(argv[0], func(b *testing.B) {
			for b.Loop() {
				ctx, cancel := context.WithCancel(b.Context())
				var wg sync.WaitGroup
				for range n {
					wg.Go(func() {
						l := sallyport.DefaultLimits()
						l.Timeout = 10 * time.Minute
						_, _ = h.Run(ctx, tier.Request{Image: "default", Argv: argv, Limits: l})
					})
				}
				time.Sleep(8 * time.Second) // they come up, and settle
				each := float64(pss(b, h)) / n
				cancel()
				wg.Wait()
				b.ReportMetric(each/(1<<20), "MiB/sandbox")
				b.ReportMetric(float64(1<<30)/each, "sandboxes/GiB")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// pss sums the proportional set size of every process of the host's sandboxes,
// those that wait outside included.
func pss(b *testing.B, h *gvisor.Host) (sum int64) {
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		b.Fatal(err)
	}
	found := 0
	for _, p := range procs {
		group, _ := os.ReadFile(filepath.Join(p, "cgroup"))
		if !slices.ContainsFunc(h.List(), func(r tier.Running) bool { return strings.Contains(string(group), r.ID) }) {
			continue
		}
		found++
		rollup, _ := os.ReadFile(filepath.Join(p, "smaps_rollup"))
		for line := range strings.Lines(string(rollup)) {
			if f := strings.Fields(line); len(f) == 3 && f[0] == "Pss:" {
				kib, _ := strconv.ParseInt(f[1], 10, 64)
				sum += kib << 10
			}
		}
	}
	if found == 0 {
		b.Fatal("no process of a sandbox was found")
	}
	return sum
}
