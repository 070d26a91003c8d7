package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What a child of these tests does, by the first word of its arguments; the
// second is a group to enter first, with a comma between its folders.
func TestMain(m *testing.M) {
	switch {
	case os.Getpid() == 1:
		os.Exit(asInit(m)) // in a machine of its own: see vm_test.go
	case len(os.Args) == 3 && os.Args[1] == "eat":
		enter(os.Args[2])
		b := make([]byte, 256<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		fmt.Println("ate it all")
	case len(os.Args) == 3 && os.Args[1] == "spin":
		enter(os.Args[2])
		for began := time.Now(); time.Since(began) < time.Second; {
		}
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		fmt.Println((u.Utime.Nano() + u.Stime.Nano()) / 1e6)
	case len(os.Args) == 3 && os.Args[1] == "own": // a host, with something that runs
		info, _ := os.ReadFile("/proc/self/mountinfo")
		h, owner, err := Own(info, os.Args[2])
		if err != nil {
			fmt.Println("cannot own:", err)
			os.Exit(9)
		}
		g, err := h.New("run", 64<<20, 0)
		if err != nil {
			fmt.Println("no group:", err)
			os.Exit(9)
		}
		run := child("wait", g)
		run.Stdout = os.Stdout
		_ = run.Start() // what it says is waited for
		time.Sleep(time.Hour)
		owner.Close() // until here it is kept
	case len(os.Args) == 3 && os.Args[1] == "wait":
		enter(os.Args[2])
		fmt.Println("here")
		time.Sleep(time.Hour)
	default:
		os.Exit(m.Run())
	}
}

func enter(dirs string) {
	for dir := range strings.SplitSeq(dirs, ",") {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
			fmt.Println("cannot enter:", err)
			os.Exit(9)
		}
	}
}

func child(what string, g Group) *exec.Cmd {
	return exec.Command("/proc/self/exe", what, strings.Join(g.Dirs(), ","))
}

func realHierarchy(t *testing.T) Hierarchy {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: cgroups need root")
	}
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	h, err := Find(info, fmt.Sprintf("real-%d", os.Getpid()))
	if err != nil {
		t.Skipf("skipped: %v", err)
	}
	t.Cleanup(func() {
		if left := h.Groups(); len(left) > 0 {
			t.Errorf("groups left: %v", left)
		}
		for _, f := range h.Folders() {
			if err := syscall.Rmdir(f); err != nil {
				t.Errorf("%s: %v", f, err)
			}
		}
	})
	return h
}

// A real kernel holds the limits that are written, and tells of them.
func TestRealLimits(t *testing.T) {
	h := realHierarchy(t)
	g, err := h.New("bounded", 64<<20, 0.25)
	if err != nil {
		t.Fatal(err)
	}
	free, err := h.New("free", 1<<30, 0)
	if err != nil {
		t.Fatal(err)
	}
	if m, c := g.Limits(); m != 64<<20 || c != 0.25 {
		t.Errorf("limits read back: %d bytes, %g CPUs", m, c)
	}
	// Nothing is pushed out to the machine's swap instead (where swap is counted).
	swap, want := filepath.Join(g.Dirs()[0], "memory.memsw.limit_in_bytes"), int64(64<<20)
	if h.v2 {
		swap, want = filepath.Join(g.Dirs()[0], "memory.swap.max"), 0
	}
	if exists(swap) && number(readText(swap)) != want {
		t.Errorf("%s is %q", swap, readText(swap))
	}
	// Memory: the program is killed, and the kill is seen.
	out, err := child("eat", g).CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || !exit.Sys().(syscall.WaitStatus).Signaled() || g.OOMKills() == 0 {
		t.Errorf("memory: %q, %v, %d kills", out, err, g.OOMKills())
	}
	if p := g.Peak(); p > 65<<20 || h.v2 && p == 0 && exists(filepath.Join(g.Dirs()[0], "memory.peak")) {
		t.Errorf("peak %d", p)
	}
	if out, err := child("eat", free).CombinedOutput(); err != nil || !strings.Contains(string(out), "ate it all") || free.OOMKills() != 0 {
		t.Errorf("control: %q, %v", out, err)
	}
	// CPU: a quarter of a second in a second; generously, for the machine is shared.
	for i := 0; i == 0 || throttles(g) == 0 && i < 30; i++ { // on a busy machine it may not even get its share
		if got := spin(t, g); got > 600 {
			t.Errorf("%d ms of CPU in a second", got)
		}
	}
	if n, throttled := spin(t, free), throttles(g); throttled == 0 || throttles(free) != 0 {
		t.Errorf("control: %d ms without a limit; throttled %d times, and %d", n, throttled, throttles(free))
	}
	// Kill and remove.
	for _, g := range []Group{g, free} {
		cmd := child("wait", g)
		r, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 4)
		if _, err := r.Read(buf); err != nil || string(buf) != "here" {
			t.Fatalf("control: %q, %v", buf, err)
		}
		if err := syscall.Rmdir(g.Dirs()[0]); err == nil {
			t.Error("control: a group with a process was removed")
		}
		if err := g.Kill(time.Minute); err != nil {
			t.Error(err)
		}
		if cmd.Wait() == nil {
			t.Error("it was not killed")
		}
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
		if exists(g.Dirs()[0]) {
			t.Error("the group is still there")
		}
	}
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

func spin(t *testing.T, g Group) (ms int) {
	t.Helper()
	out, err := child("spin", g).CombinedOutput()
	if _, e := fmt.Sscan(string(out), &ms); err != nil || e != nil {
		t.Fatalf("%q, %v", out, err)
	}
	return ms
}

// throttles is how often the kernel held a group back.
func throttles(g Group) (n int64) {
	dirs := g.Dirs()
	for line := range strings.Lines(readText(dirs[len(dirs)-1], "cpu.stat") + "\n") {
		if v, ok := strings.CutPrefix(line, "nr_throttled "); ok {
			n = number(strings.TrimSpace(v))
		}
	}
	return n
}

// Where a real version 2 hands no memory controller down, nothing is run: it is
// not there, or it cannot be delegated because processes are in the way.
func TestRealVersion2Refuses(t *testing.T) {
	h := realHierarchy(t)
	if !h.v2 {
		t.Skip("skipped: this machine has version 1; `make cgroup2` runs it in one that has version 2")
	}
	root := filepath.Dir(filepath.Dir(h.memory))
	for name, prepare := range map[string]func(dir string) string{
		"no controller": func(dir string) string { // it hands down nothing
			inner := filepath.Join(dir, "inner")
			if err := os.Mkdir(inner, 0o755); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = syscall.Rmdir(inner); _ = syscall.Rmdir(dir) })
			return inner
		},
		"processes in the way": func(dir string) string {
			cmd := exec.Command("/proc/self/exe", "wait", dir)
			if r, err := cmd.StdoutPipe(); err != nil || cmd.Start() != nil {
				t.Fatal(err)
			} else if _, err := r.Read(make([]byte, 4)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); _ = syscall.Rmdir(dir) })
			return dir
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(root, strings.ReplaceAll(name, " ", "-"))
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			dir = prepare(dir)
			_, err := Find(mounts(dir+" cgroup2 rw"), "key")
			if !errors.Is(err, ErrNoMemoryControl) {
				t.Errorf("%s has %q: %v", dir, readText(dir, "cgroup.controllers"), err)
			}
			t.Log(err)
		})
	}
}

// A host that is killed leaves groups; whoever starts next, in whatever folder, ends
// what is in them and removes them. Those of hosts that live stay, and so do those
// that changed a moment ago.
func TestGroupsOfDeadHosts(t *testing.T) {
	realHierarchy(t) // skips
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	key := func(name string) string { return fmt.Sprintf("test-%d-%s", os.Getpid(), name) }
	_, starting, err := Own(info, key("starting"))
	if err != nil {
		t.Fatal(err)
	}
	defer starting.Close()
	living, owner, err := Own(info, key("living"))
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	if _, err := living.New("run", 64<<20, 0); err != nil {
		t.Fatal(err)
	}
	defer living.Reap(time.Second)

	killed := exec.Command("/proc/self/exe", "own", key("killed"))
	said, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	killed.Stdout = w
	err = killed.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(said).ReadString('\n'); line != "here\n" {
		t.Fatalf("%q, %v", line, err)
	}
	dead := living.beside(ownPrefix + key("killed"))
	there := func(h Hierarchy) (n int) {
		for _, f := range h.Folders() {
			if _, err := os.Stat(f); err == nil {
				n++
			}
		}
		return n
	}
	if err := starting.removeDead(ownPrefix+key(""), 0, time.Minute); err != nil {
		t.Fatal(err)
	}
	if all := len(dead.Folders()); there(dead) != all || there(living) != all || len(dead.Groups()) != 1 {
		t.Fatal("control: groups of a host that lives are gone")
	}
	_ = killed.Process.Kill()
	_ = killed.Wait()
	if err := starting.removeDead(ownPrefix+key(""), time.Hour, time.Minute); err != nil || there(dead) == 0 {
		t.Fatalf("control: groups that changed a moment ago are gone, %v", err)
	}
	if err := starting.removeDead(ownPrefix+key(""), 0, time.Minute); err != nil {
		t.Fatal(err)
	}
	if n := there(dead); n != 0 {
		t.Errorf("%d folders of a dead host are left", n)
	}
	if n := there(living); n != len(living.Folders()) || len(living.Groups()) != 1 {
		t.Errorf("a living host has %d folders, %d groups", n, len(living.Groups()))
	}
	_ = said.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.ReadAll(said); err != nil { // its end is that of whoever writes to it
		t.Errorf("what a dead host left running still runs: %v", err)
	}
	again, next, err := Own(info, key("killed")) // its folder, taken again
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if g, err := again.New("run", 64<<20, 0); err != nil || g.Remove() != nil {
		t.Error(err)
	}
}
