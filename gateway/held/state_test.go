package held

import (
	"crypto/rand"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
)

// A state opens for its binding only, whatever a call says of it later.
func TestAStateOpensForItsBinding(t *testing.T) {
	s, err := newStates([]byte("0123456789abcdef0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	in := state{replica: "one", call: [16]byte{1}, turn: 7, until: time.Unix(5, 6)}
	text := s.seal(in, "b")
	if out, err := s.open(text, "b"); err != nil || out != in {
		t.Errorf("the control: %+v, %v", out, err)
	}
	if _, err := s.open(text, "c"); err == nil {
		t.Error("it opens for another call")
	}
	if text == s.seal(in, "b") {
		t.Error("two states are the same")
	}
	if _, err := newStates([]byte("short")); err == nil {
		t.Error("a short key")
	}
}

// body fails the test if anybody reads it.
type body struct{ t *testing.T }

func (b body) Read([]byte) (int, error) {
	b.t.Error("the body of a stranger is read")
	return 0, errors.New("no")
}

// Strangers' bodies are not even read.
func TestStrangersAreNotRead(t *testing.T) {
	key := []byte("0123456789abcdef0123456789abcdef")
	c, err := New(Options{Key: key, Replica: "one", Now: time.Now, Peers: NewPeers(key, nil)})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, Path, body{t})
	r.Header.Set(headerNonce, "n")
	w := httptest.NewRecorder()
	if c.ServeHTTP(w, r); w.Code != http.StatusNotFound {
		t.Errorf("status %d", w.Code)
	}
}

// A name of a task is taken as it was given, for who it was given to, and in no other form;
// nor is a state, which is sealed under the same key.
func FuzzNamed(f *testing.F) {
	key := make([]byte, 32)
	rand.Read(key) // other processes of a fuzzer have other names
	c, err := New(Options{Key: key, Replica: "r", Now: time.Now})
	if err != nil {
		f.Fatal(err)
	}
	name, err := c.states.name(sallyport.Lasting{CallID: "call_1", Held: make([]byte, 16), Replica: "r", Binding: "b"})
	if err != nil {
		f.Fatal(err)
	}
	if l, err := c.Named(name, "b"); err != nil || l.CallID != "call_1" {
		f.Fatalf("%+v, %v", l, err)
	}
	f.Add(name, "c")
	f.Add(name+"A", "b")
	f.Add(strings.TrimPrefix(name, prefix), "b")
	f.Add(prefix+c.states.seal(state{"r", [16]byte{}, 1, time.Now()}, "b"), "b")
	f.Fuzz(func(t *testing.T, in, binding string) {
		if l, err := c.Named(in, binding); err == nil && (in != name || binding != "b") {
			t.Errorf("%q for %q: %+v", in, binding, l)
		}
	})
}
