package firecracker

import (
	"bufio"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/microvm/vmm"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/test/stage"
)

// A scene is a place for a VMM, with the fake's programs.
type scene struct {
	backend *Backend
	place   vmm.Place
	machine vmm.Machine
}

// newScene makes one. wrong is what the fake does wrong.
func newScene(t *testing.T, wrong string) scene {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: a jail needs root")
	}
	programs := fakes(t, wrong)
	s := scene{backend: &Backend{Firecracker: filepath.Join(programs, "firecracker"), Jailer: filepath.Join(programs, "jailer"), Dir: filepath.Join(programs, "shelf")}}
	s.place = vmm.Place{
		ID: fmt.Sprintf("vm-%d-%d", os.Getpid(), time.Now().UnixNano()%1e9), Dir: filepath.Join(programs, "place"),
		UID: 64999, Groups: []string{newGroup(t)}, Start: func(c *exec.Cmd) error { return c.Start() },
	}
	s.machine = vmm.Machine{
		Memory: 128 << 20, Append: "quiet", Kernel: file(t, string(bzImage())), Initrd: file(t, "the initramfs"), Root: file(t, "the image"),
	}
	return s
}

// again is another place beside that of a scene.
func (s scene) again(t *testing.T) vmm.Place {
	p := s.place
	p.ID += "-again"
	p.Groups = []string{newGroup(t)}
	return p
}

// fakes are both programs: this one, which must be static, since it runs in a jail.
func fakes(t *testing.T, wrong string) (dir string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	e, err := elf.Open(self)
	if err != nil || slices.ContainsFunc(e.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Skip("skipped: this test binary is not static (CGO_ENABLED=0)")
	}
	dir = stage.OpenDir(t)
	for _, name := range []string{"jailer", "firecracker"} {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "wrong"), []byte(wrong), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// newGroup makes a control group of version 2. Where that is mounted nowhere, it is
// mounted for the test.
func newGroup(t *testing.T) string {
	t.Helper()
	if unifiedMount() == "" {
		mount := t.TempDir()
		if err := unix.Mount("none", mount, "cgroup2", 0, ""); err != nil {
			stage.Absent(t, "control groups of version 2 cannot be mounted here: "+err.Error())
		}
		t.Cleanup(func() { _ = unix.Unmount(mount, unix.MNT_DETACH) })
	}
	dir, err := os.MkdirTemp(unifiedMount(), "sallyport-fire-")
	if err != nil {
		stage.Absent(t, "no control group of version 2 can be made here: "+err.Error())
	}
	t.Cleanup(func() {
		await.That(t, "nothing is left in "+dir, func() bool { return os.Remove(dir) == nil })
	})
	return dir
}

func file(t *testing.T, text string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	return f
}

// bzImage is one with an ELF file of four bytes in it.
func bzImage() []byte {
	b := make([]byte, 1024)
	b[0x1f1] = 1
	copy(b[0x202:], "HdrS\x0f\x02")
	payload := "\x02\x21\x4c\x18\x05\x00\x00\x00\x40\x7fELF\x04\x00\x00\x00"
	binary.LittleEndian.PutUint32(b[0x24c:], uint32(len(payload)))
	return append(b, payload...)
}

// says writes a line to the agent and returns its answer.
func says(t *testing.T, c net.Conn, line string) string {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(c, line)
	s, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		t.Fatalf("the agent was asked %q: %v", line, err)
	}
	return strings.TrimSpace(s)
}

func pidOf(t *testing.T, v vmm.VM) int {
	t.Helper()
	return v.(*vm).process.Pid
}

func TestNotRunAgainstFirecrackerLife(t *testing.T) {
	s := newScene(t, "")
	v, err := s.backend.Boot(t.Context(), s.place, s.machine)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.Kill() })
	if got := says(t, v.Agent(), "hello"); got != "booted: hello" {
		t.Errorf("the agent says %q", got)
	}
	pid := pidOf(t, v)
	if in, err := contains(s.place.Groups[0], pid); err != nil || !in {
		t.Errorf("it is not in its group: %v", err)
	}
	before := v.Agent()
	if err := errors.Join(v.Pause(t.Context()), v.Resume(t.Context())); err != nil {
		t.Fatal(err)
	}
	if v.Agent() != before || says(t, v.Agent(), "still") != "booted: still" {
		t.Error("a pause cost the channel")
	}
	saved, err := v.Save(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(saved.Close)
	if got := says(t, v.Agent(), "after"); got != "booted: after" || saved.Paused <= 0 {
		t.Errorf("after it was saved the agent says %q (held for %v)", got, saved.Paused)
	}
	if _, err := saved.Memory.WriteAt([]byte("x"), 0); !errors.Is(err, os.ErrPermission) {
		t.Errorf("a snapshot can be changed: %v", err)
	}
	for range 2 {
		if err := v.Kill(); err != nil {
			t.Error(err)
		}
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("after Kill: %v", err)
	}
	if _, err := v.Agent().Read(make([]byte, 1)); err == nil {
		t.Error("the channel outlived Firecracker")
	}
	two := restored(t, s, saved)
	if got := says(t, two.Agent(), "hello"); got != "restored of booted: hello" {
		t.Errorf("the restored agent says %q", got)
	}
}

// restored makes a guest of a snapshot. It is parked until it is resumed.
func restored(t *testing.T, s scene, saved vmm.Snapshot) vmm.VM {
	t.Helper()
	v, err := s.backend.Restore(t.Context(), s.again(t), s.machine, saved)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.Kill() })
	if v.Agent() != nil {
		t.Error("a parked guest has a channel")
	}
	if err := v.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	return v
}

// Whatever goes wrong is said, with what to do; and no process is left, which the
// control group proves when it is removed.
func TestNotRunAgainstFirecrackerFailures(t *testing.T) {
	for wrong, want := range map[string]string{
		"jailer fails": "jailer, ended before", "outside": "not in the control group", "no API": "before its API was there",
		"PUT /actions dies": "cut the line, at PUT /actions", "PUT /actions Cannot open kernel": `refused PUT /actions (400): "Cannot open kernel"`,
		"PUT /machine-config says too much": "more than 64 KiB", "PUT /drives/root sends elsewhere": "refused PUT /drives/root (307)",
		"PUT /boot-source says nonsense": `(500): "\x1b[31mnot JSON"`, "another protocol": "cannot be reached",
	} {
		t.Run(wrong, func(t *testing.T) {
			s := newScene(t, wrong)
			v, err := s.backend.Boot(t.Context(), s.place, s.machine)
			if err == nil {
				_ = v.Kill()
				t.Fatal("it booted")
			}
			e, ok := errors.AsType[*sallyport.Error](err)
			if !ok || e.Code != sallyport.Unavailable || !strings.Contains(e.Message, want) || e.Hint == "" {
				t.Errorf("%v, want %q and a hint", err, want)
			}
			if wrong == "PUT /actions dies" && !strings.Contains(err.Error(), "panicked") {
				t.Errorf("%v: without its last words", err)
			}
		})
	}
}

// Who waits for a guest that does not come can stop, by the context and by Kill.
func TestNotRunAgainstFirecrackerPatience(t *testing.T) {
	for wrong, late := range map[string]bool{"no agent": true, "PUT /entropy is silent": false} {
		var err error
		await.Longer(300*time.Millisecond, func(d time.Duration) bool { // a short time may end before it came so far
			s := newScene(t, wrong)
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			_, err = s.backend.Boot(ctx, s.place, s.machine)
			e, ok := errors.AsType[*sallyport.Error](err)
			return errors.Is(err, context.DeadlineExceeded) && (ok && e.Hint != "" || !late)
		})
		if e, ok := errors.AsType[*sallyport.Error](err); !errors.Is(err, context.DeadlineExceeded) || late && (!ok || e.Hint == "") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

// A VMM that dies takes the channel with it, and what is asked of it fails at once.
func TestNotRunAgainstFirecrackerDeath(t *testing.T) {
	s := newScene(t, "")
	v, err := s.backend.Boot(t.Context(), s.place, s.machine)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.Kill() })
	if err := syscall.Kill(pidOf(t, v), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(v.Agent()); err != nil {
		t.Errorf("the channel: %v", err)
	}
	if err := v.Pause(t.Context()); err == nil {
		t.Error("a dead VMM was paused")
	}
	if _, err := v.Save(t.Context()); err == nil {
		t.Error("a dead VMM was saved")
	}
	if err := v.Kill(); err != nil {
		t.Error(err)
	}
}

// What is missing is said; and what is there must be of a release that is known.
func TestNotRunAgainstFirecrackerFind(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Find(t.TempDir())
	if e, ok := errors.AsType[*sallyport.Error](err); !ok || e.Message != "there is no firecracker in PATH" || e.Hint == "" {
		t.Error(err)
	}
	t.Setenv("PATH", fakes(t, ""))
	b, err := Find(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if version, err := b.version(t.Context()); err != nil || version != "1.16.1" {
		t.Error(version, err)
	}
	for _, other := range []string{"Firecracker v1.15.9\n", "Firecracker v2.0.0\n", "Docker v1.16.1\n", "Firecracker v1.16\n"} {
		b.Firecracker = filepath.Join(fakes(t, "says: "+other), "firecracker")
		if version, err := b.version(t.Context()); err == nil {
			t.Errorf("%q was taken, as %s", other, version)
		}
	}
	id, err := b.Identity(t.Context())
	if err == nil {
		t.Errorf("%q is not refused in Identity", id.Version)
	}
	b.Firecracker = filepath.Join(fakes(t, ""), "firecracker")
	id, err = b.Identity(t.Context())
	if kvm, none := os.OpenFile("/dev/kvm", os.O_RDWR, 0); none != nil {
		if err == nil {
			t.Errorf("without KVM it is %+v", id)
		}
		return
	} else if kvm.Close(); err != nil || id.Name != Name || id.Accel != "kvm" || id.Version != "1.16.1" || id.CPU == "" {
		t.Errorf("%+v, %v", id, err)
	}
}
