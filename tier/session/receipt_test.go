package session_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Each call in a session has a receipt, of the sandbox that the session keeps.
func TestSessionReceipt(t *testing.T) {
	x := place(t)
	c := call("a", "s", "python", "import os, resource\nfs = os.statvfs('/tmp')\nprint(resource.getrlimit(resource.RLIMIT_NPROC)[0] + 1, fs.f_blocks * fs.f_frsize)")
	c.Request.Limits.Memory, c.Request.Limits.Processes, c.Request.Limits.Disk = 180<<20, 30, 9<<20
	for _, warm := range []bool{false, true} {
		res := must(t, x, c)
		r := res.Receipt
		if got := fmt.Sprintln(r.Limits.Processes, r.Limits.Disk); got != string(res.Stdout) {
			t.Errorf("the receipt says %q, a program finds %q", got, res.Stdout)
		}
		if r.Warm != warm || r.Exit != "exited" || r.Limits.Memory != 180<<20 || r.Limits.CPUs != 1 || !r.ReadOnly || !r.NoNew || r.Unbounded ||
			fmt.Sprint(r.Links) != "[lo]" || !strings.HasPrefix(r.Image, "sha256-") || r.Platform == "" || r.Runtime == "" || r.Limits.Timeout != 120_000 {
			t.Errorf("receipt %+v", r)
		}
	}
	c.Code, c.Request.Limits.Timeout = []byte("while True: pass"), time.Second
	if r := must(t, x, c).Receipt; r.Exit != "timeout" || r.Limits.Memory != 180<<20 || r.Limits.Timeout != 1000 {
		t.Errorf("killed: %+v", r)
	}
}
