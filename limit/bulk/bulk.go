// Package bulk bounds the memory that large answers take together.
//
// A call whose answer is large gets room for it before it is read, and has it until its
// result is made. Who waits for room has none, so nobody waits for somebody who waits.
// A server that has room gets more only while at least as much is left for the others:
// what it holds by answering slowly keeps none of their calls waiting.
package bulk

import (
	"context"
	"slices"
	"sync"
)

// Light is how many bytes of an answer need no room.
const Light = 1 << 20

// A Room is shared by all calls. A nil Room has no bound.
type Room struct {
	size int

	mu   sync.Mutex // guards what follows
	free int
	has  map[string]int // what each server's calls have
	line []*wait        // the first to come first
}

type wait struct {
	of    string
	bytes int
	come  chan struct{}
}

// New returns room for so many bytes.
func New(size int) *Room { return &Room{size: size, free: size, has: map[string]int{}} }

// enter waits for room for n bytes of a server's. Preconditions: n <= r.size.
func (r *Room) enter(ctx context.Context, of string, n int) error {
	w := &wait{of, n, make(chan struct{})}
	r.mu.Lock()
	r.line = append(r.line, w)
	r.admit()
	r.mu.Unlock()
	select {
	case <-w.come:
		return nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.line, w); i >= 0 {
		r.line = slices.Delete(r.line, i, i+1)
	} else { // it came just now
		r.take(of, -n)
	}
	r.admit()
	return ctx.Err()
}

func (r *Room) leave(of string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.take(of, -n)
	r.admit()
}

// Preconditions: r.mu is held.
func (r *Room) take(of string, n int) {
	r.free -= n
	if r.has[of] += n; r.has[of] == 0 {
		delete(r.has, of)
	}
}

// admit lets in who fits, in order, past those whose server has its share.
// Preconditions: r.mu is held.
func (r *Room) admit() {
	for i := 0; i < len(r.line); {
		w := r.line[i]
		switch left := r.free - w.bytes; {
		case r.has[w.of] > 0 && r.has[w.of]+w.bytes > left:
			i++
		case left < 0:
			return
		default:
			r.take(w.of, w.bytes)
			close(w.come)
			r.line = slices.Delete(r.line, i, i+1)
		}
	}
}

// A Part is the room that one call has. A nil Part is that of a call without a bound.
type Part struct {
	room *Room
	of   string

	mu   sync.Mutex // guards what follows
	has  int
	over bool
}

// Part returns a part, for a call of a server, that has nothing yet.
func (r *Room) Part(server string) *Part {
	if r == nil {
		return nil
	}
	return &Part{room: r, of: server}
}

// Take waits until the call has room for so many bytes, in place of what it had: less is
// there at once, and for more it gives back what it has before it waits. An answer that
// is larger than all the room has all of it. The error is that ctx ended.
func (p *Part) Take(ctx context.Context, bytes int) error {
	if p == nil {
		return nil
	}
	if bytes <= Light {
		bytes = 0
	}
	bytes = min(bytes, p.room.size)
	if p.shrink(bytes) {
		return nil
	}
	if err := p.room.enter(ctx, p.of, bytes); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over { // meanwhile
		p.room.leave(p.of, bytes)
		return nil
	}
	p.room.leave(p.of, p.has) // of one that was taken at the same time
	p.has = bytes
	return nil
}

// shrink reports whether what there is will do, and gives back what does not.
func (p *Part) shrink(to int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	enough := p.over || p.has >= to
	if !enough {
		to = 0
	}
	if to < p.has {
		p.room.leave(p.of, p.has-to)
		p.has = to
	}
	return enough
}

// Close gives everything back. There is nothing more to take then.
func (p *Part) Close() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.room.leave(p.of, p.has)
	p.has, p.over = 0, true
}
