package microvm_test

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/microvm"
	"sallyport.dev/sallyport/microvm/microvmtest"
)

// A guest that is restored in a VMM that was started before is another than all others,
// as any copy; and one whose VMM has ended meanwhile is none.
func TestParked(t *testing.T) {
	h := microvmtest.Open(t, func(c *microvm.Config) { c.Parked = 1 })
	r := python("import os, uuid; print(os.urandom(16).hex(), uuid.uuid4(), os.uname().nodename, open('/etc/machine-id').read().strip(), open('/proc/sys/kernel/random/boot_id').read().strip())")
	if err := h.Prepare(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	parked := func() {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); h.Parked() == 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("no VMM is parked")
			}
		}
	}
	seen := map[string]bool{}
	look := func(n int) {
		t.Helper()
		res := run(t, h, r)
		words := strings.Fields(string(res.Stdout))
		if len(words) != 5 || res.Receipt.Warm || res.Receipt.Unbounded || !res.Receipt.NoNew {
			t.Fatalf("run %d: %q %q %+v", n, res.Stdout, res.Stderr, res.Receipt)
		}
		for _, w := range words {
			if seen[w] {
				t.Errorf("run %d: %s was another's", n, w)
			}
			seen[w] = true
		}
	}
	for n := range 3 {
		if n > 0 {
			parked()
		}
		look(n)
	}
	parked()
	// Only a VMM that is parked has no guest that could be heard.
	killed := killVMMs(t, h)
	if killed != 1 {
		t.Fatalf("%d VMMs were killed", killed)
	}
	look(3)
}

// killVMMs kills the VMMs of a host from outside of it.
func killVMMs(t *testing.T, h *microvm.Host) int {
	t.Helper()
	pids, err := h.VMMs()
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if out, err := exec.CommandContext(t.Context(), "kill", "-9", pid).CombinedOutput(); err != nil {
			t.Fatal(string(bytes.TrimSpace(out)), err)
		}
	}
	return len(pids)
}
