package conformance

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"sallyport.dev/sallyport/test/stage"
)

// FO-26: a secret that is set anew counts from the next call on, without a restart; one
// that is removed is used no more; neither value is in the log.
func TestFO26_SecretOfAServer(t *testing.T) {
	t.Parallel()
	const first, second = "first-canary-5e1c9f20", "second-canary-8b7d44a1"
	var valid atomic.Value
	valid.Store(first)
	s := &teller{}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+valid.Load().(string) {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, "no such token: "+r.Header.Get("Authorization"))
			return
		}
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	g := stage.New(t)
	g.Write("tools/act.yaml", "server: t\ntool: act\nread_only: true\n")
	g.Start()
	g.Login()
	set := func(value string) { t.Helper(); g.Must(value, "secrets", "set", "tok") }
	set(first)
	g.Must("", "servers", "add", "t", "--url", h.URL, "--header", "Authorization=Bearer ${secret:tok}")
	g.WaitServer("t")
	c := newRaw(t, g)
	asks := func(what string) {
		t.Helper()
		if a := c.turn(t, `{"n":1}`, ""); a.Result.ResultType != "input_required" {
			t.Errorf("%s: %+v", what, a)
		}
	}
	asks("at first")
	set(second)
	valid.Store(second)
	asks("right after it was changed")
	g.Must("", "secrets", "rm", "tok")
	if a := c.turn(t, `{"n":1}`, ""); a.Result.StructuredContent.Code != "unavailable" {
		t.Errorf("after it was removed: %+v", a)
	}
	set(second)
	asks("when it is there again")
	if log := g.Log(); strings.Contains(log, "canary") {
		t.Errorf("a value is in the log:\n%s", log)
	}
}
