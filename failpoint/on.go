//go:build failpoints

package failpoint

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// What the process was told when it started. There is one process to kill, so
// this is the process's own.
var (
	name, left = wanted(os.Getenv("SALLYPORT_FAILPOINT")) //nolint:forbidigo // a test's build: no other way in
)

func wanted(s string) (string, *atomic.Int64) {
	name, number, _ := strings.Cut(s, ":")
	var n atomic.Int64
	n.Store(1)
	if v, err := strconv.ParseInt(number, 10, 64); err == nil {
		n.Store(v)
	}
	return name, &n
}

// Hit marks the moment; see the package's comment.
func Hit(at string) {
	if at != name || left.Add(-1) != 0 {
		return
	}
	fmt.Fprintln(os.Stderr, "failpoint", at)
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // nothing happens between the signal and the end
}
