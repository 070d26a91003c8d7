// Package audittest gives tests what a store seals its record with.
package audittest

import (
	"testing"

	"sallyport.dev/sallyport/audit"
)

// Sealer is one with a key of its own, until the test ends.
func Sealer(t testing.TB) *audit.Sealer {
	t.Helper()
	key, err := audit.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	seal, err := audit.NewSealer(key, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := seal.Close(); err != nil {
			t.Error(err)
		}
	})
	return seal
}
