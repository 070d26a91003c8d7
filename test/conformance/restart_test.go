package conformance

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/stage"
)

// FO-17: the sandbox host, which is what a server in a sandbox runs on, is killed
// and started again under it. A call in between is refused soon and in words, and
// afterwards the server is there again by itself.
func TestFO17SandboxHostIsStartedAgain(t *testing.T) {
	t.Parallel()
	g := stage.New(t)
	dir := stage.OpenDir(t)
	socket := filepath.Join(dir, "host.sock")
	start := func() (end func(syscall.Signal)) {
		cmd := exec.Command(stage.Program(t, "sallyport-sandboxd"), "-socket", socket, "-peer", "64550", "-run", filepath.Join(dir, "run"),
			"-state", filepath.Join(dir, "homes"), "-uids", filepath.Join(dir, "uids.json"), "-closed", g.Data, "-warm", "0")
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		g.Eventually(stage.Patience, "the sandbox host listens", func() error {
			c, err := net.Dial("unix", socket) // its file is there a moment before it listens
			if err != nil {
				return err
			}
			return c.Close()
		})
		return func(how syscall.Signal) {
			_ = cmd.Process.Signal(how)
			_ = cmd.Wait()
			_ = os.Remove(socket)
		}
	}
	end := start()
	defer func() { g.Kill(); end(syscall.SIGTERM) }()
	g.Write("sallyport.yaml", g.Config("sandbox: {host: "+socket+"}\n"))
	g.Start()
	if r := g.Run("", "servers", "add", "mock"); r.Code != 0 {
		t.Fatal(r)
	}
	call := func() stage.Said { return g.Run("", "call", "mock__get_order", `{"id":1}`) }
	before := call()
	end(syscall.SIGKILL)
	begun := time.Now()
	r := call()
	if took := time.Since(begun); r.Code == 0 || took > stage.Patience || !strings.Contains(r.Out+r.Err, "mock") {
		t.Errorf("while the host is away, after %v: %s", took, r)
	}
	end = start()
	g.Eventually(stage.Patience, "the server is there again", func() error {
		if r := call(); r.Code != before.Code || r.Out != before.Out {
			return fmt.Errorf("%s", r)
		}
		return nil
	})
}
