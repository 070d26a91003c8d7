package kernel

import (
	"bufio"
	"context"
	"debug/elf"
	"fmt"
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

	"sallyport.dev/sallyport/image"
	"sallyport.dev/sallyport/microvm/tsc"
	"sallyport.dev/sallyport/test/stage"
)

// Each kernel is really booted, by QEMU's software emulation. Process 1 is this
// test's binary: it does what a guest needs, with the drivers that it finds, and
// what it says over the channel proves that they are all there.

func TestMain(m *testing.M) {
	if os.Getpid() == 1 && os.Args[0] == "/init" {
		asInit()
		return
	}
	os.Exit(m.Run())
}

func asInit() {
	defer func() { _ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_RESTART) }()
	if err := inGuest(); err != nil {
		fmt.Println("FAILED", err)
	}
}

func inGuest() error {
	for _, d := range []struct{ kind, at string }{{"devtmpfs", "/dev"}, {"proc", "/proc"}, {"sysfs", "/sys"}} {
		if err := syscall.Mount(d.kind, d.at, d.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", d.at, err)
		}
	}
	order, err := os.ReadFile("/mods/order")
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(order)) {
		f, err := os.Open("/mods/" + name)
		if err != nil {
			return err
		}
		if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
	}
	port, err := channel()
	if err != nil {
		return err
	}
	fmt.Fprintln(port, "READY")
	if err := useDisk(); err != nil {
		return err
	}
	for _, domain := range []int{unix.AF_UNIX, unix.AF_INET, unix.AF_VSOCK} {
		fd, err := unix.Socket(domain, unix.SOCK_STREAM, 0)
		if err != nil {
			return fmt.Errorf("socket of domain %d: %w", domain, err)
		}
		unix.Close(fd)
	}
	if err := syscall.Mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, ""); err != nil {
		return err
	}
	controllers, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	if err != nil {
		return err
	}
	random, err := os.ReadFile("/sys/class/misc/hw_random/rng_available")
	if err != nil {
		return err
	}
	version, err := os.ReadFile("/proc/sys/kernel/osrelease")
	fmt.Fprintf(port, "DONE linux %s; cgroups %s; randomness %s\n", fields(version), fields(controllers), fields(random))
	return err
}

func fields(b []byte) string { return strings.Join(strings.Fields(string(b)), " ") }

func channel() (*os.File, error) {
	names, _ := filepath.Glob("/sys/class/virtio-ports/*/name")
	for _, name := range names {
		if b, _ := os.ReadFile(name); strings.TrimSpace(string(b)) == "agent" {
			return os.OpenFile("/dev/"+filepath.Base(filepath.Dir(name)), os.O_RDWR, 0)
		}
	}
	return nil, fmt.Errorf("no channel among %v", names)
}

// useDisk mounts the disk, and something writable over it.
func useDisk() error {
	for _, dir := range []string{"/disk", "/over", "/merged"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := syscall.Mount("/dev/vda", "/disk", "erofs", syscall.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("erofs: %w", err)
	}
	if err := syscall.Mount("tmpfs", "/over", "tmpfs", 0, "size=1m"); err != nil {
		return fmt.Errorf("tmpfs: %w", err)
	}
	for _, dir := range []string{"/over/up", "/over/work"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := syscall.Mount("overlay", "/merged", "overlay", 0, "lowerdir=/disk,upperdir=/over/up,workdir=/over/work"); err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	if b, err := os.ReadFile("/merged/greeting"); err != nil || string(b) != "of the disk" {
		return fmt.Errorf("the disk says %q, %v", b, err)
	}
	if err := os.WriteFile("/merged/greeting", []byte("changed"), 0o600); err != nil {
		return err
	}
	if b, err := os.ReadFile("/disk/greeting"); err != nil || string(b) != "of the disk" {
		return fmt.Errorf("after a write over it the disk says %q, %v", b, err)
	}
	return nil
}

// bootTime is for software emulation on a busy machine.
const bootTime = 3 * time.Minute

func TestBoots(t *testing.T) {
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		stage.Absent(t, "QEMU is not here (package qemu-system-x86)")
	}
	cache := image.CacheDir(os.Getenv, os.Geteuid())
	if _, err := Describe(cache, Debian); err != nil {
		stage.Absent(t, "Debian's guest kernel is not in the cache; `make build` puts it there")
	}
	programs := guestPrograms(t)
	disk := packed(t)
	for _, name := range []string{Debian, Small} {
		t.Run(name, func(t *testing.T) {
			k, err := Describe(cache, name)
			if err != nil {
				t.Skip("skipped: it is not in the cache (optional: `make guest-kernel` compiles it)")
			}
			g, err := k.Open(cache, programs)
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			said := boot(t, qemu, g, disk)
			for _, want := range []string{k.Release + ";", "memory", "pids", "virtio_rng"} {
				if !strings.Contains(said, want) {
					t.Errorf("the guest says %q, without %q", said, want)
				}
			}
		})
	}
}

// guestPrograms is a folder in which this binary stands for those of the guest.
func guestPrograms(t testing.TB) string {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(self)
	if err != nil || slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Skip("skipped: this test binary is not static (CGO_ENABLED=0)")
	}
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, "sallyport-guest")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "sallyport-init"), []byte("not used here"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func packed(t *testing.T) *os.File {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "greeting"), []byte("of the disk"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	f, err := os.Create(filepath.Join(t.TempDir(), "disk.erofs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := image.Pack(f, root, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	return f
}

// boot returns the guest's last word over its channel.
func boot(t *testing.T, qemu string, g *Guest, disk *os.File) string {
	socket := filepath.Join(t.TempDir(), "c")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	acpi := map[bool]string{true: "on", false: "off"}[g.Kernel.ACPI]
	khz, err := tsc.KHz()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), bootTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, qemu, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-M", "microvm,x-option-roms=off,rtc=on,acpi="+acpi, "-accel", "tcg", "-cpu", "max", "-m", "256", "-serial", "stdio",
		"-kernel", "/proc/self/fd/3", "-initrd", "/proc/self/fd/4", "-append", fmt.Sprintf("console=ttyS0 quiet panic=-1 reboot=t tsc=reliable tsc_early_khz=%d", khz),
		"-global", "virtio-mmio.force-legacy=false", "-device", "virtio-serial-device",
		"-chardev", "socket,id=c,path="+socket, "-device", "virtserialport,chardev=c,name=agent",
		"-drive", "if=none,id=d,format=raw,readonly=on,file=/proc/self/fd/5", "-device", "virtio-blk-device,drive=d",
		"-device", "virtio-rng-device")
	cmd.ExtraFiles = []*os.File{g.Image, g.Initrd, disk}
	var console strings.Builder
	cmd.Stdout, cmd.Stderr = &console, &console
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("console:\n%s", console.String())
		}
	}()
	if err := l.(*net.UnixListener).SetDeadline(began.Add(bootTime)); err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(began.Add(bootTime)); err != nil {
		t.Fatal(err)
	}
	var last string
	lines := bufio.NewScanner(c)
	for lines.Scan() && !strings.HasPrefix(last, "DONE") {
		last = lines.Text()
		t.Logf("%v: %s", time.Since(began).Round(time.Millisecond), last)
	}
	if !strings.HasPrefix(last, "DONE") {
		t.Errorf("the guest ended with %q (%v)", last, lines.Err())
	}
	return last
}
