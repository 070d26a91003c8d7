// Package wasmtest gives tests what it takes to run modules: the programs, a Host,
// and modules, built from Go or put together by hand.
package wasmtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"sallyport.dev/sallyport/cage/cagetest"
	"sallyport.dev/sallyport/tier/realtest"
	"sallyport.dev/sallyport/wasm"
)

// Open opens a Host that the test's end closes, and says where it keeps what it has. All
// tests of one tree share the folder of compiled modules, unless one is given its own.
// Without root it skips the test, and says so.
func Open(t testing.TB, alter ...func(*wasm.Config)) (h *wasm.Host, dir string) {
	t.Helper()
	dir = realtest.Dir(t)
	house := cagetest.Open(t, dir)
	programs := realtest.Programs(t, wasm.Program)
	c := wasm.Config{Programs: programs, House: house, Dir: filepath.Join(programs, "compiled")}
	for _, f := range alter {
		f(&c)
	}
	h, err := wasm.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h, dir
}

// made keeps one test binary from building a module twice.
var made struct {
	mu    sync.Mutex
	built map[string][]byte // by source
}

// Go builds a module from the source of a package main.
func Go(t testing.TB, source string) []byte {
	t.Helper()
	made.mu.Lock()
	defer made.mu.Unlock()
	if b := made.built[source]; b != nil {
		return b
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"main.go": source, "go.mod": "module program\n\ngo 1.26\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", "program.wasm", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	b, err := os.ReadFile(filepath.Join(dir, "program.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	if made.built == nil {
		made.built = map[string][]byte{}
	}
	made.built[source] = b
	return b
}
