package cage

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A protection is a set of what confines a child.
type protection uint

// The protections. Each is proven by itself; see proofs.
const (
	network    protection = 1 << iota // a network namespace without interfaces
	processes                         // a process namespace
	files                             // a read-only root of its own
	ipc                               // an IPC namespace
	hostNames                         // a host name of its own
	privileges                        // a uid of its own, no capabilities
	gaining                           // no_new_privs
	limits                            // resource limits
	calls                             // the filter of system calls
	landlock
	group       // a control group that bounds memory
	dying       // the end with whoever started it
	descriptors // none but those given
)

func (p protection) has(q protection) bool { return p&q != 0 }

// namespaces are those of a child that lacks the protections p.
func (p protection) namespaces() (flags uintptr) {
	for _, n := range []struct {
		of   protection
		flag uintptr
	}{
		{network, syscall.CLONE_NEWNET}, {processes, syscall.CLONE_NEWPID}, {files, syscall.CLONE_NEWNS},
		{ipc, syscall.CLONE_NEWIPC}, {hostNames, syscall.CLONE_NEWUTS},
	} {
		if !p.has(n.of) {
			flags |= n.flag
		}
	}
	return flags
}

// landlockVersion is what this kernel knows of landlock, 0 for nothing.
func landlockVersion() int {
	const version = 1 // LANDLOCK_CREATE_RULESET_VERSION
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, version)
	if errno != 0 {
		return 0
	}
	return int(v)
}

// A Proof says what was tried in cages of this host, and what became of it.
type Proof struct {
	Findings []Finding
	Landlock int // version that this kernel has, 0 for none
}

// A Finding is about one protection.
type Finding struct {
	Name     string // "network", "files", …
	Holds    bool
	Optional bool   // others protect from the same
	Detail   string // why it does not hold
}

// String names what holds, and what does not.
func (p Proof) String() string {
	var holds, lacks []string
	for _, f := range p.Findings {
		if f.Holds {
			holds = append(holds, f.Name)
		} else {
			lacks = append(lacks, f.Name+" ("+f.Detail+")")
		}
	}
	s := "each denied what it must: " + strings.Join(holds, ", ")
	if len(lacks) > 0 {
		s += "; not here: " + strings.Join(lacks, ", ")
	}
	return s
}
