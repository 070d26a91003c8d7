package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"sallyport.dev/sallyport/wire"
)

func readAll(r *wire.EventReader) (out []string, err error) {
	for {
		e, err := r.Next()
		if err != nil {
			return out, err
		}
		out = append(out, fmt.Sprintf("%s %q", e.Name, e.Data))
	}
}

func TestEventReader(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"data: a\n\n", `message "a"`},
		{"\ufeffdata:a\r\n\r\ndata: b\r\rdata:  c\n\n", `message "a"|message "b"|message " c"`},
		{"event: x\ndata: 1\ndata\ndata:2\n\n", `x "1\n\n2"`},
		{": hi\n\n:\n\nid: 7\nretry: 25\ndata:\n\n", `message ""`},
		{"event: lost\n\ndata: a\n\n", `message "a"`},
		{"data: cut off\n", ``},
		{"unknown: x\nnocolon\ndata: a\n\n", `message "a"`},
	} {
		for _, r := range []io.Reader{strings.NewReader(tt.in), iotest.OneByteReader(strings.NewReader(tt.in))} {
			got, err := readAll(wire.NewEventReader(r, 100))
			if strings.Join(got, "|") != tt.want || !errors.Is(err, io.EOF) {
				t.Errorf("%q gave %v, %v; want %s", tt.in, got, err, tt.want)
			}
		}
	}
}

func TestEventReaderIDAndRetry(t *testing.T) {
	r := wire.NewEventReader(strings.NewReader("id: 7\nretry: 25\n\nid: a\x00b\nretry: x\ndata: d\n\n"), 100)
	if _, err := r.Next(); err != nil || r.LastID() != "7" || r.Retry() != 25*time.Millisecond {
		t.Errorf("id %q, retry %v, %v", r.LastID(), r.Retry(), err)
	}
}

// FO-11: who comes back with the id of an event that was cut off would never get it.
func TestFO11_IDOfACutEvent(t *testing.T) {
	for in, want := range map[string]string{
		"id: 1\ndata: a\n\nid: 2\ndata: {\"half": "1", "id: 1\ndata: a\n\ndata: b\nid: 2\n": "1", "id: 1\n": "", "id: 1\n\nid: 2\n\n": "2",
	} {
		r := wire.NewEventReader(strings.NewReader(in), 100)
		if _, err := readAll(r); !errors.Is(err, io.EOF) || r.LastID() != want {
			t.Errorf("%q: %q, %v; want %q", in, r.LastID(), err, want)
		}
	}
}

func TestEventReaderBound(t *testing.T) {
	line := "data: " + strings.Repeat("x", 30) + "\n"
	for _, in := range []string{strings.Repeat("x", 101), line + line + line + "\n"} {
		if _, err := wire.NewEventReader(strings.NewReader(in), 100).Next(); !errors.Is(err, wire.ErrEventTooLarge) {
			t.Errorf("%.20q…: %v", in, err)
		}
	}
	alive := strings.Repeat(":\n", 200) + "data: a\n\n"
	if _, err := wire.NewEventReader(strings.NewReader(alive), 100).Next(); err != nil {
		t.Errorf("comments count against the bound: %v", err)
	}
}

// A line that ends with CR is complete: the reader must not wait for more.
func TestEventReaderDoesNotWaitAfterCR(t *testing.T) {
	pr, pw := io.Pipe()
	defer pw.Close()
	go pw.Write([]byte("data: a\r\r"))
	if e, err := wire.NewEventReader(pr, 100).Next(); err != nil || string(e.Data) != "a" {
		t.Errorf("%q, %v", e.Data, err)
	}
}

func FuzzEventReader(f *testing.F) {
	f.Add([]byte("data: a\r\n\r\nid: 1\nevent: e\ndata\n\n"))
	f.Add([]byte("\xef\xbb\xbf:\r:\n\n\ndata:x\r\r"))
	f.Fuzz(func(t *testing.T, in []byte) {
		whole, err1 := readAll(wire.NewEventReader(bytes.NewReader(in), 64))
		bytewise, err2 := readAll(wire.NewEventReader(iotest.OneByteReader(bytes.NewReader(in)), 64))
		if fmt.Sprint(whole, err1) != fmt.Sprint(bytewise, err2) {
			t.Fatalf("%q: %v %v, byte by byte %v %v", in, whole, err1, bytewise, err2)
		}
		sent := wire.AppendEvent(wire.AppendComment(nil, "x"), "e", in)
		got, err := wire.NewEventReader(bytes.NewReader(sent), 2*len(sent)+100).Next()
		want := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(in))
		if err != nil || got.Name != "e" || string(got.Data) != want {
			t.Fatalf("wrote %q, read %q, %v", in, got.Data, err)
		}
	})
}

// Of a large event no more is read than what is light before somebody says so.
func TestEventReaderAsksForLargeOnes(t *testing.T) {
	stop := errors.New("no room")
	for in, want := range map[string]int{
		"data: 0123456789\n\n": 0, "data: " + strings.Repeat("x", 100) + "\n\n": 1,
		strings.Repeat("data: 0123\n", 10) + "\ndata: x\n\n" + strings.Repeat("data: 0123\n", 10) + "\n": 2,
	} {
		asked := 0
		r := wire.NewEventReader(iotest.OneByteReader(strings.NewReader(in)), 1000)
		r.Large(20, func() error { asked++; return nil })
		if _, err := readAll(r); !errors.Is(err, io.EOF) || asked != want {
			t.Errorf("%.20q: asked %d times, %v", in, asked, err)
		}
		r = wire.NewEventReader(strings.NewReader(in), 1000)
		r.Large(20, func() error { return stop })
		if _, err := readAll(r); errors.Is(err, stop) != (want > 0) {
			t.Errorf("%.20q: %v", in, err)
		}
	}
}
