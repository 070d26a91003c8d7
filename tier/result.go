package tier

import (
	"errors"
	"time"

	"sallyport.dev/sallyport"
)

// ErrStopped is the cause with which a context ends a run whose result is wanted.
var ErrStopped = errors.New("stopped by the caller")

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
	LimitMemory    = "memory" // more of it was refused, and the program told so
)

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

	open bool // the last of Files is the one that is told of now
}
