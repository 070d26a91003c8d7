package firecracker

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// words are the last that a Firecracker, or its jailer, said.
type words struct {
	mu   sync.Mutex
	last []byte        // guarded by mu
	over chan struct{} // closed when there will be no more; nil if there never were
}

const maxWords = 2 << 10

func newWords() *words { return &words{} }

// listen returns what a process is to write to, which the caller closes when the
// process has it.
func (w *words) listen() (*os.File, error) {
	r, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	w.over = make(chan struct{})
	go func() {
		defer close(w.over)
		defer r.Close()
		for b := make([]byte, 4096); ; {
			n, err := r.Read(b)
			w.mu.Lock()
			w.last = append(w.last, b[:n]...)
			w.last = w.last[max(0, len(w.last)-maxWords):]
			w.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return to, nil
}

// String returns them; those of a process that has ended are whole.
func (w *words) String() string {
	if w.over != nil {
		select {
		case <-w.over:
		case <-time.After(100 * time.Millisecond):
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.last)
}

// because adds to an error what Firecracker said last: for the log, since a guest
// may have a say in it.
func (v *vm) because(err error) error {
	if err == nil {
		return nil
	}
	if said := v.words.String(); said != "" {
		err = errors.Join(err, fmt.Errorf("the last words of Firecracker were %q", said))
	}
	return err
}
