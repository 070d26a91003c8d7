package gvisor_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/gvisor/gvisortest"
)

// A ground is where the sandboxes of one host leave their traces.
type ground []string // folders, of the host itself and of its control groups

// groundOf finds them by a sandbox that runs.
func groundOf(t *testing.T, h *gvisor.Host, dir string) (g ground) {
	t.Helper()
	id, end := held(t, h, "it goes on")
	defer end()
	g = ground{filepath.Join(dir, "runs")}
	for _, pattern := range []string{"/sys/fs/cgroup/*/sallyport/*/", "/sys/fs/cgroup/sallyport/*/"} {
		groups, err := filepath.Glob(pattern + id)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range groups {
			g = append(g, filepath.Dir(d))
		}
	}
	if len(g) < 2 || len(g.traces(t)) < 2 {
		t.Fatalf("control: a running sandbox leaves no trace in %q", g)
	}
	return g
}

// traces are those of sandboxes that exist, or were forgotten.
func (g ground) traces(t *testing.T) (found []string) {
	t.Helper()
	for _, dir := range g {
		all, err := filepath.Glob(filepath.Join(dir, "sp-*"))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, all...)
	}
	return found
}

// quiet waits until a host holds nothing, and no more goroutines than before.
func quiet(t *testing.T, h *gvisor.Host, g ground, goroutines int) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		live, left, now := h.List(), g.traces(t), runtime.NumGoroutine()
		if len(live) == 0 && len(left) == 0 && now <= goroutines+2 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("live %v, left %q, %d goroutines (%d before)", live, left, now, goroutines)
		}
	}
}

// 1,000 sandboxes, 32 at once, leave nothing behind.
func TestThousandCreates(t *testing.T) {
	n := 64
	if soak {
		n = 1000
	}
	dir := filepath.Join(t.TempDir(), "run")
	h := gvisortest.Open(t, func(c *gvisor.Config) { c.Dir, c.MaxRuns, c.Queue = dir, 32, 64 })
	traces := groundOf(t, h, dir)
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	work := make(chan int)
	for range 32 {
		wg.Go(func() {
			for i := range work {
				if res, err := h.Run(t.Context(), fill(sh(fmt.Sprint("echo ", i)))); err != nil || string(res.Stdout) != fmt.Sprintln(i) {
					t.Errorf("%d: %q, %v", i, res.Stdout, err)
				}
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	wg.Wait()
	quiet(t, h, traces, before)
}
