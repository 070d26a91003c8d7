package escape_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor"
)

// allowedFD is all that a process of a sandbox may hold open: what is of
// memory, what leads to its own host, and two files that it may read.
var allowedFD = regexp.MustCompile(`^(/dev/null|/memfd:.*|anon_inode:.*|pipe:.*|socket:.*|/.*/sallyport-init|/.*\.erofs)( \(deleted\))?$`)

// weaknesses tells what a living process of the host holds that a sandbox's
// must not: an identity, a privilege, a namespace, a descriptor.
func weaknesses(t *testing.T, pid int, group string) (found []string) {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d/", pid)
	status := map[string]string{}
	b, err := os.ReadFile(proc + "status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(line, ":")
		status[k] = strings.Join(strings.Fields(v), " ")
	}
	for _, c := range []struct {
		what string
		bad  bool
	}{
		{"uid " + status["Uid"], status["Uid"] != "65534 65534 65534 65534"},
		{"gid " + status["Gid"], status["Gid"] != "65534 65534 65534 65534" || status["Groups"] != ""},
		{"capabilities", strings.Trim(status["CapPrm"]+status["CapEff"]+status["CapInh"]+status["CapBnd"]+status["CapAmb"], "0") != ""},
		{"no_new_privs", status["NoNewPrivs"] != "1"},
		{"seccomp", status["Seccomp"] != "2"},
	} {
		if c.bad {
			found = append(found, c.what)
		}
	}
	for _, ns := range []string{"ipc", "mnt", "net", "pid", "user", "uts"} {
		if link(t, proc+"ns/"+ns) == link(t, "/proc/self/ns/"+ns) {
			found = append(found, "namespace "+ns)
		}
	}
	if b, err := os.ReadFile(proc + "cgroup"); err != nil || !strings.Contains(string(b), group) {
		found = append(found, "control group")
	}
	if b, err := os.ReadFile(proc + "oom_score_adj"); err != nil || strings.TrimSpace(string(b)) != "500" {
		found = append(found, "out-of-memory score "+strings.TrimSpace(string(b)))
	}
	return append(found, openFiles(t, proc)...)
}

func openFiles(t *testing.T, proc string) (found []string) {
	t.Helper()
	fds, err := os.ReadDir(proc + "fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		to, err := os.Readlink(proc + "fd/" + fd.Name())
		if err != nil {
			continue // closed meanwhile
		}
		if !allowedFD.MatchString(to) {
			found = append(found, "descriptor of "+to)
			continue
		}
		info, _ := os.ReadFile(proc + "fdinfo/" + fd.Name())
		if filepath.IsAbs(to) && !strings.HasPrefix(to, "/dev/") && !strings.HasPrefix(to, "/memfd:") && !regexp.MustCompile(`(?m)^flags:\s+\d*0$`).Match(info) {
			found = append(found, "descriptor that can write "+to)
		}
	}
	return found
}

func link(t *testing.T, name string) string {
	t.Helper()
	to, err := os.Readlink(name)
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// descendants of a process, by what /proc says of parents.
func descendants(t *testing.T, of int) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	children := map[int][]int{}
	for _, f := range all {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		parent, _ := strconv.Atoi(strings.Fields(rest)[1])
		children[parent] = append(children[parent], pid)
	}
	for next := []int{of}; len(next) > 0; next = next[1:] {
		pids = append(pids, children[next[0]]...)
		next = append(next, children[next[0]]...)
	}
	return pids
}

// sandboxWeaknesses looks at every process of the one sandbox that runs, its
// kernel and its programs, and counts them.
func sandboxWeaknesses(t *testing.T, b bench) (n int, found []string) {
	t.Helper()
	for _, s := range b.host.List() {
		for _, p := range descendants(t, os.Getpid()) {
			proc := fmt.Sprintf("/proc/%d/", p)
			group, err := os.ReadFile(proc + "cgroup")
			if err != nil || !strings.Contains(string(group), s.ID) {
				continue
			}
			name, _ := os.ReadFile(proc + "comm")
			if strings.HasPrefix(string(name), "sallyport-runsc") { // waits outside, and runs nothing of the sandbox
				continue
			}
			n++
			for _, w := range weaknesses(t, p, s.ID) {
				found = append(found, fmt.Sprintf("%d %s: %s", p, strings.TrimSpace(string(name)), w))
			}
		}
	}
	return n, found
}

// The living processes of a sandbox on the host: its kernel and its programs.
// The control is this test's own process, which has every weakness.
func TestTO40_Posture(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	r := gvisor.Request{Image: "default", Argv: []string{"sh", "-c", "sleep 300 & sleep 300"}}
	r.Limits = sallyport.DefaultLimits()
	r.Limits.Timeout = 2 * time.Minute
	go func() { _, err := b.host.Run(ctx, r); ended <- err }()
	defer func() { cancel(); <-ended }()
	// While it boots, its processes still give up what they have; from then on
	// they have none of it.
	var found []string
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		n := 0
		if n, found = sandboxWeaknesses(t, b); n >= 3 && len(found) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d processes: %q", n, found)
		}
	}
	for range 5 {
		time.Sleep(100 * time.Millisecond)
		if n, found := sandboxWeaknesses(t, b); n < 3 || len(found) > 0 {
			t.Errorf("%d processes: %q", n, found)
		}
	}
	id := b.host.List()[0].ID
	own := weaknesses(t, os.Getpid(), id)
	for _, want := range []string{"uid 0 0 0 0", "capabilities", "no_new_privs", "seccomp", "namespace net", "namespace user", "control group"} {
		if !slices.Contains(own, want) {
			t.Errorf("control: this process has no weakness %q; it has %q", want, own)
		}
	}
}
