// Package gvisortest gives tests a real Host of gVisor.
package gvisortest

import (
	"path/filepath"
	"testing"

	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/tier/realtest"
)

// Open opens a Host that the test's end closes.
func Open(t testing.TB, alter ...func(*gvisor.Config)) *gvisor.Host {
	t.Helper()
	c := gvisor.Config{Programs: realtest.Programs(t), Dir: filepath.Join(realtest.Dir(t), "run"), Images: realtest.Images(t)}
	for _, f := range alter {
		f(&c)
	}
	h, err := gvisor.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}
