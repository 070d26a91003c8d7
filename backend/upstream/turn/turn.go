// Package turn lets so many in at once; more wait in a line with a bound, and
// beyond that are turned away. Those who wait come in by turns: who has many waiting
// keeps nobody out who has few.
package turn

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// ErrFull means that the line is full; ErrLong that someone waited in it for too long.
var (
	ErrFull = errors.New("the line is full")
	ErrLong = errors.New("the wait was too long")
)

// A Line is safe for concurrent use.
type Line struct {
	at, queue int
	wait      time.Duration

	mu      sync.Mutex // guards what follows
	inside  int
	waiting int
	of      map[string][]chan error // by who waits, the first first; nil says come in
	next    []string                // who is in of, in the order of their turns
	left    time.Time               // when the last one left
}

// New returns a line for at places and queue that may wait for them, each for wait
// at most.
func New(at, queue int, wait time.Duration) *Line {
	return &Line{at: at, queue: queue, wait: wait, of: map[string][]chan error{}}
}

// Bounds returns how many may be inside, how many may wait, and for how long.
func (l *Line) Bounds() (at, queue int, wait time.Duration) { return l.at, l.queue, l.wait }

// Enter waits for a place, which leave gives back, once. It returns ErrFull at once
// where the line is full, or later where who has the most in a full line and another
// comes, ErrLong after too long a wait, and ctx.Err() when ctx ends first.
func (l *Line) Enter(ctx context.Context, who string) (leave func(), err error) {
	l.mu.Lock()
	if l.inside < l.at {
		l.inside++
		l.mu.Unlock()
		return l.leave, nil
	}
	if l.waiting >= l.queue && !l.room(who) {
		l.mu.Unlock()
		return nil, ErrFull
	}
	turn := make(chan error, 1)
	if len(l.of[who]) == 0 {
		l.next = append(l.next, who)
	}
	l.of[who] = append(l.of[who], turn)
	l.waiting++
	l.mu.Unlock()
	if err := l.stand(ctx, who, turn); err != nil {
		return nil, err
	}
	return l.leave, nil
}

// stand waits for a turn.
func (l *Line) stand(ctx context.Context, who string, turn chan error) error {
	patience := time.NewTimer(l.wait)
	defer patience.Stop()
	err := ErrLong
	select {
	case err := <-turn:
		return err
	case <-patience.C:
	case <-ctx.Done():
		err = ctx.Err()
	}
	l.mu.Lock()
	i := slices.Index(l.of[who], turn)
	if i >= 0 {
		l.drop(who, i)
		l.left = time.Now()
	}
	l.mu.Unlock()
	if i < 0 && <-turn == nil { // it came just now
		l.leave()
	}
	return err
}

// room makes room in a full line for one more of who, by turning away the last of
// whoever has the most, if that is at least two more. Preconditions: l.mu is held.
func (l *Line) room(who string) bool {
	most := who
	for _, other := range l.next {
		if len(l.of[other]) > len(l.of[most]) {
			most = other
		}
	}
	if len(l.of[most]) < len(l.of[who])+2 {
		return false
	}
	last := len(l.of[most]) - 1
	l.of[most][last] <- ErrFull
	l.drop(most, last)
	return true
}

// drop takes one out of the line. Preconditions: l.mu is held.
func (l *Line) drop(who string, i int) {
	l.waiting--
	if l.of[who] = slices.Delete(l.of[who], i, i+1); len(l.of[who]) == 0 {
		delete(l.of, who)
		l.next = slices.DeleteFunc(l.next, func(s string) bool { return s == who })
	}
}

// leave gives a place to whoever's turn it is.
func (l *Line) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = time.Now()
	if l.waiting == 0 {
		l.inside--
		return
	}
	who := l.next[0]
	l.of[who][0] <- nil
	l.drop(who, 0)
	if len(l.of[who]) > 0 {
		l.next = append(l.next[1:], who)
	}
}

// Empty tells since when nobody is here, the zero time if nobody ever was; not
// ok means that somebody is.
func (l *Line) Empty() (since time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left, l.inside+l.waiting == 0
}
