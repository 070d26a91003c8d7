package stream

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/await"
)

// What all sessions keep together is bounded, shared among tenants, and given back.
func TestTailsAreBounded(t *testing.T) {
	kept := NewKept()
	big := []byte(strings.Repeat("x", maxTailBytes-1))
	var all []*Tails
	keeps := func(tenant, principal string) bool { // one more session of a principal
		s := NewTails(kept, tenant, principal)
		n := s.Open()
		n.Put(big)
		n.End()
		if all = append(all, s); kept.Used() > maxAllBytes {
			t.Fatalf("%d bytes are kept", kept.Used())
		}
		n, _, ours := s.Find("call-1-0")
		if !ours {
			t.Fatal("an id is not known")
		}
		return n != nil
	}
	fill := func(tenant, principal string) (n int) {
		for keeps(tenant, principal) {
			n++
		}
		return n
	}
	if n := fill("t1", "a") + fill("t1", "b") + fill("t1", "c"); n < 20 || n > maxAllBytes/maxTailBytes/2+1 {
		t.Errorf("a tenant's agents have %d streams kept", n)
	}
	for _, tenant := range []string{"t2", "t3"} {
		if n := fill(tenant, "a"); n < 3 {
			t.Errorf("%s has %d streams kept, beside a tenant that wanted all", tenant, n)
		}
	}
	for _, s := range all {
		s.Close()
		if s.Open() != nil {
			t.Error("a session that has ended keeps more")
		}
	}
	if kept.Used() != 0 {
		t.Errorf("%d bytes are kept of nothing", kept.Used())
	}
}

// An id finds no stream but the one that gave it, and each stream's events have one form.
func FuzzTailID(f *testing.F) {
	for _, id := range []string{"call-1-0", "call-1-2", "call-01-1", "call-1-+1", "call-1-1-1", "get-1", "call-", "call-2-0"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		s := NewTails(NewKept(), "t", "a")
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
	n := NewTails(NewKept(), "t", "a").Open()
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
