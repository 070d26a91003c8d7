package gvisor

import (
	"io"
	"os"
)

// A capture keeps the first bytes of a stream and drains the rest, so that a
// program that talks too much goes on.
type capture struct {
	max       int64
	kept      []byte
	truncated bool
	done      chan struct{}
}

// captureStream reads r to its end and closes it.
func captureStream(r *os.File, max int64) *capture {
	c := &capture{max: max, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		defer r.Close()
		c.drain(r)
	}()
	return c
}

func (c *capture) drain(r io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		room := c.max - int64(len(c.kept))
		if int64(n) > room {
			c.truncated = true
		}
		c.kept = append(c.kept, buf[:min(int64(n), room)]...)
		if err != nil {
			return
		}
	}
}
