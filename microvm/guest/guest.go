// Package guest is what a host and process 1 of a microVM say to each other. They
// talk over one channel with a few streams (see package mux): Control carries the
// records below, the others are those of one sandbox, as sallyport-init knows
// them (see tier/payload). Nothing that comes from a guest is trusted.
package guest

import (
	"sallyport.dev/sallyport/tier/payload"
)

// Protocol is the version of what is said here, and of the programs in the guest:
// a snapshot of another is not used.
const Protocol = 1

// How the channel is found: by the name of a virtio port, or as a port of vsock
// on which the guest listens.
const (
	PortName  = "sallyport"
	VsockPort = 1024
)

// WaySocket is where the sandbox's proxy finds its way out: in an empty folder of
// every image.
const WaySocket = WayDir + "/way"

// WayDir is the folder of WaySocket.
const WayDir = "/srv"

// The streams.
const (
	Control = iota
	Orders  // of process 1 in the sandbox
	Report  // of process 1 in the sandbox
	Stdin
	Stdout
	Stderr
	Line // to an interpreter that was started ahead
	streams
)

// Streams are all of them.
func Streams() (all []uint32) {
	for id := range uint32(streams) {
		all = append(all, id)
	}
	return all
}

// The records on Control.
const (
	Hello   payload.Kind = 'h' // from the guest, once: uint32 protocol, text: its kernel
	Renew   payload.Kind = 'R' // Renewal: be another; also ends a Freeze
	Renewed payload.Kind = 'r' // Bounds, as they are now
	Clock   payload.Kind = 'T' // uint64: ns since 1970; set the clock again, answered by Clock
	Start   payload.Kind = 'S' // Launch: make the sandbox and start sallyport-init there
	Freeze  payload.Kind = 'Z' // say nothing more, a snapshot is taken
	Frozen  payload.Kind = 'z' // the last word before that
	Thaw    payload.Kind = 'G' // go on
	Count   payload.Kind = 'C' // say how the sandbox is
	Counted payload.Kind = 'c' // Ending, as it would be now
	Ended   payload.Kind = 'e' // Ending: the sandbox is gone
	Trouble payload.Kind = 'x' // text: the guest cannot do what it should
)

// A Renewal makes a guest unlike the snapshot that it was made of, before
// anything of an agent runs in it.
type Renewal struct {
	Seed      [64]byte // for the kernel's random numbers
	Now       int64    // ns since 1970
	MachineID [16]byte
	BootID    [16]byte
	Hostname  string
	Bounds    Bounds // zero fields are left as they are
}

// Bounds are those of a sandbox whose programs have been started.
type Bounds struct {
	Memory int64  // bytes, without what process 1 is granted
	Procs  uint32 // tasks of the program
	Disk   uint64 // bytes behind all writable folders
	Inodes uint64
}

const boundsSize = 28

// Append appends the bounds to dst.
func (b Bounds) Append(dst []byte) []byte {
	dst = payload.AppendUint64(dst, uint64(b.Memory))
	dst = payload.AppendUint32(dst, b.Procs)
	return payload.AppendUint64(payload.AppendUint64(dst, b.Disk), b.Inodes)
}

// ParseBounds reads what Append wrote; ok is false where b is anything else.
func ParseBounds(b []byte) (o Bounds, ok bool) {
	if len(b) != boundsSize {
		return o, false
	}
	return Bounds{int64(payload.Uint64(b)), payload.Uint32(b[8:]), payload.Uint64(b[12:]), payload.Uint64(b[20:])}, true
}

const renewalSize = 64 + 8 + 16 + 16 + boundsSize

// Append appends the renewal to dst.
func (r Renewal) Append(dst []byte) []byte {
	dst = append(dst, r.Seed[:]...)
	dst = payload.AppendUint64(dst, uint64(r.Now))
	dst = append(append(dst, r.MachineID[:]...), r.BootID[:]...)
	dst = r.Bounds.Append(dst)
	return append(dst, r.Hostname...)
}

// ParseRenewal reads what Append wrote.
func ParseRenewal(b []byte) (r Renewal, ok bool) {
	if len(b) < renewalSize {
		return r, false
	}
	copy(r.Seed[:], b)
	r.Now = int64(payload.Uint64(b[64:]))
	copy(r.MachineID[:], b[72:])
	copy(r.BootID[:], b[88:])
	r.Bounds, _ = ParseBounds(b[104:renewalSize])
	r.Hostname = string(b[renewalSize:])
	return r, true
}

// A Launch says what sandbox is made.
type Launch struct {
	Memory  int64 // see Bounds
	NoInput bool  // the program reads /dev/null
	Ahead   bool  // an interpreter is started ahead in it
	Stays   bool  // it is that of a session
	Leads   bool  // it has a way out
}

// Append appends the launch to dst.
func (l Launch) Append(dst []byte) []byte {
	dst = payload.AppendUint64(dst, uint64(l.Memory))
	var flags byte
	for i, set := range []bool{l.NoInput, l.Ahead, l.Stays, l.Leads} {
		if set {
			flags |= 1 << i
		}
	}
	return append(dst, flags)
}

// ParseLaunch reads what Append wrote.
func ParseLaunch(b []byte) (l Launch, ok bool) {
	if len(b) != 9 {
		return l, false
	}
	f := b[8]
	return Launch{int64(payload.Uint64(b)), f&1 != 0, f&2 != 0, f&4 != 0, f&8 != 0}, true
}

// An Ending is how a sandbox ended.
type Ending struct {
	Status    uint32 // of sallyport-init
	OOMKills  uint64 // processes that the guest's kernel killed for memory
	Peak      uint64 // bytes of memory, at most at once
	Processes bool   // a task was refused for want of processes
	Disk      bool   // a write was refused for want of space
}

const endingSize = 21

// Append appends the ending to dst.
func (e Ending) Append(dst []byte) []byte {
	dst = payload.AppendUint64(payload.AppendUint64(payload.AppendUint32(dst, e.Status), e.OOMKills), e.Peak)
	var flags byte
	if e.Processes {
		flags |= 1
	}
	if e.Disk {
		flags |= 2
	}
	return append(dst, flags)
}

// ParseEnding reads what Append wrote.
func ParseEnding(b []byte) (e Ending, ok bool) {
	if len(b) != endingSize {
		return e, false
	}
	f := b[20]
	return Ending{payload.Uint32(b), payload.Uint64(b[4:]), payload.Uint64(b[12:]), f&1 != 0, f&2 != 0}, true
}

// ParseHello reads what a guest says first.
func ParseHello(b []byte) (protocol uint32, kernel string, ok bool) {
	if len(b) < 4 || len(b) > 512 {
		return 0, "", false
	}
	return payload.Uint32(b), string(b[4:]), true
}
