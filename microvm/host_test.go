package microvm_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/microvm"
	"sallyport.dev/sallyport/microvm/microvmtest"
	"sallyport.dev/sallyport/microvm/qemu"
	"sallyport.dev/sallyport/microvm/vmm"
	"sallyport.dev/sallyport/test/await"
)

// A deaf backend starts guests that never say anything, as a KVM does that takes
// everything that is asked of it and runs nothing.
type deaf struct{ began *time.Time }

func (d deaf) Identity(context.Context) (vmm.Identity, error) {
	return vmm.Identity{Name: "deaf", Accel: "kvm", Version: "1"}, nil
}

func (d deaf) Boot(context.Context, vmm.Place, vmm.Machine) (vmm.VM, error) {
	*d.began = time.Now()
	ours, theirs := net.Pipe()
	return &deafVM{agent: ours, other: theirs}, nil
}

func (d deaf) Restore(context.Context, vmm.Place, vmm.Machine, vmm.Snapshot) (vmm.VM, error) {
	return nil, errors.New("nothing was saved")
}

type deafVM struct{ agent, other net.Conn }

func (v *deafVM) Agent() net.Conn              { return v.agent }
func (v *deafVM) Pause(context.Context) error  { return nil }
func (v *deafVM) Resume(context.Context) error { return nil }
func (v *deafVM) Kill() error                  { return errors.Join(v.agent.Close(), v.other.Close()) }
func (v *deafVM) Save(context.Context) (vmm.Snapshot, error) {
	return vmm.Snapshot{}, errors.New("nothing to save")
}

// An accelerator that hangs is found out by booting a guest, within seconds, and
// the next one is used, by its name. Where there is no next one, nothing is.
func TestProbeRefusesWhatHangs(t *testing.T) {
	var began time.Time
	h := microvmtest.Open(t, func(c *microvm.Config) {
		c.Backends, c.Hello = []vmm.Backend{deaf{&began}, qemu.Backend{Accel: qemu.TCG}}, time.Second
	})
	platform, err := h.Probe(t.Context(), "default")
	if err != nil || !strings.HasPrefix(platform, "qemu ") || !strings.Contains(platform, "software emulation (tcg)") || !strings.Contains(platform, "refused: deaf/kvm: the guest did not answer in time") {
		t.Fatal(platform, err)
	}
	if why := h.Refused(); len(why) != 1 || !strings.Contains(why[0], "deaf/kvm: the guest did not answer in time") {
		t.Errorf("%q", why)
	}
	if res := run(t, h, request("true")); res.Receipt.Accel != "tcg" || res.Receipt.Platform != "qemu" {
		t.Errorf("%+v", res.Receipt)
	}
	alone := microvmtest.Open(t, func(c *microvm.Config) { c.Backends, c.Hello = []vmm.Backend{deaf{&began}}, time.Second })
	if _, err := alone.Probe(t.Context(), "default"); sallyport.CodeOf(err) != sallyport.Unavailable {
		t.Error(err)
	}
	if _, err := alone.Run(t.Context(), request("true")); sallyport.CodeOf(err) != sallyport.Unavailable {
		t.Errorf("it ran all the same: %v", err)
	}
}

// TestMain lets the test binary be a QEMU that ends as soon as it is started.
func TestMain(m *testing.M) {
	switch {
	case os.Args[0] == "qemu":
		fmt.Fprintln(os.Stderr, "an assertion failed")
		os.Exit(3)
	case len(os.Args) == 2 && os.Args[1] == "--version":
		fmt.Println("QEMU emulator version 0.0.1")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A QEMU that ends as it starts is refused for that, and not as one that is waited for
// in vain.
func TestProbeRefusesWhatEnds(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := microvmtest.Open(t, func(c *microvm.Config) { c.Backends = []vmm.Backend{qemu.Backend{Accel: qemu.TCG, Program: self}} })
	if _, err := h.Probe(t.Context(), "default"); err == nil || !strings.Contains(err.Error(), "QEMU has ended (QEMU says: an assertion failed)") {
		t.Error(err)
	}
}

// The KVM of this very machine is used if a guest runs with it, and not because
// /dev/kvm is there.
func TestProbeOfThisMachinesKVM(t *testing.T) {
	if _, err := os.Stat("/dev/kvm"); err != nil {
		t.Skip("skipped: this machine has no /dev/kvm")
	}
	h := microvmtest.Open(t, func(c *microvm.Config) { c.Backends = []vmm.Backend{qemu.Backend{Accel: qemu.KVM}} })
	platform, err := h.Probe(t.Context(), "default")
	if err == nil && strings.Contains(platform, "(kvm)") {
		t.Log("KVM runs guests here")
		return
	}
	if sallyport.CodeOf(err) != sallyport.Unavailable {
		t.Errorf("%q %v", platform, err)
	}
	t.Log("refused:", err)
}

// vmms are the processes of VMMs that run as one of the uids.
func vmms(first int) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		var st unix.Stat_t
		if unix.Stat(d, &st) == nil && int(st.Uid) >= first && int(st.Uid) < first+100 {
			pid, _ := strconv.Atoi(filepath.Base(d))
			pids = append(pids, pid)
		}
	}
	return pids
}

// testUID is the first of a thousand uids of VMMs of this process's tests only.
var testUID = 1_000_000 + os.Getpid()%100_000*1000

func status(t *testing.T, pid string, field string) string {
	t.Helper()
	b, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.Join(strings.Fields(v), " ")
		}
	}
	return ""
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// maxTasks is how many a process's user may have.
func maxTasks(t *testing.T, pid string) int {
	t.Helper()
	b, err := os.ReadFile("/proc/" + pid + "/limits")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "Max processes")
	return number(t, strings.Fields(rest + " -1")[0])
}

// A VMM is another user, without privileges, in namespaces of its own, behind a
// filter of system calls, on a root with nothing of the host's but QEMU, and
// cannot write to the memory that all copies are made of. Each is compared with
// this process, which has none of that.
func TestVMMIsConfined(t *testing.T) {
	h := microvmtest.Open(t, func(c *microvm.Config) { c.FirstUID = testUID })
	s, err := h.Keep(t.Context(), request("-"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Destroy() //nolint:errcheck // the host's end tells
	pids := vmms(testUID)
	if len(pids) != 1 {
		t.Fatalf("VMMs: %v", pids)
	}
	pid := strconv.Itoa(pids[0])
	for field, want := range map[string]string{"CapEff": "0000000000000000", "CapBnd": "0000000000000000", "CapPrm": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2", "Groups": ""} {
		if got := status(t, pid, field); got != want {
			t.Errorf("%s is %q, not %q", field, got, want)
		}
		if field == "CapEff" && status(t, "self", field) == want {
			t.Error("control: this process has no capabilities, either")
		}
	}
	if most, now := maxTasks(t, pid), number(t, status(t, pid, "Threads")); most < now+64 || most > 200 {
		t.Errorf("it may have %d tasks, and has %d: those that read are up to 64 more", most, now)
	}
	for _, ns := range []string{"net", "mnt", "pid", "ipc", "uts"} {
		its, err := os.Readlink("/proc/" + pid + "/ns/" + ns)
		ours, _ := os.Readlink("/proc/self/ns/" + ns)
		if err != nil || its == ours {
			t.Errorf("namespace %s: %q, ours %q, %v", ns, its, ours, err)
		}
	}
	var names []string
	entries, _ := os.ReadDir("/proc/" + pid + "/root")
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(slices.DeleteFunc(names, func(n string) bool { return slices.Contains([]string{"dev", "lib", "lib64", "proc", "usr"}, n) }), nil) {
		t.Errorf("its root has %q as well", names)
	}
	fds, _ := os.ReadDir("/proc/" + pid + "/fd")
	for _, fd := range fds {
		path := "/proc/" + pid + "/fd/" + fd.Name()
		to, _ := os.Readlink(path)
		kind, _, _ := strings.Cut(to, ":")
		switch {
		case slices.Contains([]string{"socket", "pipe", "anon_inode"}, kind), to == "/dev/null", strings.HasSuffix(to, ".erofs"):
		case strings.HasPrefix(to, "/memfd:sallyport-ram"):
			f, err := os.OpenFile(path, os.O_RDWR, 0) // as root may, whatever the file says
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, unix.EPERM) {
				t.Errorf("the snapshot's memory was written to: %v", err)
			}
			f.Close()
		case strings.HasPrefix(to, "/memfd:"):
		default:
			t.Errorf("it has inherited %s", to)
		}
	}
}

// A host that is killed leaves no VMM, and the next one no folder or control group.
func TestKilledHostLeavesNothing(t *testing.T) {
	c := microvmtest.Config(t)
	if os.Getenv("SALLYPORT_HOLD") != "" {
		hold(t, c)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "SALLYPORT_HOLD="+c.Dir, "SALLYPORT_HOLD_UID="+strconv.Itoa(testUID+100), "SALLYPORT_BIN="+c.Programs, "TMPDIR="+filepath.Dir(c.Dir)) // what it makes goes with this test
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 64)
	n, _ := out.Read(said)
	if !strings.HasPrefix(string(said[:n]), "held") || len(vmms(testUID+100)) == 0 {
		t.Fatalf("%q, VMMs %v", said[:n], vmms(testUID+100))
	}
	_ = cmd.Process.Signal(syscall.SIGKILL)
	_ = cmd.Wait()
	await.That(t, "no VMM goes on", func() bool { return len(vmms(testUID+100)) == 0 })
	left, _ := filepath.Glob(filepath.Join(c.Dir, "runs", "*"))
	if len(left) == 0 {
		t.Error("control: there is nothing to clean up")
	}
	h, err := microvm.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if left, _ := filepath.Glob(filepath.Join(c.Dir, "runs", "*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// hold is the host that is killed.
func hold(t *testing.T, c microvm.Config) {
	c.Dir = os.Getenv("SALLYPORT_HOLD")
	c.FirstUID, _ = strconv.Atoi(os.Getenv("SALLYPORT_HOLD_UID"))
	h, err := microvm.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Keep(t.Context(), request("-")); err != nil {
		t.Fatal(err)
	}
	fmt.Println("held")
	select {}
}

// A host can be closed at any time: while its first guest boots, while others are
// made to wait, while programs run. Nothing is left, and who waits is told.
func TestCloseAtAnyTime(t *testing.T) {
	for i, after := range []time.Duration{0, 300 * time.Millisecond, time.Second, 3 * time.Second} {
		c := microvmtest.Config(t)
		c.FirstUID, c.Warm = testUID+200, 2
		if i == 0 {
			c.Backends = []vmm.Backend{deaf{new(time.Time)}} // whatever this machine has in its cache
		}
		h, err := microvm.Open(c)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := h.Run(context.Background(), request("sleep", "1000"))
				ended <- err
			}()
		}
		time.Sleep(after)
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := <-ended; err == nil {
				t.Error("a run of a closed host ended well")
			}
		}
		await.That(t, "no VMM goes on", func() bool { return len(vmms(c.FirstUID)) == 0 })
		if left, _ := filepath.Glob(filepath.Join(c.Dir, "runs", "*")); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	}
}
