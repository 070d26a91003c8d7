// Package talk carries bytes between a program in a sandbox and whoever asked for
// its run, while it runs. It does not look into them. What comes out of a sandbox
// is never waited for, and bounded: a program that says more than is taken ends.
package talk

import (
	"context"
	"io"
	"sync"

	"sallyport.dev/sallyport/tier/payload"
)

// MaxUntaken bounds the bytes that a program said and nobody has taken yet.
const MaxUntaken = 8 << 20

// maxUnsaid is how many messages wait for a program that does not read.
const maxUnsaid = 256

// A Line joins one program to whoever asked for its run.
type Line struct {
	mu    sync.Mutex // guards heard and over
	heard []byte
	over  bool
	wake  chan struct{}
	said  chan []byte
	ended chan struct{}
}

// New returns a line that nobody is on yet.
func New() *Line {
	return &Line{wake: make(chan struct{}, 1), said: make(chan []byte, maxUnsaid), ended: make(chan struct{})}
}

// Hear takes what the program said. It is false where that is too much.
func (l *Line) Hear(b []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over || len(l.heard)+len(b) > MaxUntaken {
		return l.over
	}
	l.heard = append(l.heard, b...)
	l.ring()
	return true
}

// Take returns what the program has said since, once there is something; nil
// when the line has ended.
func (l *Line) Take() []byte {
	for {
		l.mu.Lock()
		b, over := l.heard, l.over
		l.heard = nil
		l.mu.Unlock()
		if len(b) > 0 || over {
			return b
		}
		<-l.wake
	}
}

// Say gives the program bytes. It waits where too many others wait already.
func (l *Line) Say(ctx context.Context, b []byte) error {
	select {
	case <-l.ended: // also where there is room
		return io.ErrClosedPipe
	default:
	}
	select {
	case l.said <- b:
		return nil
	case <-l.ended:
		return io.ErrClosedPipe
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Feed writes what process 1 is told first, and then what is said, until the line
// or the reader ends. Then it closes w.
func (l *Line) Feed(w io.WriteCloser, first []byte) {
	defer w.Close()
	_, err := w.Write(first)
	for err == nil {
		select {
		case b := <-l.said:
			for len(b) > 0 && err == nil {
				n := min(len(b), payload.MaxRecord)
				_, err = w.Write(payload.Append(nil, payload.Said, b[:n]))
				b = b[n:]
			}
		case <-l.ended:
			return
		}
	}
}

// End ends the line. It is idempotent; what was heard can still be taken.
func (l *Line) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.over = true
		close(l.ended)
		l.ring()
	}
}

// Preconditions: l.mu is held.
func (l *Line) ring() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}
