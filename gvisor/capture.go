package gvisor

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A capture keeps the first bytes of a stream and drains the rest, so that a
// program that talks too much goes on.
type capture struct {
	from *os.File
	max  atomic.Int64 // raised once, before anything is written

	// Owned by the draining goroutine until done is closed.
	kept      []byte
	truncated bool

	done chan struct{}
}

// captureStream reads r, a pipe, to its end or until it is settled, and closes it.
func captureStream(r *os.File, max int64) *capture {
	c := &capture{from: r, done: make(chan struct{})}
	c.max.Store(max)
	go func() {
		defer close(c.done)
		defer r.Close()
		if errors.Is(c.drain(r), os.ErrDeadlineExceeded) {
			c.rest()
		}
	}()
	return c
}

func (c *capture) drain(r io.Reader) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		c.keep(buf[:n])
		if err != nil {
			return err
		}
	}
}

func (c *capture) keep(b []byte) {
	room := min(c.max.Load()-int64(len(c.kept)), int64(len(b)))
	c.truncated = c.truncated || room < int64(len(b))
	c.kept = append(c.kept, b[:room]...)
}

// settle ends the capture with what is in the pipe now.
// Preconditions: nobody writes to it any more.
func (c *capture) settle() {
	_ = c.from.SetReadDeadline(time.Unix(1, 0)) // a capture that has ended is settled
	<-c.done
}

// rest takes what is in the pipe, without waiting.
func (c *capture) rest() {
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
