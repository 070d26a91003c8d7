package mux

import (
	"encoding/binary"
	"io"
	"sync"
)

// A Stream is bytes both ways. One goroutine reads, and one writes, at a time.
type Stream struct {
	s      *Session
	id     uint32
	theirs bool

	// Guarded by the session's mu.
	change  *sync.Cond
	in      []byte // came and was not read
	allowed int    // bytes that may come
	owed    int    // bytes that were read, and may come again once that is said
	credit  int    // bytes that may be sent
	ended   bool   // nothing more comes
	closed  bool   // nothing more is sent
	gone    bool
}

func newStream(s *Session, id uint32) *Stream {
	return &Stream{s: s, id: id, change: sync.NewCond(&s.mu), allowed: Window, credit: Window}
}

// Read implements io.Reader.
func (t *Stream) Read(b []byte) (int, error) {
	t.s.mu.Lock()
	for len(t.in) == 0 && !t.ended && t.s.err == nil {
		t.change.Wait()
	}
	n := copy(b, t.in)
	rest := copy(t.in, t.in[n:])
	t.in = t.in[:rest]
	t.owed += n
	grant := t.owed >= Window/2 && !t.ended
	err := t.s.err
	if t.ended {
		err = io.EOF
	}
	t.s.mu.Unlock()
	if n > 0 {
		err = nil
	}
	if grant {
		t.grant()
	}
	return n, err
}

// grant lets the other side send what was read, or leaves that for later where
// writing is held.
func (t *Stream) grant() {
	t.s.out.Lock()
	defer t.s.out.Unlock()
	if t.s.out.held {
		return
	}
	t.s.mu.Lock()
	n := t.owed
	if n < Window/2 || t.ended {
		n = 0
	}
	t.owed -= n
	t.allowed += n
	t.s.mu.Unlock()
	if n > 0 {
		_ = t.s.write(frameWindow, t.id, binary.LittleEndian.AppendUint32(nil, uint32(n))) // its end is seen by all
	}
}

// Write implements io.Writer. It waits for room.
func (t *Stream) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		k, err := t.room(len(b))
		if err != nil {
			return n, err
		}
		if err := t.s.send(frameData, t.id, b[:k]); err != nil {
			return n, err
		}
		b, n = b[k:], n+k
	}
	return n, nil
}

// room takes credit for up to n bytes, at least one.
func (t *Stream) room(n int) (int, error) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	for t.credit == 0 && t.s.err == nil && !t.gone && !t.closed {
		t.change.Wait()
	}
	switch {
	case t.s.err != nil:
		return 0, t.s.err
	case t.gone || t.closed:
		return 0, io.ErrClosedPipe
	}
	n = min(n, t.credit, MaxData)
	t.credit -= n
	return n, nil
}

// Wait waits until nothing more is sent: by this side's will, by the other's, or as
// the session is over.
func (t *Stream) Wait() {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	for !t.closed && !t.gone && t.s.err == nil {
		t.change.Wait()
	}
}

// CloseWrite says that nothing more is sent.
func (t *Stream) CloseWrite() error {
	t.s.mu.Lock()
	was := t.closed || t.gone
	t.closed = true
	t.change.Broadcast()
	t.s.settle(t)
	t.s.mu.Unlock()
	if was {
		return nil
	}
	return t.s.send(frameEnd, t.id, nil)
}

// Close ends the stream both ways.
func (t *Stream) Close() error {
	t.s.mu.Lock()
	was := t.gone || t.ended && t.closed
	t.gone, t.ended, t.closed = true, true, true
	t.change.Broadcast()
	t.s.drop(t)
	t.s.mu.Unlock()
	if was {
		return nil
	}
	return t.s.send(frameReset, t.id, nil)
}
