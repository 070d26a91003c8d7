// Package vmm says what a microVM asks of the program that runs it, the virtual
// machine monitor. QEMU and Firecracker are behind it.
//
// A guest has a kernel and an initramfs (see microvm/kernel), one read-only disk
// with the image, no network, and one channel to its process 1, which package
// guest speaks. A VMM is taken for hostile once code of an agent has run in it:
// it is confined, and nothing that it does can change what it was given.
package vmm

import (
	"context"
	"net"
	"os"
	"os/exec"
	"time"
)

// A Backend is one VMM program with one accelerator.
type Backend interface {
	// Identity tells what it is, or why it cannot run anything here. A Backend does
	// not choose: where its accelerator does not work it fails.
	Identity(ctx context.Context) (Identity, error)
	// Boot starts a guest and returns as soon as its channel is there; whether the
	// guest ever answers is seen there. The guest runs.
	Boot(ctx context.Context, p Place, m Machine) (VM, error)
	// Restore makes a guest of a snapshot, with memory that is copied on write, and
	// leaves it paused: parked.
	// Preconditions: m and the Identity are those of the snapshot.
	Restore(ctx context.Context, p Place, m Machine, s Snapshot) (VM, error)
}

// A Parker is a Backend that can start its program before it is known that a guest
// will be wanted: to start is a part of a restore.
type Parker interface {
	Park(ctx context.Context, p Place, m Machine, s Snapshot) (Parked, error)
}

// Parked is a VMM that has been started for a snapshot and holds no guest. All that it
// can is Load, once, which leaves it as Restore does, and Kill.
type Parked interface {
	VM
	Load(ctx context.Context) error
}

// A VM is one guest and its VMM. Its methods are called by one goroutine at a
// time, but for Kill, which may be called at any time and ends the others.
type VM interface {
	// Agent is the channel to process 1 of the guest: bytes both ways. It is there
	// after Boot, and after Resume. It ends with the VMM, which is how the end of a
	// VMM is noticed. After a restore the stream goes on where it was saved.
	Agent() net.Conn
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	// Save takes a snapshot of a guest that runs or is paused, and leaves it so.
	// Preconditions: nothing is on its way in the channel.
	Save(ctx context.Context) (Snapshot, error)
	// Kill ends the VMM and returns when its process is gone. It is idempotent.
	Kill() error
}

// A Teller is a VM that can tell, once it was killed, how its VMM ended: for the
// operator, where a guest ended that should not have.
type Teller interface{ Ended() string }

// An Identity is what a snapshot is bound to, and what a receipt names.
type Identity struct {
	Name    string `json:"backend"` // "qemu", "firecracker"
	Accel   string `json:"accel"`   // "kvm", "tcg"
	Version string `json:"version"` // of the program, as it says itself
	Machine string `json:"machine"` // type and flags of the machine
	CPU     string `json:"cpu"`     // model that the guest sees; with hardware help, that of the host
	Append  string `json:"append"`  // what the backend adds to the kernel's command line
}

// A Machine is what is to run.
type Machine struct {
	Memory int64    // bytes of RAM
	Kernel *os.File // bzImage
	ACPI   bool     // the kernel finds its devices by it
	Initrd *os.File
	Append string   // the kernel's command line; the backend adds its own
	Root   *os.File // the image's EROFS file
}

// A Snapshot is a guest that was saved. Both files are in memory and sealed (see
// microvm/snapshot): all guests that are made of it share them, and no VMM can
// write to them.
type Snapshot struct {
	Memory *os.File // as large as Machine.Memory, with holes
	State  *os.File // of devices and processors

	Paused time.Duration // how long Save held the guest
}

// Close closes both files.
func (s Snapshot) Close() {
	for _, f := range []*os.File{s.Memory, s.State} {
		if f != nil {
			f.Close()
		}
	}
}

// A Place is where one VMM lives. Who makes it deletes it, when the VMM is gone.
type Place struct {
	ID     string                // letters, digits and -, new for each VMM
	Dir    string                // a folder of its own, of root, empty
	UID    int                   // uid and gid that it runs as
	Groups []string              // control groups that it joins before it does anything else
	Start  func(*exec.Cmd) error // starts a process that the kernel kills with this one
	Init   string                // path of the program sallyport-init, which confines (see its confine.go)
}
