package escape_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sallyport.dev/sallyport/cage"
	"sallyport.dev/sallyport/cage/cagetest"
)

// A cage holds the runtime of isolates and that of modules. Here the probe is in
// their place: native code, which either would be once somebody had taken it over.
// The controls are those of the tests with the same number, of the same probe.

func newHouse(t *testing.T) (h *cage.House, dir string) {
	t.Helper()
	h = cagetest.Open(t, t.TempDir())
	return h, h.Dir()
}

// caged runs the probe in a cage and returns its lines, and how it ended.
func caged(t *testing.T, h *cage.House, p tool, only string, args ...string) (lines []string, exit cage.Exit) {
	t.Helper()
	program, err := os.Open(p.path)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c, err := h.Start(cage.Spec{
		Program: program, Args: append([]string{"probe"}, args...), Env: []string{"PROBE_ONLY=" + only}, Stdout: w, Stderr: w,
		Memory: 256 << 20, CPUs: 1,
	})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(2*time.Minute, c.Kill)
	defer late.Stop()
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n"), c.Wait()
}

// cagedWhole is caged of a probe that comes to its end.
func cagedWhole(t *testing.T, args ...string) []string {
	t.Helper()
	h, _ := newHouse(t)
	lines, exit := caged(t, h, newTool(t), "", args...)
	if lines[len(lines)-1] != "END" || exit.Err != nil {
		t.Fatalf("the probe %q did not come to its end: %.600q, %+v", args, lines, exit)
	}
	return lines
}

// none says that nothing of a kind is in the lines.
func none(t *testing.T, lines []string, prefix string, harmless ...string) {
	t.Helper()
	for _, l := range with(lines, prefix) {
		if !slices.Contains(harmless, l) {
			t.Errorf("%s %s", prefix, l)
		}
	}
}

func TestTO40_Cage(t *testing.T) {
	canary := fmt.Sprintf("canary-%d", time.Now().UnixNano())
	t.Setenv("ESCAPE_CANARY", canary)
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(canary), 0o644); err != nil {
		t.Fatal(err)
	}
	half := canary[len("canary-"):]
	none(t, cagedWhole(t, "read", half, file, "/etc/passwd", "/etc/shadow"), "HIT")
	none(t, cagedWhole(t, "walk", half, "/"), "HIT")
	none(t, cagedWhole(t, "mounts"), "MOUNT")
}

func TestTO41_Cage(t *testing.T) {
	file := bait(t)
	before := hostState(t)
	none(t, cagedWhole(t, "mount", "/", "/", file), "DONE")
	unchanged(t, before, hostState(t))
}

func TestTO42_Cage(t *testing.T) {
	none(t, cagedWhole(t, append([]string{"knobs", "marker", "/"}, settings...)...), "WROTE")
}

// In its cage a program is alone: no process of the host has a number there.
func TestTO43_Cage(t *testing.T) {
	none(t, cagedWhole(t, "trace", strconv.Itoa(os.Getpid())), "DONE")
}

func TestTO44_Cage(t *testing.T) {
	h, _ := newHouse(t)
	p := newTool(t)
	var names, others []string // of calls; those of the other kind of numbers end the program
	for _, l := range p.outside(t, "calls") {
		_, name, _ := strings.Cut(l, " ")
		if name, _, _ = strings.Cut(name, ":"); strings.HasPrefix(name, "unlisted x32") || name == "unlisted number 2147483647" {
			others = append(others, name)
		} else if name != "" {
			names = append(names, name)
		}
	}
	lines, exit := caged(t, h, p, strings.Join(names, ","), "calls")
	none(t, lines, "DONE")
	if lines[len(lines)-1] != "END" || len(with(lines, "NOT")) < 25 {
		t.Errorf("%q, %+v", lines, exit)
	}
	for _, name := range others {
		lines, exit := caged(t, h, p, name, "calls")
		if !exit.Status.Signaled() || exit.Status.Signal() != syscall.SIGSYS || len(with(lines, "DONE")) > 0 {
			t.Errorf("%s: %q, %v", name, lines, exit.Status)
		}
	}
	began := time.Now()
	none(t, cagedWhole(t, "clock"), "DONE")
	if wall, steady := time.Now().Round(0).Sub(began.Round(0)), time.Since(began); (wall - steady).Abs() > 10*time.Minute {
		t.Errorf("the host's clock went %v in %v", wall, steady)
	}
}

func TestTO45_Cage(t *testing.T) {
	lines := cagedWhole(t, "devices", "/")
	none(t, lines, "DEV")
	none(t, lines, "MKNOD")
	none(t, lines, "OPEN")
}

func TestTO46_Cage(t *testing.T) {
	h, _ := newHouse(t)
	names := []string{"io_uring_setup", "openat through a ring", "io_uring_enter", "io_uring_register"}
	lines, _ := caged(t, h, newTool(t), strings.Join(names, ","), "calls")
	if none(t, lines, "DONE"); len(with(lines, "NOT")) != len(names) {
		t.Errorf("%q", lines)
	}
}

func TestTO47_Cage(t *testing.T) {
	p := newTool(t)
	for _, f := range []string{t.TempDir(), p.path} { // neither closes on exec
		fd, err := syscall.Open(f, syscall.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Close(fd)
	}
	lines := cagedWhole(t, "held")
	for _, fd := range with(lines, "HELD") {
		if n, _, _ := strings.Cut(fd, " "); n != "0" && n != "1" && n != "2" {
			t.Errorf("descriptor %s", fd)
		}
	}
	if len(with(lines, "HELD")) != 3 {
		t.Errorf("control: %q", lines)
	}
	if out := with(p.outside(t, "held"), "HELD"); len(out) < 3 {
		t.Errorf("control: outside, %q", out)
	}
}

// The kernel is the host's, and so is what it is called; nothing else is told.
func TestTO48_Cage(t *testing.T) {
	lines := cagedWhole(t, "leaks")
	outside := values(newTool(t).outside(t, "leaks"))
	for k, v := range values(lines) {
		if v == outside[k] && len(v) > 2 && k != "uname-release" && k != "uname-version" {
			t.Errorf("%s is the host's: %q", k, v)
		}
		t.Logf("%s %.120q", k, v)
	}
	who := with(cagedWhole(t, "identity"), "IS")
	if len(who) != 1 || !strings.Contains(who[0], "no_new_privs 1 bounding 0 ") {
		t.Fatalf("%q", who)
	}
	var uid int
	if _, err := fmt.Sscanf(who[0], "uid %d ", &uid); err != nil || uid < 1<<16 { // those below may be somebody's
		t.Errorf("uid %d is one of the host's: %v", uid, err)
	}
}

func TestTO60_Cage(t *testing.T) {
	p := newTool(t)
	c := startCanary(t, p)
	near := c.targets(t)
	lines := cagedWhole(t, append([]string{"dial", "scan!127.0.0.1:1-4096", "dns!example.com", "tcp!169.254.169.254:80", "tcp!1.1.1.1:443"}, near...)...)
	none(t, lines, "REACHED")
	none(t, lines, "SOCKET")
	none(t, lines, "INTERFACE")
	if heard := c.heard(t, 0); len(heard) > 0 {
		t.Errorf("the canary heard %q", heard)
	}
	if r := with(p.outside(t, append([]string{"dial"}, near...)...), "REACHED"); len(r) != len(near) {
		t.Errorf("control: outside, %q of %q", r, near)
	}
}
