package tier

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier/payload"
)

// Why a host ends a run, as causes of the run's context. See ErrStopped, too.
var (
	ErrKilled  = errors.New("killed by the operator")
	ErrClosed  = errors.New("the sandbox host is closing")
	ErrTimeout = errors.New("timeout")
)

// A StartFailure is what process 1 says of a program that it could not start.
type StartFailure struct {
	Errno unix.Errno
	What  string // what failed: the program, or a step before it
}

// ParseStartFailure reads a record of kind payload.Failed.
func ParseStartFailure(b []byte) *StartFailure {
	return &StartFailure{unix.Errno(payload.Uint32(b)), string(b[min(4, len(b)):])}
}

// Of reports whether it is the program that could not be executed, and nothing of ours.
func (f StartFailure) Of(argv0 string) bool { return strings.HasPrefix(f.What, argv0+": ") }

// Result completes res, of a run of argv0. What a shell would answer with 126 or 127
// is a result: the request was sound. argv0 is "" where the program had started.
func (f StartFailure) Result(res Result, argv0 string) (Result, error) {
	if argv0 != "" && f.Of(argv0) {
		switch f.Errno { //nolint:exhaustive // what a shell would tell of the program
		case unix.ENOENT:
			res.ExitCode, res.Stderr = 127, []byte(argv0+": not found\n")
			return res, nil
		case unix.EACCES, unix.ENOEXEC, unix.ENOTDIR, unix.EISDIR, unix.ELOOP, unix.ENAMETOOLONG, unix.EPERM, unix.ETXTBSY, unix.ELIBBAD, unix.EINVAL, unix.E2BIG:
			res.ExitCode, res.Stderr = 126, []byte(argv0+": cannot be run: "+f.Errno.Error()+"\n")
			return res, nil
		}
	}
	if f.Errno == unix.ENOSPC {
		return res, Invalid("pass less, or use a tool with a larger disk limit", "the files do not fit into the sandbox's disk: %.200s", f.What)
	}
	return res, Unavailable("see the log of sallyport-sandboxd", "the sandbox could not start the program: %.200s", f.What)
}

// ExitOf is the exit code and the signal, if one ended it, of a program by its wait
// status.
func ExitOf(ws unix.WaitStatus) (code int, signal string) {
	if ws.Signaled() {
		return 128 + int(ws.Signal()), SignalName(ws.Signal())
	}
	return ws.ExitStatus(), ""
}

// SignalName is the name of a signal, never "": those without one have a number from
// SIGRTMIN on, as the C library counts.
func SignalName(s unix.Signal) string {
	const first = 34
	switch name := unix.SignalName(s); {
	case name != "":
		return name
	case s == first:
		return "SIGRTMIN"
	case s > first:
		return fmt.Sprintf("SIGRTMIN+%d", s-first)
	default:
		return fmt.Sprintf("SIG%d", s)
	}
}

// An End is what is known of how a run ended whose program had been told to start.
type End struct {
	Status  *unix.WaitStatus // of the program, nil if it was killed with its sandbox
	OOM     bool             // the sandbox used up its memory
	Started bool             // the program did
	Why     error            // the sandbox was ended; nil if it ended by itself
}

// Complete adds to res how the run ended. False means that it has no end of its own,
// nor one that its limits or its caller gave it: see Broken.
func (e End) Complete(res *Result) bool {
	exit := &res.Receipt.Exit
	*exit = "exited"
	switch {
	case e.Status != nil:
		if res.ExitCode, res.Signal = ExitOf(*e.Status); res.Signal != "" {
			*exit = "signaled"
		}
	case e.OOM:
	case errors.Is(e.Why, ErrTimeout):
		res.KilledBy, *exit = KilledByTimeout, string(KilledByTimeout)
	case errors.Is(e.Why, ErrStopped) && e.Started:
		res.KilledBy, *exit = KilledByCaller, "signaled"
	default:
		*exit = "failed"
		return false
	}
	if e.OOM {
		res.KilledBy, *exit = KilledByMemory, string(KilledByMemory)
	}
	if e.Status == nil {
		res.ExitCode, res.Signal = 128+int(unix.SIGKILL), SignalName(unix.SIGKILL)
	}
	return true
}

// NotMade is why a run has no sandbox: an error of ours as it is, any other for the
// log only.
func NotMade(err error) error {
	if e, ok := errors.AsType[*sallyport.Error](err); ok {
		return e
	}
	return &sallyport.Error{
		Code: sallyport.Unavailable, Step: sallyport.Execute, Message: "the sandbox could not be made",
		Hint: "see `sallyport doctor` and the log of sallyport-sandboxd", Err: errors.Join(sallyport.ErrNotExecuted, err),
	}
}

// Broken is the error of a run that has no end of its own, by its cause, which must
// not be nil. The end of a context is that end. started is whether anything of the
// program may have run.
func Broken(cause error, started bool) error {
	if errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	e := &sallyport.Error{
		Code: sallyport.Unavailable, Step: sallyport.Execute, Message: "the sandbox failed",
		Hint: "see `sallyport doctor` and the log of sallyport-sandboxd", Err: cause,
	}
	if errors.Is(cause, ErrKilled) || errors.Is(cause, ErrClosed) {
		e.Code, e.Message, e.Hint = sallyport.Canceled, "the sandbox was killed: "+cause.Error(), "run it again"
	}
	if !started {
		e.Err = errors.Join(sallyport.ErrNotExecuted, cause)
		e.Message += " before the program started"
	}
	return e
}
