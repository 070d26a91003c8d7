// Package turn lets so many in at once; more wait in a line with a bound, and
// beyond that are turned away.
package turn

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrFull means that the line is full.
var ErrFull = errors.New("the line is full")

// A Line is safe for concurrent use.
type Line struct {
	places chan struct{}
	queue  int

	mu   sync.Mutex // guards what follows
	here int        // inside or waiting
	left time.Time  // when the last one left
}

// New returns a line for at places and queue that may wait for them.
func New(at, queue int) *Line { return &Line{places: make(chan struct{}, at), queue: queue} }

// Bounds returns how many may be inside, and how many may wait.
func (l *Line) Bounds() (at, queue int) { return cap(l.places), l.queue }

// Enter waits for a place, which leave gives back. It returns ErrFull at once
// where the line is full, and ctx.Err() when ctx ends first.
func (l *Line) Enter(ctx context.Context) (leave func(), err error) {
	l.mu.Lock()
	full := l.here >= cap(l.places)+l.queue
	if !full {
		l.here++
	}
	l.mu.Unlock()
	if full {
		return nil, ErrFull
	}
	select {
	case l.places <- struct{}{}:
		return func() { <-l.places; l.leave() }, nil
	case <-ctx.Done():
		l.leave()
		return nil, ctx.Err()
	}
}

func (l *Line) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.here--
	l.left = time.Now()
}

// Empty tells since when nobody is here, the zero time if nobody ever was; not
// ok means that somebody is.
func (l *Line) Empty() (since time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left, l.here == 0
}
