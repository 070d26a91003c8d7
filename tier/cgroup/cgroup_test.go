package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// mounts writes a mountinfo in which each line is "MOUNTPOINT TYPE OPTIONS".
func mounts(lines ...string) []byte {
	var b strings.Builder
	for i, l := range lines {
		f := strings.Fields(l)
		fmt.Fprintf(&b, "%d 1 0:%d / %s rw,relatime shared:1 - %s none rw,%s\n", i, i, f[0], f[1], f[2])
	}
	return []byte(b.String())
}

func read(t *testing.T, parts ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The two versions' files and numbers, on folders that stand for a kernel's.
func TestVersions(t *testing.T) {
	dir := t.TempDir()
	for f, content := range map[string]string{"cgroup.controllers": "cpuset cpu io memory pids\n", "cgroup.subtree_control": ""} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h, err := Find(mounts(dir+" cgroup2 nsdelegate"), "key")
	if err != nil || !h.v2 {
		t.Fatalf("%+v, %v", h, err)
	}
	g, err := h.New("one", 100<<20, 0.5)
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"memory.max": "104857600", "memory.oom.group": "1", "memory.swap.max": "0", "cpu.max": "50000 100000"} {
		if got := read(t, dir, "sallyport", "key", "one", file); got != want {
			t.Errorf("version 2: %s is %q, want %q", file, got, want)
		}
	}
	os.WriteFile(filepath.Join(g.Dirs()[0], "memory.events"), []byte("low 0\noom 3\noom_kill 2\noom_group_kill 1\n"), 0o644) //nolint:errcheck // read below
	if n := g.OOMKills(); n != 2 {
		t.Errorf("version 2: %d kills", n)
	}

	mem, cpu := t.TempDir(), t.TempDir()
	h, err = Find(mounts(mem+" cgroup memory", cpu+" cgroup cpu,cpuacct", dir+"/unified cgroup2 x"), "key")
	if err != nil || h.v2 {
		t.Fatalf("%+v, %v", h, err)
	}
	if g, err = h.New("one", 100<<20, 2); err != nil {
		t.Fatal(err)
	}
	if got := read(t, mem, "sallyport", "key", "one", "memory.limit_in_bytes") + " " + read(t, cpu, "sallyport", "key", "one", "cpu.cfs_quota_us"); got != "104857600 200000" {
		t.Errorf("version 1: %s", got)
	}
	os.WriteFile(filepath.Join(mem, "sallyport", "key", "one", "memory.oom_control"), []byte("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"), 0o644) //nolint:errcheck // read below
	if n := g.OOMKills(); n != 1 {
		t.Errorf("version 1: %d kills", n)
	}
}

// Without memory control there is a reason, never a group without a limit.
func TestNoMemoryControl(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.controllers"), []byte("cpu pids\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, info := range map[string][]byte{
		"nothing mounted":        nil,
		"not a mountinfo":        []byte("x\n - \n1 2 3 - cgroup\n"),
		"version 1, only cpu":    mounts(dir + " cgroup cpu"),
		"version 2, not granted": mounts(dir + " cgroup2 x"),
		"not writable":           mounts("/proc cgroup memory"),
	} {
		if _, err := Find(info, "key"); !errors.Is(err, ErrNoMemoryControl) {
			t.Errorf("%s: %v", name, err)
		}
	}
	h := Hierarchy{memory: t.TempDir()}
	if _, err := h.New("g", 1<<20, 1); err == nil {
		t.Error("a CPU limit was granted without a cpu hierarchy")
	}
}

// Kill ends every process of a real group, those that ignore requests too.
func TestKill(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: cgroups need root")
	}
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	h, err := Find(info, fmt.Sprintf("test-%d", os.Getpid()))
	if err != nil {
		t.Skipf("skipped: %v", err)
	}
	defer func() {
		for _, f := range h.Folders() {
			os.Remove(f)
		}
	}()
	g, err := h.New("g", 64<<20, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(g.Dirs()[0], "memory.limit_in_bytes"), []byte("x"), 0); err == nil && !h.v2 {
		t.Error("control: these are not a kernel's files")
	}
	cmd := exec.Command("sh", "-c", `echo 0 >"$0"/cgroup.procs; trap '' TERM HUP; (trap '' TERM; sleep 300) & sleep 300`, g.Dirs()[0])
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); strings.Count(read(t, g.Dirs()[0], "cgroup.procs"), "\n") < 3; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("control: the group never had its processes")
		}
	}
	if all := h.Groups(); len(all) != 1 || !slices.Equal(all[0].Dirs(), g.Dirs()) {
		t.Errorf("groups %v", all)
	}
	if err := g.Kill(time.Minute); err != nil {
		t.Error(err)
	}
	if cmd.Wait() == nil {
		t.Error("the main process was not killed")
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
	if len(h.Groups()) != 0 {
		t.Error("the group is still there")
	}
}
