package talk

import (
	"bytes"
	"context"
	"io"
	"testing"

	"sallyport.dev/sallyport/tier/payload"
)

func TestSaidAndHeard(t *testing.T) {
	l := New()
	r, w := io.Pipe()
	go l.Feed(w, []byte("first"))
	go func() {
		for _, b := range [][]byte{[]byte("a"), bytes.Repeat([]byte("b"), payload.MaxRecord+1)} {
			if err := l.Say(context.Background(), b); err != nil {
				t.Error(err)
			}
		}
	}()
	head := make([]byte, 5)
	if _, err := io.ReadFull(r, head); err != nil || string(head) != "first" {
		t.Fatalf("%q, %v", head, err)
	}
	for _, want := range []int{1, payload.MaxRecord, 1} {
		if k, b, err := payload.Read(r); k != payload.Said || len(b) != want || err != nil {
			t.Fatalf("%c of %d bytes, %v; want %d", k, len(b), err, want)
		}
	}
	l.End()
	if n, err := r.Read(head); err != io.EOF {
		t.Errorf("%d bytes more, %v", n, err)
	}
	if l.Say(context.Background(), nil) == nil {
		t.Error("something can be said on a line that has ended")
	}
}

// What nobody takes is bounded, and an end wakes who waits.
func TestBounded(t *testing.T) {
	l := New()
	chunk := make([]byte, 1<<20)
	n := 0
	for l.Hear(chunk) {
		n++
	}
	if n != MaxUntaken>>20 {
		t.Errorf("%d MiB were heard", n)
	}
	if got := len(l.Take()); got != MaxUntaken {
		t.Errorf("%d bytes were taken", got)
	}
	if !l.Hear([]byte("again")) || string(l.Take()) != "again" {
		t.Error("there is no room although all was taken")
	}
	done := make(chan []byte)
	go func() { done <- l.Take() }()
	l.End()
	if b := <-done; b != nil {
		t.Errorf("%q", b)
	}
	if !l.Hear(chunk) || l.Take() != nil { // a run that is over is not killed for what it still says
		t.Error("a line that has ended hears")
	}
}
