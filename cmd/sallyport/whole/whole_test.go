package whole_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.dev/sallyport/cmd/sallyport/whole"
)

// A program that needs a loader is told of: in a sandbox it would die without a
// word.
func TestProgramsMustBeStatic(t *testing.T) {
	linked, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.ReadFile("/proc/self/exe") // static, as the programs are
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	put := func(name string, b []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	put("a", self)
	if _, err := whole.Programs(dir, "a", "b"); err == nil || !strings.Contains(err.Error(), "b") {
		t.Errorf("one is missing: %v", err)
	}
	put("b", linked)
	if _, err := whole.Programs(dir, "a", "b"); err == nil || !strings.Contains(err.Error(), "b: built with cgo") {
		t.Errorf("one is linked: %v", err)
	}
	put("b", []byte("#!/bin/sh\n"))
	if _, err := whole.Programs(dir, "a", "b"); err == nil {
		t.Error("a script passes")
	}
	put("b", self)
	if said, err := whole.Programs(dir, "a", "b"); err != nil || !strings.Contains(said, "all static") {
		t.Skipf("%q, %v: this test was built with cgo", said, err)
	}
}
