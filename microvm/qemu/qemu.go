// Package qemu runs microVMs in QEMU: with KVM, or by software emulation where a
// processor offers nothing (or is a virtual machine's).
//
// QEMU is started by sallyport-init as an unprivileged user in namespaces of its
// own, on a root with little more than its program, with its own filter of system
// calls. What it needs is inherited: two sockets and the files. A snapshot's memory
// is a sealed file in memory: it is mapped privately, so that what a guest writes is
// a copy, and no QEMU can write to the file itself.
//
// A snapshot is the devices' state, as QEMU writes it without memory, and the
// memory as it is found in the process: pages that were written, over the file
// that they were copied from. So a guest that was restored can be saved again.
package qemu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/microvm/guest"
	"sallyport.dev/sallyport/microvm/snapshot"
	"sallyport.dev/sallyport/microvm/tsc"
	"sallyport.dev/sallyport/microvm/vmm"
)

// The accelerators.
const (
	KVM = "kvm"
	TCG = "tcg"
)

// Program is QEMU where packages put it. The smaller qemu-system-x86_64-microvm
// of Debian knows KVM only.
const Program = "/usr/bin/qemu-system-x86_64"

const machine = "microvm,x-option-roms=off,rtc=on,isa-serial=off,pit=on,pic=on,suppress-vmdesc=on,memory-backend=ram"

// A Backend is QEMU with one accelerator.
type Backend struct {
	Accel   string
	Program string // absolute; Program where it is ""
}

func (b Backend) program() string {
	if b.Program == "" {
		return Program
	}
	return b.Program
}

var versionLine = regexp.MustCompile(`version (\S+)( \([^)]*\))?`)

// Identity implements vmm.Backend.
func (b Backend) Identity(ctx context.Context) (id vmm.Identity, err error) {
	if runtime.GOARCH != "amd64" {
		return vmm.Identity{}, fmt.Errorf("QEMU's machine microvm is not for %s", runtime.GOARCH)
	}
	id = vmm.Identity{Name: "qemu", Accel: b.Accel, Machine: machine + " " + strings.Join(devices, " "), CPU: tcgCPU}
	switch b.Accel {
	case TCG:
		if _, id.Append, err = counterSpeed(); err != nil {
			return id, err
		}
	case KVM:
		f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
		if err != nil {
			return id, err
		}
		f.Close()
		if id.CPU, err = hostCPU(); err != nil {
			return id, err
		}
	default:
		return id, fmt.Errorf("unknown accelerator %q", b.Accel)
	}
	out, err := exec.CommandContext(ctx, b.program(), "--version").Output()
	m := versionLine.FindSubmatch(out)
	if err != nil || m == nil {
		return id, errors.Join(fmt.Errorf("%s does not tell its version", b.program()), err)
	}
	id.Version = string(m[1]) + string(m[2])
	return id, nil
}

// hostCPU names the processor that a guest sees with KVM.
func hostCPU() (string, error) {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", err
	}
	var model, flags string
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(name) {
		case "model name":
			model = strings.TrimSpace(value)
		case "flags":
			flags = value
		}
	}
	sum := sha256.Sum256([]byte(flags))
	return "host " + model + " " + hex.EncodeToString(sum[:6]), nil
}

// tcgCPU is what every program may expect today (x86-64-v2). What is newer costs
// more to emulate than it gains: measured, a third of a short run.
const tcgCPU = "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt,+rdrand,+rdseed"

// counterSpeed is how fast an emulated guest's counter runs, which is the host's: it
// could not find out on a busy machine (see tsc). Snapshots are bound to it, too, but
// in steps that are wider than what it is measured to, so that they can be used again.
func counterSpeed() (line, bound string, err error) {
	khz, err := tsc.KHz()
	line = fmt.Sprintf("mitigations=off tsc_early_khz=%d tsc=reliable", khz)
	return line, fmt.Sprintf("mitigations=off tsc=reliable, at %d0 MHz", (khz+5000)/10000), err
}

// devices are the same for every guest.
var devices = []string{
	"-global", "virtio-mmio.force-legacy=false", "-global", "migration.send-configuration=off",
	"-device", "virtio-serial-device", "-device", "virtserialport,chardev=agent,name=" + guest.PortName,
	"-device", "virtio-blk-device,drive=root",
}

// Descriptors that QEMU inherits, in this order.
const (
	fdLife = 3 + iota
	fdAgent
	fdMonitor
	fdMemory
	fdRoot
	fdSave
	fdKernel // or, of a guest that is restored, the state
	fdInitrd
)

func path(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// arguments are QEMU's, for a guest that is booted or restored.
func (b Backend) arguments(m vmm.Machine, restored bool) []string {
	// A thread that is the only one of a guest need not do anything atomically.
	accel, cpu := "tcg,thread=single,tb-size=64", tcgCPU
	if b.Accel == KVM {
		accel, cpu = "kvm", "host"
	}
	acpi := ",acpi=off"
	if m.ACPI {
		acpi = ",acpi=on"
	}
	a := []string{
		"-nodefaults", "-no-user-config", "-nographic", "-no-reboot",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-M", machine + acpi, "-accel", accel, "-cpu", cpu, "-smp", "1", "-m", fmt.Sprintf("%dB", m.Memory),
		"-object", fmt.Sprintf("memory-backend-file,id=ram,size=%d,mem-path=%s,share=off", m.Memory, path(fdMemory)),
		"-chardev", fmt.Sprintf("socket,id=agent,fd=%d", fdAgent),
		"-chardev", fmt.Sprintf("socket,id=monitor,fd=%d", fdMonitor), "-mon", "chardev=monitor,mode=control",
		// Nobody writes to the image, so that a restore need not throw out what is cached of it.
		"-drive", fmt.Sprintf("id=root,file=%s,format=raw,if=none,readonly=on,file.locking=off,file.drop-cache=off", path(fdRoot)),
	}
	a = append(a, devices...)
	if restored {
		return append(a, "-S", "-incoming", "defer")
	}
	return append(a, "-kernel", path(fdKernel), "-initrd", path(fdInitrd), "-append", m.Append)
}

// Boot implements vmm.Backend.
func (b Backend) Boot(ctx context.Context, p vmm.Place, m vmm.Machine) (vmm.VM, error) {
	if b.Accel == TCG {
		more, _, err := counterSpeed()
		if err != nil {
			return nil, err
		}
		m.Append += " " + more
	}
	memory, err := snapshot.NewMemory(m.Memory)
	if err != nil {
		return nil, err
	}
	if err := snapshot.Seal(memory); err != nil {
		memory.Close()
		return nil, err
	}
	v, err := b.start(ctx, p, m, vmm.Snapshot{Memory: memory})
	if err != nil {
		return nil, err
	}
	return v, nil
}

// Restore implements vmm.Backend.
func (b Backend) Restore(ctx context.Context, p vmm.Place, m vmm.Machine, s vmm.Snapshot) (vmm.VM, error) {
	v, err := b.Park(ctx, p, m, s)
	if err != nil {
		return nil, err
	}
	if err := v.Load(ctx); err != nil {
		return nil, errors.Join(err, v.Kill())
	}
	return v, nil
}

// Park implements vmm.Parker.
func (b Backend) Park(ctx context.Context, p vmm.Place, m vmm.Machine, s vmm.Snapshot) (vmm.Parked, error) {
	memory, err := again(s.Memory, m.Memory)
	if err != nil {
		return nil, err
	}
	state, err := os.Open(path(int(s.State.Fd()))) // QEMU reads from where the descriptor stands
	if err != nil {
		memory.Close()
		return nil, err
	}
	defer state.Close()
	v, err := b.start(ctx, p, m, vmm.Snapshot{Memory: memory, State: state})
	if err != nil {
		return nil, err
	}
	return v, nil
}

// again is a file of memory, under another descriptor, if nobody can write to it.
func again(f *os.File, size int64) (*os.File, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() != size {
		return nil, fmt.Errorf("a snapshot of %d bytes of memory, for a machine of %d", info.Size(), size)
	}
	if err := snapshot.Sealed(f); err != nil {
		return nil, err
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	return os.NewFile(uintptr(fd), f.Name()), err
}
