// Package isolatetest gives tests a real Host of V8 isolates.
package isolatetest

import (
	"os"
	"testing"

	"sallyport.dev/sallyport/cage/cagetest"
	"sallyport.dev/sallyport/isolate"
	"sallyport.dev/sallyport/isolate/workerd"
	"sallyport.dev/sallyport/tier/realtest"
)

// Open opens a Host that the test's end closes. Without root or workerd it skips
// the test, and says so.
func Open(t testing.TB, alter ...func(*isolate.Config)) *isolate.Host {
	t.Helper()
	realtest.Root(t)
	if _, err := os.Stat(workerd.Path(realtest.Cache())); err != nil {
		t.Skipf("skipped: workerd is not in %s; `make build` puts it there where npm is", realtest.Cache())
	}
	c := isolate.Config{House: cagetest.Open(t, realtest.Dir(t)), Cache: realtest.Cache(), Warm: 2}
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
