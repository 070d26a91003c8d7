package gvisor_test

import (
	"fmt"
	"runtime"
	"testing"

	"sallyport.dev/sallyport/gvisor/gvisortest"
)

// A program sees as many processors as it may use, rounded up, and not what the
// host has; cold, warm, and whichever way it asks.
func TestProcessorsSeen(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("skipped: with one processor there is nothing to see")
	}
	const asks = `
import os, subprocess
print(os.cpu_count(), len(os.sched_getaffinity(0)), subprocess.check_output("nproc").decode().strip(),
      sum(l.startswith("processor") for l in open("/proc/cpuinfo")), sum(l.startswith("cpu") for l in open("/proc/stat")) - 1)`
	h := warmHost(t, 1)
	cold := gvisortest.Open(t)
	for cpus, want := range map[float64]int{0.5: 1, 1: 1, 1.5: 2, 2: 2, 64: runtime.NumCPU()} {
		r := script("python3", "main.py", asks)
		r.Limits.CPUs = cpus
		line := fmt.Sprintf("%[1]d %[1]d %[1]d %[1]d %[1]d\n", want)
		if res := run(t, cold, r); string(res.Stdout) != line || res.Receipt.Limits.CPUs != cpus {
			t.Errorf("%g processors, cold: %q %s, the receipt says %g; want %q", cpus, res.Stdout, res.Stderr, res.Receipt.Limits.CPUs, line)
		}
		if cpus == 1 || cpus == 2 { // each kind takes some starts to become warm
			continue
		}
		if res := runWarm(t, h, r); string(res.Stdout) != line {
			t.Errorf("%g processors, warm: %q %s, want %q", cpus, res.Stdout, res.Stderr, line)
		}
	}
}
