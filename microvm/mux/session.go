package mux

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"sync"
)

// A Session is one side of a channel. Its methods may be called concurrently.
type Session struct {
	conn   io.ReadWriteCloser
	accept chan *Stream // nil if the other side may open none

	out struct {
		sync.Mutex
		held bool
		free *sync.Cond // signalled when it is not held any more, or over
		buf  []byte
	}

	mu      sync.Mutex // guards what follows, and the streams
	streams map[uint32]*Stream
	opened  int // by the other side
	next    uint32
	err     error
	done    chan struct{}
}

// firstOpened is the lowest number of a stream that was opened by a frame. Those
// below are known to both sides.
const firstOpened = 64

// New makes a session with these streams, known to both sides. Streams that the
// other side opens are given to Accept, if accepts.
func New(conn io.ReadWriteCloser, accepts bool, known ...uint32) *Session {
	s := &Session{conn: conn, streams: map[uint32]*Stream{}, next: firstOpened, done: make(chan struct{})}
	s.out.free = sync.NewCond(&s.out)
	if accepts {
		s.accept = make(chan *Stream, MaxOpened)
	}
	for _, id := range known {
		s.streams[id] = newStream(s, id)
	}
	return s
}

// Start reads the channel, until it ends.
func (s *Session) Start() { go s.read() }

// Stream returns a stream that is known to both sides, nil if there is none.
func (s *Session) Stream(id uint32) *Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams[id]
}

// Open opens a stream that the other side accepts.
func (s *Session) Open() (*Stream, error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return nil, s.err
	}
	id := s.next
	s.next++
	t := newStream(s, id)
	s.streams[id] = t
	s.mu.Unlock()
	return t, s.send(frameOpen, id, nil)
}

// Accept returns the next stream that the other side opened.
func (s *Session) Accept() (*Stream, error) {
	select {
	case t := <-s.accept:
		return t, nil
	case <-s.done:
		return nil, s.Err()
	}
}

// Done is closed when the session is over.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err is why the session is over, nil before.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the session and all its streams.
func (s *Session) Close() error {
	s.end(io.ErrClosedPipe)
	return nil
}

func (s *Session) end(err error) {
	s.mu.Lock()
	first := s.err == nil
	if first {
		s.err = err
		close(s.done)
		for _, t := range s.streams {
			t.change.Broadcast()
		}
	}
	s.mu.Unlock()
	if first {
		s.conn.Close()
		go func() { // the lock may be held by who calls
			s.out.Lock()
			defer s.out.Unlock()
			s.out.free.Broadcast()
		}()
	}
}

func (s *Session) read() {
	r, buf := bufio.NewReaderSize(s.conn, 64<<10), make([]byte, MaxData)
	for {
		f, err := readFrame(r, buf)
		if err == nil {
			err = s.take(f)
		}
		if err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = io.EOF
			}
			s.end(err)
			return
		}
	}
}

// take follows one frame. It never waits.
func (s *Session) take(f frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.kind == frameOpen {
		return s.opens(f.id)
	}
	t := s.streams[f.id]
	if t == nil {
		return nil // it was reset here
	}
	defer t.change.Broadcast()
	switch f.kind {
	case frameData:
		if t.ended || len(f.data) > t.allowed {
			return broken("more than stream %d may carry", f.id)
		}
		t.allowed -= len(f.data)
		t.in = append(t.in, f.data...)
	case frameEnd:
		t.ended = true
		s.settle(t)
	case frameReset:
		t.gone, t.ended = true, true
		s.drop(t)
	case frameWindow:
		n := int64(binary.LittleEndian.Uint32(f.data))
		if int64(t.credit)+n > Window {
			return broken("a window of %d bytes for stream %d", int64(t.credit)+n, f.id)
		}
		t.credit += int(n)
	}
	return nil
}

// Preconditions: s.mu is held.
func (s *Session) opens(id uint32) error {
	if s.accept == nil || id < firstOpened || s.streams[id] != nil || s.opened >= MaxOpened {
		return broken("stream %d is opened, and must not be", id)
	}
	t := newStream(s, id)
	t.theirs = true
	select {
	case s.accept <- t:
	default:
		return broken("more streams than are taken")
	}
	s.streams[id] = t
	s.opened++
	return nil
}

// settle forgets a stream that has ended both ways.
// Preconditions: s.mu is held.
func (s *Session) settle(t *Stream) {
	if t.ended && t.closed && t.id >= firstOpened {
		s.drop(t)
	}
}

// Preconditions: s.mu is held.
func (s *Session) drop(t *Stream) {
	if s.streams[t.id] != t {
		return
	}
	delete(s.streams, t.id)
	if t.theirs {
		s.opened--
	}
}

// send writes one frame, when writing is not held.
func (s *Session) send(kind byte, id uint32, data []byte) error {
	s.out.Lock()
	defer s.out.Unlock()
	for s.out.held && s.Err() == nil {
		s.out.free.Wait()
	}
	return s.write(kind, id, data)
}

// Preconditions: s.out is held.
func (s *Session) write(kind byte, id uint32, data []byte) error {
	if err := s.Err(); err != nil {
		return err
	}
	s.out.buf = appendFrame(s.out.buf[:0], kind, id, data)
	if _, err := s.conn.Write(s.out.buf); err != nil {
		s.end(err)
		return err
	}
	return nil
}

// Hold writes last to a stream, and then nothing more until Release: not even
// that bytes were read. What others write waits.
func (s *Session) Hold(t *Stream, last []byte) error {
	s.out.Lock()
	defer s.out.Unlock()
	s.mu.Lock()
	enough := len(last) <= min(t.credit, MaxData)
	if enough {
		t.credit -= len(last)
	}
	s.mu.Unlock()
	if !enough {
		return errors.New("no room for the last word")
	}
	s.out.held = true
	return s.write(frameData, t.id, last)
}

// Release ends a Hold.
func (s *Session) Release() {
	s.out.Lock()
	s.out.held = false
	s.out.free.Broadcast()
	s.out.Unlock()
	s.mu.Lock()
	all := make([]*Stream, 0, len(s.streams))
	for _, t := range s.streams {
		all = append(all, t)
	}
	s.mu.Unlock()
	for _, t := range all {
		t.grant()
	}
}

// Forget ends the streams that were opened here, without a word to the other side,
// which does not know them.
func (s *Session) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.streams {
		if t.id >= firstOpened {
			t.gone, t.ended, t.closed = true, true, true
			t.change.Broadcast()
			s.drop(t)
		}
	}
}

// A State is what one side must know to go on with a session over another
// channel. The other side is a copy of what it was, and has been held.
type State struct {
	Streams []StreamState `json:"streams"`
}

// A StreamState is that of one stream.
type StreamState struct {
	ID      uint32 `json:"id"`
	Credit  int    `json:"credit"`  // bytes that may be sent
	Allowed int    `json:"allowed"` // bytes that may come
	Ended   bool   `json:"ended"`
	Closed  bool   `json:"closed"`
}

// State tells the state of the known streams.
// Preconditions: both sides are held, and all that was sent has come.
func (s *Session) State() (st State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.streams {
		if t.id < firstOpened {
			st.Streams = append(st.Streams, StreamState{t.id, t.credit, t.allowed, t.ended, t.closed})
		}
	}
	slices.SortFunc(st.Streams, func(a, b StreamState) int { return int(a.ID) - int(b.ID) })
	return st
}

// Continue makes the session that the other side, a copy, expects. It is held.
func Continue(conn io.ReadWriteCloser, accepts bool, st State) *Session {
	s := New(conn, accepts)
	s.out.held = true
	for _, o := range st.Streams {
		t := newStream(s, o.ID)
		t.credit, t.allowed, t.ended, t.closed = o.Credit, o.Allowed, o.Ended, o.Closed
		t.owed = Window - o.Allowed
		s.streams[o.ID] = t
	}
	return s
}
