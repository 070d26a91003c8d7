package mux

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

func pair(t *testing.T) (a, b *Session) {
	t.Helper()
	x, y := net.Pipe()
	a, b = New(x, true, 0, 1), New(y, false, 0, 1)
	a.Start()
	b.Start()
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// Bytes arrive as they were sent, though there are many times more than a window
// holds, and though another stream is read by nobody.
func TestStreamsArrive(t *testing.T) {
	a, b := pair(t)
	sent := make([]byte, 5*Window+7)
	rand.Read(sent)
	go b.Stream(0).Write(make([]byte, 2*Window)) //nolint:errcheck // nobody reads it; it waits until the end
	go func() {
		_, _ = b.Stream(1).Write(sent)
		_ = b.Stream(1).CloseWrite()
	}()
	got, err := io.ReadAll(a.Stream(1))
	if err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("%d of %d bytes, %v", len(got), len(sent), err)
	}
	if n := len(a.Stream(0).in); n > Window {
		t.Errorf("%d bytes are kept of a stream that nobody reads", n)
	}
}

func TestOpenAndClose(t *testing.T) {
	a, b := pair(t)
	for range 3 * MaxOpened { // each is forgotten
		out, err := b.Open()
		if err != nil {
			t.Fatal(err)
		}
		in, err := a.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = out.Write([]byte("ask"))
		_ = out.CloseWrite()
		q, _ := io.ReadAll(in)
		_, _ = in.Write(append(q, " answered"...))
		_ = in.CloseWrite()
		if got, _ := io.ReadAll(out); string(got) != "ask answered" {
			t.Fatalf("%q", got)
		}
	}
	out, _ := b.Open()
	in, _ := a.Accept()
	in.Close()
	if _, err := io.ReadAll(out); err != nil {
		t.Error(err)
	}
	for _, err := out.Write([]byte("x")); err == nil; _, err = out.Write([]byte("x")) { // until the reset has come
		time.Sleep(time.Millisecond)
	}
}

// A session that was held goes on over another channel with a copy of the other
// side, and nothing is lost or counted twice.
func TestContinue(t *testing.T) {
	a, b := pair(t)
	go b.Stream(1).Write(make([]byte, 3*Window/4)) //nolint:errcheck // it fits
	if _, err := io.ReadFull(a.Stream(1), make([]byte, 3*Window/4)); err != nil {
		t.Fatal(err)
	}
	if err := a.Hold(a.Stream(0), []byte("freeze")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(b.Stream(0), make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	if err := b.Hold(b.Stream(0), []byte("frozen")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(a.Stream(0), make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	x, y := net.Pipe()
	host, guest := Continue(x, true, a.State()), Continue(y, false, b.State())
	host.Start()
	guest.Start()
	defer host.Close()
	defer guest.Close()
	guest.Release()
	host.Release()
	sent := make([]byte, 4*Window)
	rand.Read(sent)
	go guest.Stream(1).Write(sent) //nolint:errcheck // what arrives is looked at
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(host.Stream(1), got); err != nil || !bytes.Equal(got, sent) {
		t.Fatal("the copy does not go on", err)
	}
}

// What breaks the rules ends the session, and says so.
func TestBrokenRules(t *testing.T) {
	big := bytes.Repeat([]byte("x"), MaxData)
	flood := []byte{}
	for range Window/MaxData + 1 {
		flood = appendFrame(flood, frameData, 1, big)
	}
	opens := []byte{}
	for i := range uint32(MaxOpened + 1) {
		opens = appendFrame(opens, frameOpen, firstOpened+i, nil)
	}
	for name, raw := range map[string][]byte{
		"unknown kind":     {'?', 0, 0, 0, 0, 0, 0, 0, 0},
		"length":           {'D', 1, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f},
		"empty data":       {'D', 1, 0, 0, 0, 0, 0, 0, 0},
		"beyond window":    flood,
		"too many streams": opens,
		"a known stream":   appendFrame(nil, frameOpen, 1, nil),
		"window":           appendFrame(nil, frameWindow, 1, []byte{255, 255, 255, 255}),
		"after the end":    appendFrame(appendFrame(nil, frameEnd, 1, nil), frameData, 1, []byte("x")),
	} {
		x, y := net.Pipe()
		s := New(x, true, 0, 1)
		s.Start()
		go y.Write(raw) //nolint:errcheck // it ends with the session
		select {
		case <-s.Done():
			if !errors.Is(s.Err(), ErrBroken) {
				t.Errorf("%s: %v", name, s.Err())
			}
		case <-time.After(time.Minute):
			t.Errorf("%s: the session goes on", name)
		}
		s.Close()
		y.Close()
	}
}

// A loop is a channel whose other end says what a fuzzer wants and reads nothing.
type loop struct{ io.Reader }

func (loop) Write(b []byte) (int, error) { return len(b), nil }
func (loop) Close() error                { return nil }

// Whatever a guest says, the host keeps no more than its bounds.
func FuzzFrames(f *testing.F) {
	f.Add(appendFrame(appendFrame(nil, frameOpen, 64, nil), frameData, 64, []byte("GET /")))
	f.Add(appendFrame(appendFrame(nil, frameData, 1, []byte("out")), frameEnd, 1, nil))
	f.Add(appendFrame(appendFrame(nil, frameWindow, 1, []byte{1, 0, 0, 0}), frameReset, 1, nil))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s := New(loop{bytes.NewReader(raw)}, true, 0, 1)
		s.read()
		if s.Err() == nil {
			t.Fatal("the channel has ended, the session has not")
		}
		kept := 0
		for _, t := range s.streams {
			kept += len(t.in)
		}
		if len(s.streams) > 2+MaxOpened || s.opened > MaxOpened || kept > len(raw) {
			t.Fatalf("%d streams, %d bytes", len(s.streams), kept)
		}
	})
}

// A last word for which the other side leaves no room is refused, and what is said
// later waits for room as ever.
func TestNoRoomForTheLastWord(t *testing.T) {
	x, y := net.Pipe()
	defer y.Close()
	a := New(x, false, 1)
	a.Start()
	defer a.Close()
	go io.Copy(io.Discard, y) //nolint:errcheck // it reads, and lets nothing more come
	if _, err := a.Stream(1).Write(make([]byte, Window-3)); err != nil {
		t.Fatal(err)
	}
	if err := a.Hold(a.Stream(1), []byte("freeze")); err == nil {
		t.Fatal("it is held")
	}
	if n, err := a.Stream(1).Write([]byte("yes")); n != 3 || err != nil {
		t.Error(n, err)
	}
}
