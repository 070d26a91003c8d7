package escape_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/egress"
	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/test/proc"
	"sallyport.dev/sallyport/tier"
)

// servesFolder tells whether a process is gVisor's that serves the folder of a way
// out. It is no root of the host, and what it may do is in a user namespace of its
// own, of which that one folder is all.
func servesFolder(proc string) bool {
	line, _ := os.ReadFile(proc + "cmdline")
	return strings.HasPrefix(string(line), "runsc-gofer\x00")
}

const (
	nobody  = "65534 65534 65534 65534"
	wayUser = "65533 65533 65533 65533"
)

// mountsBeyond are what of its mount table is not that folder.
func mountsBeyond(proc string) (found []string) {
	mounts, _ := os.ReadFile(proc + "mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) < 6 || !strings.HasSuffix(f[3], "/way") || f[4] != "/srv" || !strings.HasPrefix(f[5], "ro,nosuid,nodev,noexec") {
			found = append(found, "mount "+line)
		}
	}
	return found
}

// serverFD is what it may hold open beside what other processes of a sandbox may.
var serverFD = regexp.MustCompile(`^(/|/root/srv|/.*/bundle/config\.json|/.*/cpu\.cfs_(quota|period)_us|/.*/cpu\.max)$`)

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
	serves, user := servesFolder(proc), nobody
	if serves {
		user, found = wayUser, mountsBeyond(proc)
	}
	for _, c := range []struct {
		what string
		bad  bool
	}{
		{"uid " + status["Uid"], status["Uid"] != user},
		{"gid " + status["Gid"], status["Gid"] != user || status["Groups"] != ""},
		{"capabilities", !serves && strings.Trim(status["CapPrm"]+status["CapEff"]+status["CapInh"]+status["CapBnd"]+status["CapAmb"], "0") != ""},
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
	return append(found, openFiles(t, proc, serves)...)
}

func openFiles(t *testing.T, proc string, serves bool) (found []string) {
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
		if !allowedFD.MatchString(to) && !(serves && serverFD.MatchString(to)) {
			found = append(found, "descriptor of "+to)
			continue
		}
		info, _ := os.ReadFile(proc + "fdinfo/" + fd.Name())
		if filepath.IsAbs(to) && !strings.HasPrefix(to, "/dev/") && !strings.HasPrefix(to, "/memfd:") && !readOnly.Match(info) {
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

// sandboxWeaknesses looks at every process of the sandboxes of this test, their
// kernels, programs and file servers, and counts them.
func sandboxWeaknesses(t *testing.T) (n int, found []string) {
	t.Helper()
	for _, p := range proc.Descendants(t, os.Getpid()) {
		proc := fmt.Sprintf("/proc/%d/", p)
		groups, err := os.ReadFile(proc + "cgroup")
		group := sandboxGroup.FindString(string(groups))
		if err != nil || group == "" {
			continue
		}
		name, _ := os.ReadFile(proc + "comm")
		if strings.HasPrefix(string(name), "sallyport-runsc") { // waits outside, and runs nothing of the sandbox
			continue
		}
		n++
		for _, w := range weaknesses(t, p, group) {
			found = append(found, fmt.Sprintf("%d %s: %s", p, strings.TrimSpace(string(name)), w))
		}
	}
	return n, found
}

var sandboxGroup = regexp.MustCompile(`sp-[0-9a-f]+-[-0-9a-z]+`)

// The living processes of a sandbox on the host: its kernel, its programs and,
// where it has a way out, the server of that one folder; while it waits, too. The
// control is this test's own process, which has every weakness.
func TestTO40_Posture(t *testing.T) {
	alone(t)
	for name, way := range map[string]tier.Way{"no way out": {}, "a way out": {Reach: []string{"a.test:80"}}} {
		t.Run(name, func(t *testing.T) {
			h := gvisortest.Open(t, func(c *gvisor.Config) { c.Warm, c.Broker = 1, realBroker{&egress.Broker{}} })
			r := tier.Request{Image: "default", Argv: []string{"sh", "-c", "true"}, Limits: sallyport.DefaultLimits(), Way: way}
			warmUp(t, h, r)
			sound(t, 2+len(way.Reach))
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			r.Argv = []string{"sh", "-c", "sleep 300 & sleep 300"}
			r.Limits.Timeout = 5 * time.Minute
			go func() { _, err := h.Run(ctx, r); ended <- err }()
			defer func() { cancel(); <-ended }()
			for deadline := time.Now().Add(4 * time.Minute); h.Waiting() == 0 || len(h.List()) == 0; time.Sleep(20 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("none runs, or none waits")
				}
			}
			sound(t, 2*(3+len(way.Reach)))
		})
	}
	own := weaknesses(t, os.Getpid(), "sp-")
	for _, want := range []string{"uid 0 0 0 0", "capabilities", "no_new_privs", "seccomp", "namespace net", "namespace user", "control group"} {
		if !slices.Contains(own, want) {
			t.Errorf("control: this process has no weakness %q; it has %q", want, own)
		}
	}
}

// sound says that there are so many processes at least, and none has a weakness.
// While a sandbox boots, its processes still give up what they have.
func sound(t *testing.T, atLeast int) {
	t.Helper()
	for deadline, good := time.Now().Add(4*time.Minute), 0; good < 5; time.Sleep(100 * time.Millisecond) {
		n, found := sandboxWeaknesses(t)
		if n >= atLeast && len(found) == 0 {
			good++
			continue
		}
		if good > 0 || time.Now().After(deadline) {
			t.Fatalf("%d processes, want %d: %q", n, atLeast, found)
		}
	}
}
