// Package microvmtest gives tests what a real microVM needs: the programs, a
// kernel, QEMU and the default image.
package microvmtest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/microvm"
	"sallyport.dev/sallyport/microvm/kernel"
	"sallyport.dev/sallyport/microvm/qemu"
	"sallyport.dev/sallyport/microvm/vmm"
)

// Programs is the folder of the programs: that of SALLYPORT_BIN, or one in which
// they are built for this test.
func Programs(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("SALLYPORT_BIN"); dir != "" {
		return dir
	}
	dir := t.TempDir()
	for _, p := range []string{microvm.InitProgram, microvm.GuestProgram} {
		gvisortest.Build(t, "./cmd/"+p, filepath.Join(dir, p))
	}
	return dir
}

// Config is what a Host needs, with a folder that goes with the test. The test is
// skipped, and says why, where this machine cannot run microVMs. Snapshots are
// shared by all tests of a machine, in its cache.
func Config(t testing.TB) microvm.Config {
	t.Helper()
	images := gvisortest.Images(t)
	if _, err := kernel.Installed(gvisortest.Cache()); err != nil {
		t.Skipf("skipped: no guest kernel in %s; `make build` gets it (%v)", gvisortest.Cache(), err)
	}
	dir, err := os.MkdirTemp("", "vm") // a short name, as that of sockets must be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	c := microvm.Config{Programs: Programs(t), Dir: filepath.Join(dir, "run"), Cache: gvisortest.Cache(), Images: images}
	if err := microvm.Missing(c); err != nil {
		t.Skipf("skipped: %v", err)
	}
	return c
}

// emulated keeps each host of a test binary from trying again, for many seconds, the
// accelerator of hardware that one was refused.
var emulated struct {
	mu   sync.Mutex
	only bool
}

// Open opens a Host that the test's end closes. The first one of a test binary
// decides what runs guests.
func Open(t testing.TB, alter ...func(*microvm.Config)) *microvm.Host {
	t.Helper()
	c := Config(t)
	emulated.mu.Lock()
	defer emulated.mu.Unlock()
	if emulated.only {
		c.Backends = []vmm.Backend{qemu.Backend{Accel: qemu.TCG}}
	}
	for _, f := range alter {
		f(&c)
	}
	h, err := microvm.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	if c.Backends == nil {
		_, err := h.Probe(t.Context(), "default")
		emulated.only = err == nil && strings.HasPrefix(strings.Join(h.Refused(), " "), "qemu/kvm")
	}
	t.Cleanup(func() {
		if err := errors.Join(h.Close()); err != nil {
			t.Error(err)
		}
	})
	return h
}
