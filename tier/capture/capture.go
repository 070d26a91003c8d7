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
	from *os.File
	Max  atomic.Int64                 // raised once, before anything is written
	told atomic.Pointer[func([]byte)] // of what is kept; set together with Max

	// Owned by the draining goroutine until Done is closed.
	Kept      []byte
	Truncated bool

	Done chan struct{}
}

// Start reads r, a pipe, to its end or until it is settled, and closes it.
func Start(r *os.File, max int64) *Stream {
	c := &Stream{from: r, Done: make(chan struct{})}
	c.Max.Store(max)
	go func() {
		defer close(c.Done)
		defer r.Close()
		if errors.Is(c.drain(r), os.ErrDeadlineExceeded) {
			c.rest()
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
	room := min(c.Max.Load()-int64(len(c.Kept)), int64(len(b)))
	c.Truncated = c.Truncated || room < int64(len(b))
	c.Kept = append(c.Kept, b[:room]...)
	if told := c.told.Load(); told != nil && room > 0 {
		(*told)(b[:room])
	}
}

// Settle ends the capture with what is in the pipe now.
// Preconditions: nobody writes to it any more.
func (c *Stream) Settle() {
	_ = c.from.SetReadDeadline(time.Unix(1, 0)) // a capture that has ended is settled
	<-c.Done
}

// rest takes what is in the pipe, without waiting.
func (c *Stream) rest() {
	_ = c.from.SetReadDeadline(time.Time{})
	raw, err := c.from.SyscallConn()
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
