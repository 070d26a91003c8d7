// Package cagetest gives tests a real House of cages.
package cagetest

import (
	"path/filepath"
	"testing"

	"sallyport.dev/sallyport/cage"
	"sallyport.dev/sallyport/tier/realtest"
)

// Open opens a House, in a folder of dir, that the test's end closes. Without root it
// skips the test, and says so.
func Open(t testing.TB, dir string) *cage.House {
	t.Helper()
	realtest.Root(t)
	h, err := cage.Open(cage.Config{Programs: realtest.Programs(t, cage.Program), Dir: filepath.Join(dir, "cages")})
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
