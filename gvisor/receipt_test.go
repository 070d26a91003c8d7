package gvisor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/tier/cgroup"
)

// Where something else than the request has set a limit, the receipt says so:
// it is read, not repeated.
func TestReceiptIsReadBack(t *testing.T) {
	h := gvisortest.Open(t)
	id, end := held(t, h, "it goes on")
	const raised = 900 << 20
	knobs := 0
	for _, pattern := range []string{"/sys/fs/cgroup/memory/sallyport/*/%s/memory.memsw.limit_in_bytes", "/sys/fs/cgroup/memory/sallyport/*/%s/memory.limit_in_bytes", "/sys/fs/cgroup/sallyport/*/%s/memory.max"} {
		files, err := filepath.Glob(fmt.Sprintf(pattern, id))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if err := os.WriteFile(f, []byte(strconv.Itoa(raised+cgroup.KernelOverhead)), 0o644); err != nil {
				t.Fatal(err)
			}
			knobs++
		}
	}
	if res := end(); knobs == 0 || res.Receipt.Limits.Memory != raised {
		t.Errorf("%d files written; the receipt says %d bytes, the control group had %d", knobs, res.Receipt.Limits.Memory, raised)
	}
}
