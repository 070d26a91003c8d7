package tiertest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// quoted is a text as a literal of JavaScript.
func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// built keeps one test binary from asking go build again for each case.
var built struct {
	mu   sync.Mutex
	code []byte
}

// Module is package wasi, as a module.
func Module(t testing.TB) []byte {
	t.Helper()
	built.mu.Lock()
	defer built.mu.Unlock()
	if built.code == nil {
		built.code = build(t)
	}
	return built.code
}

func build(t testing.TB) []byte {
	t.Helper()
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "wasi.wasm")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", to, "./tier/tiertest/wasi")
	cmd.Dir = filepath.Dir(strings.TrimSpace(string(mod)))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	code, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	return code
}
