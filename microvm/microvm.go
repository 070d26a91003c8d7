// Package microvm runs one program in one virtual machine and destroys it.
//
// Read Host.Run first. A guest has a kernel of its own, a read-only EROFS root, one
// sized tmpfs behind all writable folders, no network interface but lo, and one
// channel to the host, which its process 1 speaks (packages guest and mux). In it,
// sallyport-init is process 1 of namespaces of its own and makes the same world as
// in gVisor. What a guest says is bounded, and its VMM (package vmm and what is
// behind it) is an unprivileged process in namespaces and a control group.
//
// Guests are copies of snapshots, made before anything of an agent ran in them:
// one in which nothing has been started, and, made of that, one for each
// interpreter that can be started ahead. Before anything else a copy becomes
// another than all others: random numbers, clock, names and ids. Each is used once.
//
// Which VMM and accelerator is used is decided once, by booting a guest (Probe),
// and told with each result. Nothing here falls back to a weaker way of running.
package microvm

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"time"

	"sallyport.dev/sallyport/microvm/firecracker"
	"sallyport.dev/sallyport/microvm/qemu"
	"sallyport.dev/sallyport/microvm/vmm"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/rundir"
)

// Programs of ours that a Host needs; they lie beside each other.
const (
	InitProgram  = "sallyport-init"
	GuestProgram = "sallyport-guest"
)

// A Config says where a Host finds and keeps things.
type Config struct {
	Programs string // folder of InitProgram and GuestProgram
	Dir      string // runtime folder, absolute, 0700; one Host at a time
	Cache    string // folder that holds kernels, and where snapshots are kept
	Images   tier.Images
	MaxRuns  int           // at once. 0 means 8
	Queue    int           // runs that may wait for one of MaxRuns to end; more are refused
	Warm     int           // guests that wait, restored, for the next request of their kind; 0 means none
	Parked   int           // VMMs that were started for a snapshot, for what finds no guest that waits; 0 means none
	Broker   tier.Broker   // nil refuses requests that are to reach something
	FirstUID int           // of 100 that VMMs run as. 0 means 65600
	Hello    time.Duration // for a guest to boot and answer, with hardware's help; after that another VMM is tried. 0 means 15 s

	// What may run guests, in the order in which it is tried. nil means Firecracker
	// if it is installed, QEMU with KVM, and then QEMU by software emulation.
	Backends []vmm.Backend
}

func (c Config) backends() []vmm.Backend {
	if c.Backends != nil {
		return c.Backends
	}
	all := []vmm.Backend{qemu.Backend{Accel: qemu.KVM}, qemu.Backend{Accel: qemu.TCG}}
	if f, err := firecracker.Find(filepath.Join(c.Dir, firecracker.Name)); err == nil {
		all = append([]vmm.Backend{f}, all...)
	}
	return all
}

const (
	uids       = 100
	defaultUID = 65600
)

// How long things may take.
const (
	bootPatience = 60 * time.Second // from a guest that answers to the program's first instruction, on a machine with much to do
	deafAfter    = 10 * time.Second // for a guest to take in what is said to it
	killPatience = 10 * time.Second // for a guest to end by itself
	wordPatience = 5 * time.Second  // for a last word that may be done without
	gonePatience = 30 * time.Second // until a killed guest must be gone
	helloHelped  = 15 * time.Second // for a guest to boot and answer, with hardware's help: where the machine is quiet, it takes well below one
	helloAlone   = 3 * time.Minute  // the same by software emulation
)

// hello is how long a guest may take to boot and answer.
func (c Config) hello(id vmm.Identity) time.Duration {
	if id.Accel == qemu.TCG {
		return helloAlone
	}
	return cmp.Or(c.Hello, helloHelped)
}

var (
	errFlood = errors.New("the program says more than anybody can take")
	errBoot  = errors.New("the guest did not answer in time")
	errGone  = errors.New("the guest ended by itself")
	errUndue = errors.New("the guest says what is not due")
)

// Missing says what a Host would lack on this machine, nil if it can be opened.
func Missing(c Config) error {
	if err := rundir.Privileged(); err != nil {
		return err
	}
	for _, p := range []string{InitProgram, GuestProgram} {
		if _, err := os.Stat(filepath.Join(c.Programs, p)); err != nil {
			return tier.Unavailable("run `make build`; the programs lie beside each other", "%s is missing: %v", p, err)
		}
	}
	if c.Backends == nil {
		if _, err := os.Stat(qemu.Program); err != nil {
			return tier.Unavailable("apt-get install --no-install-recommends qemu-system-x86, or `make build` as root", "no QEMU runs microVMs here: %v", err)
		}
	}
	return nil
}
