package sandboxd

import (
	"errors"
	"os/exec"
	"testing"
)

// How a server ended is told exactly.
func TestServerExit(t *testing.T) {
	for script, want := range map[string]struct {
		code   int32
		signal string
	}{"exit 7": {7, ""}, "kill -9 $$": {137, "SIGKILL"}, "true": {0, ""}} {
		p := &serverProcess{cmd: exec.CommandContext(t.Context(), "/bin/sh", "-c", script), exited: make(chan struct{})}
		if _, ok := errors.AsType[*exec.ExitError](p.cmd.Run()); !ok && want.code != 0 {
			t.Fatalf("%s did not fail", script)
		}
		close(p.exited)
		if e := p.exit(); e.Code != want.code || e.Signal != want.signal {
			t.Errorf("%s: %d %q, want %d %q", script, e.Code, e.Signal, want.code, want.signal)
		}
	}
}
