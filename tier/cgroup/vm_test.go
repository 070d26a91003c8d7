package cgroup

import (
	"bytes"
	"compress/gzip"
	"context"
	"debug/elf"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Most machines that the tests run on have one version of cgroups. For the other
// there is a machine of its own: a kernel of the distribution in QEMU, whose first
// process is this test's binary.

const (
	vmTests = "TestReal"
	vmTime  = 5 * time.Minute // software emulation on a busy machine
)

// asInit is process 1 in that machine.
func asInit(m *testing.M) int {
	for _, d := range []struct{ kind, at string }{{"devtmpfs", "/dev"}, {"proc", "/proc"}, {"sysfs", "/sys"}, {"tmpfs", "/tmp"}, {"cgroup2", "/sys/fs/cgroup"}} {
		_ = os.MkdirAll(d.at, 0o755)
		if err := syscall.Mount(d.kind, d.at, d.kind, 0, ""); err != nil {
			fmt.Println("mount", d.at, err)
		}
	}
	os.Args = []string{"cgroup.test", "-test.v", "-test.run=^" + vmTests}
	flag.Parse()
	fmt.Printf("STATUS %d of %s\n", m.Run(), readText("/proc/version"))
	syscall.Sync()
	return int(syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF).(syscall.Errno))
}

// TestVersion2InAMachine runs the tests of a real kernel on version 2.
func TestVersion2InAMachine(t *testing.T) {
	if os.Getenv("SALLYPORT_SOAK") == "" {
		t.Skip("skipped: it takes up to a minute; `make cgroup2` runs it")
	}
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Skip("skipped: QEMU is not here (package qemu-system-x86)")
	}
	kernels, _ := filepath.Glob("/boot/vmlinuz-*-cloud-amd64")
	if k := os.Getenv("SALLYPORT_KERNEL"); k != "" {
		kernels = []string{k}
	}
	if len(kernels) == 0 {
		t.Skip("skipped: there is no kernel for it; `make cgroup2` fetches one, or set SALLYPORT_KERNEL")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if f, err := elf.Open(self); err != nil || slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Skip("skipped: this test binary is not static (CGO_ENABLED=0)")
	}
	initrd := filepath.Join(t.TempDir(), "initrd")
	if err := os.WriteFile(initrd, archive(t, self), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), vmTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, qemu, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-M", "pc", "-accel", "tcg", "-cpu", "max", "-m", "1024",
		"-serial", "stdio", "-kernel", kernels[len(kernels)-1], "-initrd", initrd, "-append", "console=ttyS0 panic=-1 loglevel=3 rdinit=/init")
	out, err := cmd.CombinedOutput()
	said := strings.ReplaceAll(string(out), "\r", "")
	t.Logf("%s", said)
	if err != nil || !strings.Contains(said, "STATUS 0 of Linux") {
		t.Errorf("the machine: %v", err)
	}
	for _, want := range []string{"--- PASS: TestRealLimits", "--- PASS: TestRealVersion2Refuses/no_controller", "--- PASS: TestRealVersion2Refuses/processes_in_the_way"} {
		if !strings.Contains(said, want) {
			t.Errorf("not seen: %s", want)
		}
	}
}

// archive is a root file system with one program.
func archive(t *testing.T, program string) []byte {
	t.Helper()
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	entry := func(name string, mode int, data []byte) {
		head := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00", 0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0, name)
		pad := func(n int) { _, _ = io.WriteString(z, strings.Repeat("\x00", (4-n%4)%4)) }
		_, _ = io.WriteString(z, head)
		pad(len(head))
		_, _ = z.Write(data)
		pad(len(data))
	}
	for _, dir := range []string{"dev", "proc", "sys", "tmp"} {
		entry(dir, syscall.S_IFDIR|0o755, nil)
	}
	entry("init", syscall.S_IFREG|0o755, content)
	entry("TRAILER!!!", 0, nil)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
