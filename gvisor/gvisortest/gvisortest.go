// Package gvisortest gives tests what a real sandbox needs: the programs, built
// from the tree under test, and the default image.
package gvisortest

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/image"
	"sallyport.dev/sallyport/tier"
)

// Programs builds sallyport-sandboxd and all that it needs beside it, and returns
// their folder. It is shared by all tests of one tree; go build leaves
// what is up to date alone.
func Programs(t testing.TB) string {
	t.Helper()
	built.mu.Lock()
	defer built.mu.Unlock()
	if built.dir == "" {
		built.dir = build(t)
	}
	return built.dir
}

// built keeps one test binary from asking go build again for each test.
var built struct {
	mu  sync.Mutex
	dir string
}

func build(t testing.TB) string {
	t.Helper()
	dir := Folder(t)
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{gvisor.RuntimeProgram, gvisor.InitProgram, "sallyport-sandboxd", "sallyport-cage", "sallyport-guest", "sallyport-wasm"} {
		Build(t, "./cmd/"+p, filepath.Join(dir, p))
	}
	return dir
}

// Folder makes the folder of the programs that the tests of this tree share.
func Folder(t testing.TB) string {
	t.Helper()
	sum := sha256.Sum256([]byte(moduleRoot(t)))
	dir := filepath.Join(os.TempDir(), "sallyport-test-programs-"+hex.EncodeToString(sum[:4]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Build builds one static program of the module.
func Build(t testing.TB, pkg, to string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", to, pkg)
	cmd.Dir = moduleRoot(t)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", pkg, err, out)
	}
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
	if os.Geteuid() != 0 {
		t.Skip("skipped: sandboxes need root")
	}
	store := image.NewStore(Cache())
	if _, err := store.Open(image.DefaultName); err != nil {
		t.Skipf("skipped: no default image in %s; `make build` makes it (%v)", Cache(), err)
	}
	return cache{store}
}

// Cache is the folder that holds this machine's images.
func Cache() string { return image.CacheDir(os.Getenv, os.Geteuid()) }

type cache struct{ store *image.Store }

func (c cache) Find(ref string) (tier.Image, error) {
	img, err := c.store.Open(ref)
	return tier.Image{Digest: img.Digest, Path: img.Path}, err
}

// Open opens a Host that the test's end closes. Its folder has a short name, as
// that of sockets must have: t.TempDir would have the test's in it.
func Open(t testing.TB, alter ...func(*gvisor.Config)) *gvisor.Host {
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
	c := gvisor.Config{Programs: Programs(t), Dir: filepath.Join(dir, "run"), Images: Images(t)}
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
