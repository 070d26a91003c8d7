package host

import (
	"errors"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// A sandbox host that is killed while its gateway lives is taken off the machine's
// list of processes, and the gateway's end does not wait for it again.
func TestKilledHostIsReaped(t *testing.T) {
	cmd := exec.Command("cat") // until its end of input, which does not come
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	ended := reap(pid)
	select {
	case <-ended:
		t.Fatal("control: it is said to have ended while it lives")
	default:
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-ended
	if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); !errors.Is(err, unix.ECHILD) {
		t.Errorf("it is still a child of this process: %v", err)
	}
}
