// Package capture keeps the first bytes of what a program writes and drains the
// rest.
package capture

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A Stream keeps the first bytes of a stream and drains the rest, so that a
// program that talks too much goes on.
type Stream struct {
	from io.ReadCloser
	Max  atomic.Int64                 // raised once, before anything is written
	told atomic.Pointer[func([]byte)] // of what is kept; set together with Max

	// Owned by the draining goroutine until Done is closed.
	Kept      []byte
	Truncated bool

	Done chan struct{}
}

// Start reads r to its end or until it is settled, and closes it.
func Start(r io.ReadCloser, max int64) *Stream {
	c := &Stream{from: r, Done: make(chan struct{})}
	c.Max.Store(max)
	go func() {
		defer close(c.Done)
		defer r.Close()
		if err := c.drain(r); errors.Is(err, os.ErrDeadlineExceeded) {
			c.rest(r.(*os.File)) // only Settle sets a deadline
		}
	}()
	return c
}

// Tell has f told of what is kept, while mu is held.
// Preconditions: nothing has been written yet.
func (c *Stream) Tell(mu *sync.Mutex, f func([]byte)) {
	told := func(b []byte) {
		mu.Lock()
		defer mu.Unlock()
		f(b)
	}
	c.told.Store(&told)
}

// Tell has f, if it is not nil, told of what both streams of a program keep. Its
// calls do not overlap.
// Preconditions: nothing has been written yet.
func Tell(stdout, stderr *Stream, f func(stderr bool, b []byte)) {
	if f == nil {
		return
	}
	var mu sync.Mutex
	stdout.Tell(&mu, func(b []byte) { f(false, b) })
	stderr.Tell(&mu, func(b []byte) { f(true, b) })
}

func (c *Stream) drain(r io.Reader) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		c.keep(buf[:n])
		if err != nil {
			return err
		}
	}
}

func (c *Stream) keep(b []byte) {
	h := Head{c.Max.Load(), c.Kept, c.Truncated}
	b = h.Add(b)
	c.Kept, c.Truncated = h.Kept, h.Truncated
	if told := c.told.Load(); told != nil && len(b) > 0 {
		(*told)(b)
	}
}

// Settle ends the capture of a pipe with what is in it now; any other it waits for.
// Preconditions: nobody writes to it any more.
func (c *Stream) Settle() {
	if pipe, ok := c.from.(*os.File); ok {
		_ = pipe.SetReadDeadline(time.Unix(1, 0)) // a capture that has ended is settled
	}
	<-c.Done
}

// rest takes what is in the pipe, without waiting.
func (c *Stream) rest(pipe *os.File) {
	_ = pipe.SetReadDeadline(time.Time{})
	raw, err := pipe.SyscallConn()
	if err != nil {
		return
	}
	buf := make([]byte, 64<<10)
	_ = raw.Read(func(fd uintptr) bool {
		for {
			n, err := unix.Read(int(fd), buf)
			if err == unix.EINTR {
				continue
			}
			if n <= 0 {
				return true
			}
			c.keep(buf[:n])
		}
	})
}

// A Head is the first bytes of what comes piece by piece.
type Head struct {
	Max       int64
	Kept      []byte
	Truncated bool
}

// Add keeps what there is room for, and returns that.
func (h *Head) Add(b []byte) []byte {
	room := min(h.Max-int64(len(h.Kept)), int64(len(b)))
	h.Truncated = h.Truncated || room < int64(len(b))
	h.Kept = append(h.Kept, b[:room]...)
	return b[:room]
}
