package held

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
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
