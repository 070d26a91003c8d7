// Package realtest gives tests what real sandboxes need of a machine: the programs,
// built from the tree under test, and the images.
package realtest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/image"
	"sallyport.dev/sallyport/tier"
)

// Root skips the test where it may not make sandboxes.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: sandboxes need root")
	}
}

// beside are the programs of cmd that sallyport needs beside it.
var beside = []string{"sallyport-sandboxd", "sallyport-runsc", "sallyport-init", "sallyport-cage", "sallyport-guest", "sallyport-wasm"}

// Programs returns a folder with the programs that are named, or all that sallyport
// needs beside it: copies of those in $SALLYPORT_BIN, or freshly built. It is shared by
// all tests of one tree, and any user can reach it, wherever the tree is.
func Programs(t testing.TB, names ...string) string {
	t.Helper()
	if len(names) == 0 {
		names = beside
	}
	folder.mu.Lock()
	defer folder.mu.Unlock()
	if folder.dir == "" {
		sum := sha256.Sum256([]byte(moduleRoot(t)))
		dir := filepath.Join(os.TempDir(), "sallyport-test-programs-"+hex.EncodeToString(sum[:4]))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		folder.dir, folder.have = dir, map[string]bool{}
	}
	for _, p := range names {
		if !folder.have[p] {
			place(t, p, folder.dir)
			folder.have[p] = true
		}
	}
	return folder.dir
}

// folder keeps one test binary from looking at each program again for each test.
var folder struct {
	mu   sync.Mutex
	dir  string
	have map[string]bool // names of programs
}

// place puts a program into the folder, one test binary at a time.
func place(t testing.TB, program, dir string) {
	t.Helper()
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(dir, program)
	if bin := os.Getenv("SALLYPORT_BIN"); bin == "" {
		Build(t, "./cmd/"+program, to)
	} else if err := copyOf(filepath.Join(bin, program), to); err != nil {
		t.Fatal(err)
	}
}

// copyOf makes to a copy, unless it is one already. One that runs stays as it is.
func copyOf(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if have, err := os.Stat(to); err == nil && have.Size() == info.Size() && have.ModTime().Equal(info.ModTime()) {
		return nil
	}
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	fresh := to + ".new"
	return errors.Join(os.WriteFile(fresh, b, 0o755), os.Chtimes(fresh, info.ModTime(), info.ModTime()), os.Rename(fresh, to))
}

// built keeps one test binary from asking go build again for each test.
var built struct {
	mu   sync.Mutex
	have map[string]bool // paths
}

// Build builds one static program of the module, once for each test binary; go build
// leaves what is up to date alone.
func Build(t testing.TB, pkg, to string) {
	t.Helper()
	built.mu.Lock()
	defer built.mu.Unlock()
	if built.have[to] {
		return
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", to, pkg)
	cmd.Dir = moduleRoot(t)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", pkg, err, out)
	}
	if built.have == nil {
		built.have = map[string]bool{}
	}
	built.have[to] = true
}

func moduleRoot(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(strings.TrimSpace(string(out)))
}

// Images returns the images of this machine's cache. Without root or without
// the default image it skips the test, and says so.
func Images(t testing.TB) tier.Images {
	t.Helper()
	Root(t)
	store := image.NewStore(Cache())
	if _, err := store.Open(image.DefaultName); err != nil {
		t.Skipf("skipped: no default image in %s; `make build` makes it (%v)", Cache(), err)
	}
	return cache{store}
}

// Dir makes a folder that goes with the test. Its name is short, as that of sockets
// must be: t.TempDir's has the test's name in it.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "host")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Cache is the folder that holds this machine's images, kernels and runtimes.
func Cache() string { return image.CacheDir(os.Getenv, os.Geteuid()) }

type cache struct{ store *image.Store }

func (c cache) Find(ref string) (tier.Image, error) {
	img, err := c.store.Open(ref)
	return tier.Image{Digest: img.Digest, Path: img.Path}, err
}
