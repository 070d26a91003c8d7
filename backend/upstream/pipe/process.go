package pipe

import (
	"io"
	"time"
)

// A Process is a running server.
type Process interface {
	Stdin() io.WriteCloser
	Stdout() io.Reader
	Stderr() io.Reader

	// Wait returns when the process has ended: nil for status 0, else an error
	// that says how. It may be called more than once, also concurrently.
	Wait() error

	// Stop ends the process and all that it started: end of input first, then a
	// request to end, then force, all within grace. It returns when they are
	// gone, and does no harm to a process that has ended.
	Stop(grace time.Duration) error
}

// An unreader is a Process that can tell, once it has ended, how many bytes of
// its input it had left unread (-1: not known). Calls among those certainly had
// no effect.
type unreader interface{ Unread() int }
