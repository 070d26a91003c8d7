// Package gvisor runs one program in one gVisor sandbox and destroys it.
//
// Read Host.Run first. A sandbox has a read-only EROFS root, one sized tmpfs
// behind all its writable folders, no network interface but lo, a cgroup of its
// own, and no file of the host: what to run arrives over a pipe (see payload)
// and is read by sallyport-init, the sandbox's process 1.
//
// The run ends when its main process ends. Processes that it left behind have
// another 200 ms (see sallyport-init), then everything is killed. A limit is
// enforced outside the program's reach: memory and CPU by the cgroup of the
// whole sandbox (its tmpfs counts as memory), processes by the sandbox's kernel,
// disk by the tmpfs, time by this package. Nothing here ever falls back to a
// weaker way of running.
package gvisor

import (
	"net"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor/talk"
)

// Tier is the name of this package's tier.
const Tier = "gvisor"

// Programs that Host runs; they lie beside each other.
const (
	RuntimeProgram = "sallyport-runsc"
	InitProgram    = "sallyport-init"
)

// WorkDir is where files and code lie and where programs start. It is the
// home of the sandbox's user, uid 1000.
const WorkDir = "/home/agent"

// A Request is one program to run. It never names anything of the host.
type Request struct {
	Image  string   // digest, or "default"
	Argv   []string // argv[0] is looked up in /usr/local/bin, /usr/bin, /bin
	Env    []string // NAME=value, over the defaults; held in memory only
	Files  []File   // made in WorkDir before the program starts
	Stdin  []byte
	Limits sallyport.Limits // no zero fields
	Way    Way              // out of the sandbox
	CallID string           // a label for lists and logs; never reaches the sandbox
	serves bool             // it is a service, and leaves no results

	// Told, if set, is told of output as it comes, as far as it is kept. Calls do
	// not overlap; they hold the program up, and end before Run does.
	Told func(stderr bool, b []byte)
	Talk *talk.Line // the program may talk with whoever asked for the run; nil if not
}

// A Running is one sandbox that exists now.
type Running struct {
	ID      string
	CallID  string
	Started time.Time

	Deleting bool // nothing runs in it; what is left of it cannot be deleted yet
}

// A File is one file of a request.
type File struct {
	Path    string // relative, slash-separated, clean
	Content []byte
}

// KilledBy says what ended a run before its time.
type KilledBy string

// The reasons.
const (
	KilledByMemory  KilledBy = "memory"
	KilledByTimeout KilledBy = "timeout"
	KilledByCaller  KilledBy = "caller" // see ErrStopped
)

// The limits that a run can report to have hit while it went on.
const (
	LimitProcesses = "processes"
	LimitDisk      = "disk"
	LimitOutput    = "output"
)

// MaxConnections bounds the connections that a Result tells of.
const MaxConnections = 64

// A Broker lets sandboxes reach what they may. (egress)
type Broker interface {
	// Authority makes one for one sandbox, good for as long as within.
	Authority(within time.Duration) (Authority, error)
	// Open serves l, the socket of one sandbox, for as long as within at most.
	// It takes l over. ca is what the sandbox trusts; it is needed where w injects
	// anything. end stops the service and tells what was attempted.
	Open(id string, w Way, ca Authority, within time.Duration, l *net.UnixListener) (end func() Passed, err error)
}

// An Authority signs for the hosts that secrets are injected for. The zero value
// is none.
type Authority struct {
	Cert []byte // PEM; the sandbox trusts it
	Key  []byte // PEM; never enters it
}

// A Teller is a Broker that also tells of a sandbox that goes on.
type Teller interface {
	// Tell tells what was attempted since it was told last. One goroutine asks of
	// one sandbox at a time.
	Tell(id string) []sallyport.Connection
}

// Passed is what a broker tells of one sandbox at its end.
type Passed struct {
	Egress      sallyport.AppliedEgress
	Connections []sallyport.Connection
}

// A Way says what a sandbox may reach. The zero value is nothing.
type Way struct {
	Reach  []string // host:port
	Inject []Injection
}

// An Injection is a secret that the broker adds to requests to one host. It
// never enters the sandbox.
type Injection struct {
	Name   string // of the secret
	Host   string // host:port, one of Reach
	Header string
	Prefix string
	Value  []byte
}

// A Result is how a run ended. Bytes are exact.
type Result struct {
	ID          string // random, new for each run
	ExitCode    int    // 128+n when signal n ended the program or the run was killed
	Signal      string // "SIGTERM", …; "" if the program exited by itself
	Stdout      []byte
	Stderr      []byte
	Truncated   bool // stdout or stderr went beyond Limits.Output; the rest was dropped
	KilledBy    KilledBy
	LimitsHit   []string
	Connections []sallyport.Connection // made or tried through the proxy, at most MaxConnections
	Duration    time.Duration          // from when it had a place to the result, boot included
	PeakMemory  int64                  // bytes, of the whole sandbox
	Receipt     sallyport.Receipt
	Output      Artifacts
}

// Artifacts are what a program left in the output folder.
type Artifacts struct {
	Files   []File   // within bounds (see package payload); paths are within the folder
	LeftOut []string // paths of those beyond
}
