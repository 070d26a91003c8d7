// Package isolatetest gives tests a real Host of V8 isolates.
package isolatetest

import (
	"os"
	"path/filepath"
	"testing"

	"sallyport.dev/sallyport/cage/cagetest"
	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/isolate"
	"sallyport.dev/sallyport/isolate/workerd"
)

// Open opens a Host that the test's end closes. Without root or workerd it skips
// the test, and says so. Its folder has a short name, as that of sockets must have.
func Open(t testing.TB, alter ...func(*isolate.Config)) *isolate.Host {
	t.Helper()
	programs := cagetest.Programs(t)
	if _, err := os.Stat(workerd.Path(gvisortest.Cache())); err != nil {
		t.Skipf("skipped: workerd is not in %s; `make build` puts it there where npm is", gvisortest.Cache())
	}
	dir, err := os.MkdirTemp("", "iso")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	c := isolate.Config{Programs: programs, Cache: gvisortest.Cache(), Dir: filepath.Join(dir, "run"), Warm: 2}
	for _, f := range alter {
		f(&c)
	}
	h, err := isolate.Open(c)
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
