package stream

import (
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/await"
)

// What all sessions keep together is bounded, and given back.
func TestTailsAreBounded(t *testing.T) {
	var kept atomic.Int64
	big := []byte(strings.Repeat("x", maxTailBytes-1))
	var all []*Tails
	for range maxAllBytes/maxTailBytes + 3 {
		s := NewTails(&kept)
		n := s.Open()
		n.Put(big)
		n.End()
		if all = append(all, s); kept.Load() > maxAllBytes {
			t.Fatalf("%d bytes are kept", kept.Load())
		}
	}
	if n, _, ours := all[0].Find("call-1-0"); n == nil || !ours {
		t.Error("the first is not kept")
	}
	if n, _, ours := all[len(all)-1].Find("call-1-0"); n != nil || !ours {
		t.Error("the last is kept, though there is no room")
	}
	for _, s := range all {
		s.Close()
		if s.Open() != nil {
			t.Error("a session that has ended keeps more")
		}
	}
	if kept.Load() != 0 {
		t.Errorf("%d bytes are kept of nothing", kept.Load())
	}
}

// An id finds no stream but the one that gave it, and each stream's events have one form.
func FuzzTailID(f *testing.F) {
	for _, id := range []string{"call-1-0", "call-1-2", "call-01-1", "call-1-+1", "call-1-1-1", "get-1", "call-", "call-2-0"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		s := NewTails(&atomic.Int64{})
		n := s.Open()
		n.Put([]byte("a"))
		n.Put([]byte("b"))
		got, after, ours := s.Find(id)
		if ours != strings.HasPrefix(id, "call-") || (got != nil) != (id == "call-1-0" || id == "call-1-1" || id == "call-1-2") {
			t.Errorf("%q: %v, %d, %v", id, got, after, ours)
		}
		if got != nil && string(got.AppendID(nil, after)) != "id: "+id+"\n" {
			t.Errorf("%q is %q", id, got.AppendID(nil, after))
		}
	})
}

// However often a client comes back for a stream, one request has it: the last.
func TestOneRequestHasATail(t *testing.T) {
	n := NewTails(&atomic.Int64{}).Open()
	o := Outlet{KeepAlive: time.Hour, WriteTimeout: time.Minute, Alive: func() bool { return true }, Stop: make(chan struct{})}
	var ended [3]chan struct{}
	for i := range ended {
		ended[i] = make(chan struct{})
		go func() {
			defer close(ended[i])
			n.Serve(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "/", nil), 0, o)
		}()
		if i > 0 {
			await.That(t, "the one before is ended", func() bool {
				select {
				case <-ended[i-1]:
					return true
				default:
					return false
				}
			})
		}
		await.That(t, "it listens", func() bool { return n.Heard() })
	}
	select {
	case <-ended[2]:
		t.Error("the last was ended")
	default:
	}
	n.End()
	<-ended[2]
	if n.Heard() {
		t.Error("somebody listens")
	}
}
