package suite

import (
	"context"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/stage"
)

// Everything starts the reference SDK's server of the suite's fixtures (of the
// version in go.mod), and returns its URL. It speaks the stateless revision; with
// -stateless=false, those with sessions.
func Everything(t testing.TB, flags ...string) (url string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	program := filepath.Join(t.TempDir(), "everything-server")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server")
	if out, err := build.CombinedOutput(); err != nil {
		cancel()
		t.Fatalf("go build: %v\n%s", err, out)
	}
	addr := stage.FreePort(t)
	cmd := exec.CommandContext(ctx, program, append([]string{"-http", addr}, flags...)...)
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	for until := time.Now().Add(stage.Patience); ; time.Sleep(30 * time.Millisecond) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			return "http://" + addr
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
}
