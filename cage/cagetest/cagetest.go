// Package cagetest gives tests the programs that cages are made of, built from
// the tree under test.
package cagetest

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/gvisor/gvisortest"
)

// Program is the one that every cage needs.
const Program = "sallyport-cage"

// Programs builds Program, and the others named, and returns their folder. It is
// shared by the tests of one tree. Without root it skips the test, and says so.
func Programs(t testing.TB, others ...string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: cages need root")
	}
	built.mu.Lock()
	defer built.mu.Unlock()
	dir := gvisortest.Folder(t)
	lock, err := os.OpenFile(filepath.Join(dir, "cage.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	for _, p := range append([]string{Program}, others...) {
		if !built.have[p] {
			gvisortest.Build(t, "./cmd/"+p, filepath.Join(dir, p))
			built.have[p] = true
		}
	}
	return dir
}

// built keeps one test binary from asking go build again for each test.
var built = struct {
	mu   sync.Mutex
	have map[string]bool
}{have: map[string]bool{}}
