// Package firecracker runs microVMs by Firecracker, through its API and its jailer.
//
// Not run against Firecracker: it needs KVM of real hardware, which the machines
// that this is developed and tested on do not have. Its tests hold it against a fake
// that takes what the description of the API of Firecracker 1.16 takes and refuses
// all else (testdata/). So it is chosen only by Find, which has a guest booted first.
//
// Once code of an agent has run in a guest, its Firecracker is taken for hostile:
// what it answers is bounded and quoted, and files and sockets in its jail, which it
// can replace, are opened without following links.
package firecracker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/microvm/kernel"
	"sallyport.dev/sallyport/microvm/vmm"
)

// Name is the backend's, in receipts and snapshots.
const Name = "firecracker"

// A Backend is Firecracker with its jailer, of one release.
type Backend struct {
	Firecracker, Jailer string // paths of the programs

	// Dir is a folder of root's, on the file system of the places of VMMs. What jails
	// have in common is kept there.
	Dir string

	shelf sync.Mutex // guards what is in Dir
}

// Find returns Firecracker where its programs are in PATH; the error says what is
// missing. It is no proof that a guest boots: a /dev/kvm may be there on which every
// guest hangs. Who uses it boots one first, and takes another VMM if none answers.
// dir is that of Backend.
func Find(dir string) (*Backend, error) {
	b := &Backend{Dir: dir}
	for _, p := range []struct {
		name string
		path *string
	}{{"firecracker", &b.Firecracker}, {"jailer", &b.Jailer}} {
		path, err := exec.LookPath(p.name)
		if err != nil {
			return nil, unavailable("there is no "+p.name+" in PATH", "install firecracker and jailer of one release, "+oldest+" or newer, if this host has KVM", err)
		}
		*p.path = path
	}
	return b, nil
}

// oldest is the first release that restores a guest with another socket.
const oldest = "1.16"

// machine is what all guests are, but for memory. It is part of what a snapshot is
// bound to: change it with arguments.
const machine = "mmio, 1 vcpu, vsock, entropy"

// arguments are what guests are told besides what the caller tells them: there is no
// bus to look for, and nothing to reboot into.
const arguments = "pci=off reboot=k panic=-1 8250.nr_uarts=0 i8042.noaux i8042.nomux i8042.dumbkbd"

var (
	versionLine = regexp.MustCompile(`(?m)^Firecracker v([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})$`)
	modelLine   = regexp.MustCompile(`(?m)^model name\s*: (.*)$`)
)

// Identity implements vmm.Backend.
func (b *Backend) Identity(ctx context.Context) (id vmm.Identity, err error) {
	id = vmm.Identity{Name: Name, Accel: "kvm", Machine: machine, Append: arguments}
	kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return id, unavailable("Firecracker needs /dev/kvm, which cannot be opened here", "use a host with KVM, or QEMU, which can do without", err)
	}
	kvm.Close()
	if id.Version, err = b.version(ctx); err != nil {
		return id, err
	}
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return id, unavailable("the host does not say which processor it has", "", err)
	}
	if m := modelLine.FindSubmatch(info); m != nil {
		id.CPU = string(m[1])
	}
	return id, nil
}

// version asks the program, which must be one that this package speaks to.
func (b *Backend) version(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.Firecracker, "--version")
	cmd.Env, cmd.WaitDelay = []string{}, time.Second
	out, err := cmd.Output()
	if err != nil {
		return "", unavailable(b.Firecracker+" does not say which version it is", "run it with --version", err)
	}
	m := versionLine.FindStringSubmatch(string(out))
	if m == nil {
		return "", unavailable(fmt.Sprintf("%s --version says %.100q", b.Firecracker, out), "is it Firecracker?", nil)
	}
	minor, _ := strconv.Atoi(m[2]) // digits, by the expression
	if m[1] != "1" || minor < 16 {
		return "", unavailable("this is Firecracker "+strings.Join(m[1:], "."), "install release "+oldest+" or newer of its series", nil)
	}
	return strings.Join(m[1:], "."), nil
}

// The names of what is in a jail, as Firecracker sees them. A snapshot keeps some of
// them, so that they are the same in every jail.
const (
	kernelFile = "kernel"
	initrdFile = "initrd"
	rootFile   = "root.erofs"
	memoryFile = "memory"
	stateFile  = "state"
	vsockFile  = "v.sock"
	apiSocket  = "run/firecracker.socket" // Firecracker's own default
	guestCID   = 3                        // any: each VMM has a vsock of its own
)

// Boot implements vmm.Backend.
func (b *Backend) Boot(ctx context.Context, p vmm.Place, m vmm.Machine) (vmm.VM, error) {
	elf, err := kernel.ELF(m.Kernel)
	if err != nil {
		return nil, err
	}
	return b.start(ctx, p, func(ctx context.Context, v *vm) error {
		err := errors.Join(v.jail.write(kernelFile, bytes.NewReader(elf)),
			v.insert(initrdFile, m.Initrd), v.insert(rootFile, m.Root))
		if err != nil {
			return err
		}
		if err := v.launch(ctx); err != nil {
			return err
		}
		for _, r := range bootRequests(m) {
			if err := v.api.do(ctx, r); err != nil {
				return err
			}
		}
		return v.connect(ctx)
	})
}

// Restore implements vmm.Backend. All guests of a snapshot map one file of memory,
// and write to pages of their own.
func (b *Backend) Restore(ctx context.Context, p vmm.Place, m vmm.Machine, s vmm.Snapshot) (vmm.VM, error) {
	return b.start(ctx, p, func(ctx context.Context, v *vm) error {
		err := errors.Join(v.insert(memoryFile, s.Memory), v.insert(stateFile, s.State), v.insert(rootFile, m.Root))
		if err != nil {
			return err
		}
		if err := v.launch(ctx); err != nil {
			return err
		}
		v.paused = true
		return v.api.do(ctx, request{"PUT", "/snapshot/load", snapshotLoad{
			SnapshotPath: stateFile, MemBackend: memBackend{"File", memoryFile},
			VsockOverride: vsockOverride{vsockFile}, ClockRealtime: true,
		}})
	})
}

// bootRequests say what a guest is, in an order that Firecracker takes.
func bootRequests(m vmm.Machine) []request {
	return []request{
		{"PUT", "/machine-config", machineConfig{VcpuCount: 1, MemSizeMiB: m.Memory >> 20}},
		{"PUT", "/boot-source", bootSource{KernelImagePath: kernelFile, InitrdPath: initrdFile, BootArgs: strings.TrimSpace(m.Append + " " + arguments)}},
		{"PUT", "/drives/root", drive{DriveID: "root", PathOnHost: rootFile, IsReadOnly: true}},
		{"PUT", "/entropy", struct{}{}},
		{"PUT", "/vsock", vsock{GuestCID: guestCID, UDSPath: vsockFile}},
		{"PUT", "/actions", action{"InstanceStart"}},
	}
}

// start makes a jail, and has make fill it and start Firecracker there. Whatever
// fails, nothing of it goes on.
func (b *Backend) start(ctx context.Context, p vmm.Place, make func(context.Context, *vm) error) (vmm.VM, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	j, err := newJail(p)
	if err != nil {
		return nil, unavailable("Firecracker's jail cannot be made", "", err)
	}
	v := &vm{backend: b, place: p, jail: j, api: newClient(j), words: newWords()}
	if err := make(ctx, v); err != nil {
		failed := errors.Join(err, v.Kill())
		return nil, v.because(failed) // after its end, so that its last words are whole
	}
	return v, nil
}

// patience bounds a boot or a restore for callers that do not.
const patience = 2 * time.Minute

func unavailable(message, hint string, err error) error {
	return &sallyport.Error{Code: sallyport.Unavailable, Step: sallyport.Execute, Message: message, Hint: hint, Err: err}
}
