package tier

import (
	"context"
	"errors"
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
	switch {
	case argv0 == "" || !f.Of(argv0):
	case f.Errno == unix.ENOENT:
		res.ExitCode, res.Stderr = 127, []byte(argv0+": not found\n")
		return res, nil
	case f.Errno == unix.EACCES, f.Errno == unix.ENOEXEC:
		res.ExitCode, res.Stderr = 126, []byte(argv0+": cannot be run: "+f.Errno.Error()+"\n")
		return res, nil
	}
	if f.Errno == unix.ENOSPC {
		return res, Invalid("pass less, or use a tool with a larger disk limit", "the files do not fit into the sandbox's disk: %.200s", f.What)
	}
	return res, Unavailable("see the log of sallyport-sandboxd", "the sandbox could not start the program: %.200s", f.What)
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
