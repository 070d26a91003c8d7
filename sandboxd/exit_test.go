package sandboxd

import (
	"errors"
	"os/exec"
	"testing"
)

// How a server ended is told exactly.
func TestServerExit(t *testing.T) {
	for script, want := range map[string]struct {
		code   int
		signal string
	}{"exit 7": {7, ""}, "kill -9 $$": {137, "SIGKILL"}, "true": {0, ""}} {
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
		if _, ok := errors.AsType[*exec.ExitError](cmd.Run()); !ok && want.code != 0 {
			t.Fatalf("%s did not fail", script)
		}
		if code, signal := exitOf(cmd.ProcessState); code != want.code || signal != want.signal {
			t.Errorf("%s: %d %q, want %d %q", script, code, signal, want.code, want.signal)
		}
	}
}
