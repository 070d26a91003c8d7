package tiertest

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/proc"
	"sallyport.dev/sallyport/tier"
)

// A ground is where the sandboxes of one host leave their traces on this machine:
// its folder, its control groups, its processes. It is looked at by other ways than
// the host itself takes.
type ground struct {
	dir        string
	groups     []string // folders that hold a control group for each sandbox
	idle       map[string]bool
	goroutines int
	files      int // descriptors of this process
}

// groundOf finds the traces of a sandbox that runs; then it remembers what is there
// when none does.
func groundOf(t *testing.T, s Subject, h tier.Tier, dir string) *ground {
	t.Helper()
	g := &ground{dir: dir}
	run(t, h, s.needs(t, say("what is made once is made"))) // a pool's own processes, a snapshot
	calm(t, h)
	before := g.traces(t)
	r := s.needs(t, hang("up"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	up, ended := make(chan bool, 1), make(chan error, 1)
	r.Told = func(bool, []byte) { up <- true }
	go func() { _, err := h.Run(ctx, r); ended <- err }()
	select {
	case <-up:
	case err := <-ended:
		t.Fatalf("control: what hangs has ended: %v", err)
	}
	for _, pid := range proc.Descendants(t, os.Getpid()) {
		g.groups = append(g.groups, groupsOf(pid)...)
	}
	slices.Sort(g.groups)
	g.groups = slices.Compact(g.groups)
	during := g.traces(t)
	cancel()
	<-ended
	calm(t, h)
	if fresh := beyondOf(during, before); len(fresh) == 0 {
		t.Fatalf("control: a running sandbox leaves no trace: %q", slices.Collect(maps.Keys(during)))
	}
	g.idle = g.traces(t)
	g.goroutines, g.files = runtime.NumGoroutine(), openFiles(t)
	return g
}

// calm waits until a host holds nothing.
func calm(t *testing.T, h tier.Tier) {
	t.Helper()
	within(t, "no sandbox is listed", func() bool { return len(h.List()) == 0 })
	time.Sleep(100 * time.Millisecond) // of an empty one's way out
}

// ourGroup is a control group of a sandbox host: below it, each sandbox has its own.
var ourGroup = regexp.MustCompile(`^.*/sallyport/[^/]+`)

// groupsOf are the folders of the control groups that hold a process's.
func groupsOf(pid int) (found []string) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 || !ourGroup.MatchString(f[2]) {
			continue
		}
		above := ourGroup.FindString(f[2])
		all, _ := filepath.Glob("/sys/fs/cgroup/*")
		for _, root := range append(all, "/sys/fs/cgroup") {
			if st, err := os.Stat(root + above); err == nil && st.IsDir() {
				found = append(found, root+above)
			}
		}
	}
	return found
}

// traces are processes, files, sockets, mounts and control groups, each by a name
// that says what it is.
func (g *ground) traces(t testing.TB) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, pid := range proc.Descendants(t, os.Getpid()) {
		found[fmt.Sprintf("process %d %s", pid, command(pid))] = true
	}
	for _, pid := range orphans(g.dir) {
		found[fmt.Sprintf("process %d %s", pid, command(pid))] = true
	}
	_ = filepath.WalkDir(g.dir, func(p string, _ fs.DirEntry, _ error) error { found["file "+p] = true; return nil })
	for file, what := range map[string]string{"/proc/net/unix": "socket", "/proc/self/mountinfo": "mount"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); strings.Contains(line, g.dir+"/") {
				found[what+" "+f[len(f)-1]] = true
			}
		}
	}
	for _, dir := range g.groups {
		all, _ := filepath.Glob(dir + "/*/cgroup.procs")
		for _, p := range all {
			found["control group "+filepath.Dir(p)] = true
		}
	}
	return found
}

// quiet waits until there is no more than there was when nothing ran.
func (g *ground) quiet(t *testing.T, h tier.Tier) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		live, left, now, files := h.List(), beyondOf(g.traces(t), g.idle), runtime.NumGoroutine(), openFiles(t)
		if len(live) == 0 && len(left) == 0 && now <= g.goroutines+2 && files <= g.files+2 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("live %v, left %q, %d goroutines (%d before), %d descriptors (%d before)", live, left, now, g.goroutines, files, g.files)
		}
	}
}

func beyondOf(now, before map[string]bool) (fresh []string) {
	for k := range now {
		if !before[k] {
			fresh = append(fresh, k)
		}
	}
	slices.Sort(fresh)
	return fresh
}

func openFiles(t testing.TB) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func command(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return fmt.Sprintf("%.200s", bytes.ReplaceAll(b, []byte{0}, []byte{' '}))
}

// orphans are processes that name the folder of a host, whoever's children they are.
func orphans(dir string) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		pid, _ := strconv.Atoi(filepath.Base(p))
		if pid != os.Getpid() && strings.Contains(command(pid), dir) {
			pids = append(pids, pid)
		}
	}
	return pids
}
