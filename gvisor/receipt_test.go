package gvisor_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/gvisor/cgroup"
	"sallyport.dev/sallyport/gvisor/gvisortest"
)

// measure prints what a program in the sandbox finds itself.
const measure = `
import os, resource, json
fs, u = os.statvfs("/tmp"), os.uname()
print(json.dumps({
    "processes": resource.getrlimit(resource.RLIMIT_NPROC)[0] + 1, "disk": fs.f_blocks * fs.f_frsize,
    "kernel": " ".join([u.sysname, u.release, u.version]), "ro": bool(os.statvfs("/").f_flag & os.ST_RDONLY),
    "links": [l.split(":")[0].strip() for l in open("/proc/net/dev") if ":" in l],
    "nnp": "NoNewPrivs:\t1" in open("/proc/self/status").read()}))
`

// The receipt is what the program measures, and what the host's kernel says.
func TestReceipt(t *testing.T) {
	h := warmHost(t, 1)
	r := script("python3", "main.py", measure)
	r.Limits = sallyport.Limits{Memory: 200 << 20, CPUs: 0.5, Processes: 20, Disk: 9 << 20, Output: 5000, Timeout: 20 * time.Second}
	cold := run(t, h, r)
	runWarm(t, h, r)
	warm := run(t, h, r)
	if cold.Receipt.Warm || !warm.Receipt.Warm {
		t.Errorf("warm: %v, then %v", cold.Receipt.Warm, warm.Receipt.Warm)
	}
	for _, res := range []gvisor.Result{cold, warm} {
		var in struct {
			Processes int
			Disk      int64
			Kernel    string
			RO, NNP   bool
			Links     []string
		}
		if err := json.Unmarshal(res.Stdout, &in); err != nil {
			t.Fatalf("%v: %q %q", err, res.Stdout, res.Stderr)
		}
		rc := res.Receipt
		want := sallyport.Receipt{
			Tier: "gvisor", Platform: rc.Platform, Runtime: rc.Runtime, Image: rc.Image, Warm: rc.Warm, Exit: "exited",
			Kernel: in.Kernel, Links: in.Links, ReadOnly: in.RO, NoNew: in.NNP, Egress: sallyport.AppliedEgress{Rules: []string{}},
			Limits: sallyport.AppliedLimits{Memory: 200 << 20, CPUs: 0.5, Processes: in.Processes, Disk: in.Disk, Output: 5000, Timeout: 20_000},
		}
		if !reflect.DeepEqual(rc, want) {
			t.Errorf("receipt %+v\nwant    %+v", rc, want)
		}
		if rc.Limits.Processes != 20 || rc.Limits.Disk != 9<<20 || !rc.ReadOnly || !rc.NoNew || fmt.Sprint(rc.Links) != "[lo]" ||
			!strings.HasPrefix(rc.Runtime, "v0.") || !strings.HasPrefix(rc.Image, "sha256-") || rc.Platform == "" {
			t.Errorf("receipt %+v", rc)
		}
	}
}

func TestReceiptExit(t *testing.T) {
	h := gvisortest.Open(t)
	for want, r := range map[string]gvisor.Request{
		"exited":   {Argv: []string{"sh", "-c", "exit 124"}},
		"signaled": {Argv: []string{"sh", "-c", "kill -9 $$"}},
		"timeout":  {Argv: []string{"sleep", "60"}, Limits: sallyport.Limits{Timeout: 300 * time.Millisecond}},
		"memory":   {Argv: []string{"python3", "-c", "x = bytearray(300 << 20)"}, Limits: sallyport.Limits{Memory: 64 << 20}},
		"failed":   {Argv: []string{"no-such-program"}},
	} {
		if got := run(t, h, r).Receipt.Exit; got != want {
			t.Errorf("%v: exit %q, want %q", r.Argv, got, want)
		}
	}
}

// Where something else than the request has set a limit, the receipt says so:
// it is read, not repeated.
func TestReceiptIsReadBack(t *testing.T) {
	h := gvisortest.Open(t)
	done := make(chan gvisor.Result)
	go func() { done <- run(t, h, gvisor.Request{Argv: []string{"sleep", "1"}}) }()
	id := ""
	for deadline := time.Now().Add(time.Minute); id == ""; time.Sleep(10 * time.Millisecond) {
		if all := h.List(); len(all) == 1 {
			id = all[0].ID
		}
		if time.Now().After(deadline) {
			t.Fatal("no sandbox is listed")
		}
	}
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
	if res := <-done; knobs == 0 || res.Receipt.Limits.Memory != raised {
		t.Errorf("%d files written; the receipt says %d bytes, the control group had %d", knobs, res.Receipt.Limits.Memory, raised)
	}
}
