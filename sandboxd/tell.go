package sandboxd

import (
	"sync"
	"time"
)

// A teller passes output on while a program runs, without ever holding the
// program up for long: what comes within a moment is told together.
type teller struct {
	send func(stderr bool, b []byte) error

	mu    sync.Mutex
	parts []part // not yet told, in their order
	wake  chan struct{}
	done  chan struct{}
	ended bool
}

type part struct {
	stderr bool
	b      []byte
}

// tellEvery is how long output waits for more of it.
const tellEvery = 100 * time.Millisecond

func newTeller(send func(bool, []byte) error) *teller {
	t := &teller{send: send, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go t.work()
	return t
}

// tell takes output. The memory is bounded by the limits of the run.
func (t *teller) tell(stderr bool, b []byte) {
	t.mu.Lock()
	if n := len(t.parts); n > 0 && t.parts[n-1].stderr == stderr {
		t.parts[n-1].b = append(t.parts[n-1].b, b...)
	} else {
		t.parts = append(t.parts, part{stderr, append([]byte(nil), b...)})
	}
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// end tells the rest, and returns when it was told.
func (t *teller) end() {
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
	<-t.done
}

func (t *teller) work() {
	defer close(t.done)
	for {
		<-t.wake
		t.mu.Lock()
		parts, ended := t.parts, t.ended
		t.parts = nil
		t.mu.Unlock()
		for _, p := range parts {
			if t.send(p.stderr, p.b) != nil {
				break // nobody listens; the run is cancelled by its context
			}
		}
		if ended {
			return
		}
		time.Sleep(tellEvery)
	}
}
