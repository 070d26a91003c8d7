package microvm

import (
	"io"
	"sync"
)

// A kept is the first bytes of a stream; the rest is drained.
type kept struct {
	bytes     []byte
	truncated bool
	done      chan struct{} // closed when the stream has ended; bytes are not touched any more
}

// keep reads a stream to its end. told, if it is not nil, is told of what is kept:
// that holds up the stream, and no other.
func keep(r io.Reader, most int64, told func(stderr bool, b []byte), stderr bool) *kept {
	k := &kept{done: make(chan struct{})}
	go func() {
		defer close(k.done)
		buf := make([]byte, 32<<10)
		for {
			n, err := r.Read(buf)
			room := min(most-int64(len(k.bytes)), int64(n))
			k.truncated = k.truncated || room < int64(n)
			k.bytes = append(k.bytes, buf[:room]...)
			if told != nil && room > 0 {
				told(stderr, buf[:room])
			}
			if err != nil {
				return
			}
		}
	}()
	return k
}

// oneByOne has calls of a function not overlap.
func oneByOne(told func(bool, []byte)) func(bool, []byte) {
	if told == nil {
		return nil
	}
	var mu sync.Mutex
	return func(stderr bool, b []byte) {
		mu.Lock()
		defer mu.Unlock()
		told(stderr, b)
	}
}
