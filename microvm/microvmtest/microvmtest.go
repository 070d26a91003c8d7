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

	"sallyport.dev/sallyport/microvm"
	"sallyport.dev/sallyport/microvm/kernel"
	"sallyport.dev/sallyport/microvm/qemu"
	"sallyport.dev/sallyport/microvm/vmm"
	"sallyport.dev/sallyport/tier/realtest"
)

// Programs is the folder of the programs: that of SALLYPORT_BIN, whose snapshots
// other tests have made, or one in which they are built.
func Programs(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("SALLYPORT_BIN"); dir != "" {
		return dir
	}
	return realtest.Programs(t, microvm.InitProgram, microvm.GuestProgram)
}

// firstUID is of users that no other test binary has: the kernel counts processes by
// user, and tests run beside each other.
var firstUID = 1_000_900 + os.Getpid()%100_000*1000

// Config is what a Host needs, with a folder that goes with the test. The test is
// skipped, and says why, where this machine cannot run microVMs. Snapshots are
// shared by all tests of a machine, in its cache.
func Config(t testing.TB) microvm.Config {
	t.Helper()
	images := realtest.Images(t)
	if _, err := kernel.Installed(realtest.Cache()); err != nil {
		t.Skipf("skipped: no guest kernel in %s; `make build` gets it (%v)", realtest.Cache(), err)
	}
	c := microvm.Config{Programs: Programs(t), Dir: filepath.Join(realtest.Dir(t), "run"), Cache: realtest.Cache(), Images: images, FirstUID: firstUID}
	if err := microvm.Missing(c); err != nil {
		t.Skipf("skipped: %v", err)
	}
	return c
}

// OnDebian has guests boot Debian's kernel, which every machine gets, also where the
// small one is installed. Their snapshots are shared by all tests of the machine.
func OnDebian(t testing.TB, c *microvm.Config) {
	t.Helper()
	if !HasSmall() {
		return
	}
	k, err := kernel.Describe(c.Cache, kernel.Debian)
	if err != nil {
		t.Skipf("skipped: Debian's guest kernel is not in %s; `make build` gets it (%v)", c.Cache, err)
	}
	from, to := filepath.Join(c.Cache, "kernels"), filepath.Join(c.Cache, "on-debian", "kernels")
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{kernel.Debian + ".json", "sha256-" + k.Image + ".bzimage", "sha256-" + k.Modules + ".cpio"} {
		if err := os.Symlink(filepath.Join(from, name), filepath.Join(to, name)); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	c.Cache = filepath.Dir(to)
}

// HasSmall tells whether the small guest kernel is installed, which is then preferred.
func HasSmall() bool {
	_, err := kernel.Describe(realtest.Cache(), kernel.Small)
	return err == nil
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

// Differ says what two or more of the reports of copies have in common, but for their
// clocks.
func Differ(t testing.TB, all []map[string]any) {
	t.Helper()
	for key := range all[0] {
		seen := map[any]int{}
		for _, r := range all {
			seen[r[key]]++
		}
		if len(seen) != len(all) && key != "clock" && key != "monotonic" {
			t.Errorf("%s is the same in several of %d copies: %v", key, len(all), seen)
		}
	}
}
