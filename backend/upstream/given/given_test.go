package given

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"sallyport.dev/sallyport"
)

func TestValuesThatChange(t *testing.T) {
	v, wrong, reads := Values{Env: []string{"A=1"}}, error(nil), 0
	k := New(v, func(context.Context) (Values, error) { reads++; return v, wrong })
	old := func() { k.mu.Lock(); k.at = time.Now().Add(-2 * age); k.mu.Unlock() }
	see := func(what, env string, turn int) {
		t.Helper()
		got, n, err := k.Now(t.Context())
		if err != nil || len(got.Env) != 1 || got.Env[0] != env || n != turn {
			t.Errorf("%s: %+v, turn %d, %v", what, got, n, err)
		}
	}
	see("at first", "A=1", 0)
	v.Env = []string{"A=2"}
	k.mu.Lock()
	k.at = time.Now().Add(time.Hour)
	k.mu.Unlock()
	see("read a moment ago", "A=1", 0)
	old()
	see("later", "A=2", 1)
	old()
	see("the same again", "A=2", 1)
	if k.Newer(t.Context(), 1) || !k.Newer(t.Context(), 0) {
		t.Error("what is newer than what")
	}
	v, wrong = Values{}, errors.New("the database is away")
	old()
	see("not to be read", "A=2", 1)
	wrong = &sallyport.Error{Code: sallyport.NotFound}
	old()
	if _, _, err := k.Now(t.Context()); sallyport.CodeOf(err) != sallyport.Unavailable || !errors.Is(err, sallyport.ErrNotExecuted) {
		t.Errorf("removed: %v", err)
	}
	v, wrong = Values{Env: []string{"A=3"}}, nil
	see("there again", "A=3", 2) // at once: what failed is not kept
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	old()
	if _, _, err := k.Now(ctx); err != nil {
		t.Errorf("who gave up keeps nobody else from it: %v", err)
	}
}

func TestValuesThatStay(t *testing.T) {
	k := New(Values{Header: http.Header{"A": {"1"}}}, nil)
	v, turn, err := k.Now(t.Context())
	if v.Header.Get("A") != "1" || turn != 0 || err != nil || k.Newer(t.Context(), 0) {
		t.Errorf("%+v, %d, %v", v, turn, err)
	}
}

// A store that is slow keeps nobody who only says that something changed, and what it
// tells is then not taken for what there is now.
func TestForgottenWhileTheyAreRead(t *testing.T) {
	begun, goOn, env := make(chan struct{}, 2), make(chan struct{}), "A=1"
	k := New(Values{Env: []string{"A=0"}}, func(context.Context) (Values, error) {
		v := Values{Env: []string{env}}
		begun <- struct{}{}
		<-goOn
		return v, nil
	})
	read := make(chan error, 1)
	go func() { _, _, err := k.Now(context.Background()); read <- err }()
	<-begun
	forgot := make(chan struct{})
	go func() { k.Forget(); close(forgot) }()
	select {
	case <-forgot:
	case <-time.After(10 * time.Second):
		t.Error("Forget waits for the store")
	}
	close(goOn)
	if err := <-read; err != nil {
		t.Fatal(err)
	}
	env = "A=2"
	if v, turn, err := k.Now(t.Context()); err != nil || len(v.Env) != 1 || v.Env[0] != "A=2" || turn != 2 {
		t.Errorf("%+v, turn %d, %v", v, turn, err)
	}
}
