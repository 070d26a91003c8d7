package firecracker_test

import (
	"path/filepath"
	"strings"
	"testing"

	"sallyport.dev/sallyport/microvm"
	"sallyport.dev/sallyport/microvm/firecracker"
	"sallyport.dev/sallyport/microvm/microvmtest"
	"sallyport.dev/sallyport/microvm/vmm"
)

// A Firecracker under which no guest answers is not used, and the reason is told.
func TestNotRunAgainstFirecrackerHost(t *testing.T) {
	programs := firecracker.Fakes(t, "no agent")
	h := microvmtest.Open(t, func(c *microvm.Config) {
		c.Backends = []vmm.Backend{&firecracker.Backend{
			Firecracker: filepath.Join(programs, "firecracker"), Jailer: filepath.Join(programs, "jailer"), Dir: filepath.Join(c.Dir, "shelf"),
		}}
	})
	said, err := h.Probe(t.Context(), "default")
	if err == nil || !strings.Contains(err.Error(), "firecracker/kvm: ") {
		t.Errorf("%q, %v", said, err)
	}
}
