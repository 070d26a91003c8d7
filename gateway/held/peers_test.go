package held_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/held"
)

// Replicas are gateways of one database, each with a place of its own.
type replicas struct {
	mu    sync.Mutex
	at    map[string]string
	calls map[string]*held.Calls
	http  map[string]*httptest.Server
	seen  [][]byte // bodies that passed between them
}

func (r *replicas) address(_ context.Context, replica string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at[replica], nil
}

func (r *replicas) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	r.seen = append(r.seen, body)
	r.mu.Unlock()
	req.Body = io.NopCloser(bytes.NewReader(body))
	for name, s := range r.http {
		if s.Listener.Addr().String() == req.Host {
			r.calls[name].ServeHTTP(w, req)
		}
	}
}

func newReplicas(t *testing.T, names ...string) *replicas {
	t.Helper()
	r := &replicas{at: map[string]string{}, calls: map[string]*held.Calls{}, http: map[string]*httptest.Server{}}
	for _, name := range names {
		r.calls[name] = open(t, func(o *held.Options) {
			o.Replica, o.Peers = name, held.NewPeers(key, r.address)
		})
		s := httptest.NewServer(r)
		t.Cleanup(s.Close)
		r.http[name], r.at[name] = s, s.Listener.Addr().String()
	}
	return r
}

// A client that comes back to another gateway of the same database meets its call all
// the same, and nothing in between can read or repeat what the two say.
func TestAnotherReplicaPassesAnswersOn(t *testing.T) {
	r := newReplicas(t, "one", "two", "three")
	res := begin(t, r.calls["one"], asks(2, nil))
	first := res.State
	res, err := r.calls["two"].Resume(t.Context(), back(first, "q0", `"CANARY-ANSWER"`))
	if err != nil || len(res.Questions) != 1 || res.CallID != "call_1" {
		t.Fatalf("%+v, %v", res, err)
	}
	refused(t, r.calls["three"], "used at another one", back(first, "q0", "0"))
	bob := back(res.State, "q1", "1")
	bob.Owner, bob.Binding = "bob", "binding of bob"
	refused(t, r.calls["three"], "of somebody else", bob)
	if res, err = r.calls["three"].Resume(t.Context(), back(res.State, "q1", "1")); err != nil || string(res.Content) != `["CANARY-ANSWER",1]` {
		t.Errorf("%s, %v", res.Content, err)
	}
	if len(r.seen) != 3 {
		t.Errorf("%d requests between gateways", len(r.seen))
	}
	for _, b := range r.seen {
		if bytes.Contains(b, []byte("CANARY")) {
			t.Error("an answer can be read on its way")
		}
	}
}

// The gateway that held the call is gone: what changes something may have acted, and
// is not run again.
func TestTheHolderIsGone(t *testing.T) {
	r := newReplicas(t, "one", "two")
	for _, mutating := range []bool{true, false} {
		ret := back(begin(t, r.calls["one"], asks(1, nil)).State, "q0", "0")
		ret.Mutating = mutating
		r.mu.Lock()
		old := r.at["one"]
		r.at["one"] = "" // its sign of life is gone
		r.mu.Unlock()
		_, err := r.calls["two"].Resume(t.Context(), ret)
		if want := map[bool]sallyport.Code{true: sallyport.OutcomeUnknown, false: sallyport.Unavailable}[mutating]; sallyport.CodeOf(err) != want || !strings.Contains(err.Error(), "has ended") {
			t.Errorf("mutating %t: %v", mutating, err)
		}
		r.mu.Lock()
		r.at["one"] = "127.0.0.1:1" // nothing listens there: it may be back in a moment
		r.mu.Unlock()
		if _, err := r.calls["two"].Resume(t.Context(), ret); sallyport.CodeOf(err) != sallyport.Unavailable || !strings.Contains(err.Error(), "cannot be reached") {
			t.Errorf("mutating %t, no connection: %v", mutating, err)
		}
		r.mu.Lock()
		r.at["one"] = old
		r.mu.Unlock()
		if res, err := r.calls["two"].Resume(t.Context(), ret); err != nil || string(res.Content) != `[0]` {
			t.Errorf("the control, mutating %t: %+v, %v", mutating, res, err)
		}
	}
}

// A client that hangs up at one gateway ends the call at the other.
func TestHangingUpReachesTheHolder(t *testing.T) {
	r := newReplicas(t, "one", "two")
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	res := begin(t, r.calls["one"], func(ctx context.Context, req sallyport.Request) (sallyport.Result, error) {
		if _, err := req.Ask(ctx, inquiry("ann", "q")); err != nil {
			return sallyport.Result{}, err
		}
		cancel()
		<-ctx.Done()
		close(ended)
		return sallyport.Result{}, ctx.Err()
	})
	if _, err := r.calls["two"].Resume(ctx, back(res.State, "q", "1")); err == nil {
		t.Error("no error")
	}
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("the call goes on")
	}
}

// Nobody but a gateway with the key has a call go on.
func TestStrangersAreNoReplicas(t *testing.T) {
	r := newReplicas(t, "one", "two")
	res := begin(t, r.calls["one"], asks(1, nil))
	post := func(what, method string, header map[string]string, body []byte) {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+r.at["one"]+held.Path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range header {
			req.Header.Set(k, v)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: status %d", what, resp.StatusCode)
		}
	}
	m := hmac.New(sha256.New, bytes.Repeat([]byte{1}, 32))
	m.Write([]byte("sallyport replicas nonce v1\x00n"))
	post("no key", http.MethodPost, nil, []byte("{}"))
	post("another key", http.MethodPost, map[string]string{"Sallyport-Nonce": "n", "Sallyport-Code": hex.EncodeToString(m.Sum(nil))}, []byte("{}"))
	post("GET", http.MethodGet, nil, nil)
	stranger := open(t, func(o *held.Options) {
		o.Key, o.Replica = bytes.Repeat([]byte{1}, 32), "two"
		o.Peers = held.NewPeers(o.Key, r.address)
	})
	refused(t, stranger, "a stranger", back(res.State, "q0", "0"))
	// A request that passed is repeated word for word, to its own place and to another.
	if _, err := r.calls["two"].Resume(t.Context(), back(res.State, "q0", "0")); err != nil {
		t.Fatalf("the control: %v", err)
	}
	m = hmac.New(sha256.New, key)
	m.Write([]byte("sallyport replicas nonce v1\x00n"))
	good := map[string]string{"Sallyport-Nonce": "n", "Sallyport-Code": hex.EncodeToString(m.Sum(nil))}
	post("a body under another nonce", http.MethodPost, good, r.seen[len(r.seen)-1])
	post("not sealed", http.MethodPost, good, []byte(`{"Turn":1}`))
	post("too short", http.MethodPost, good, []byte("x"))
}
