package upstream_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/backendtest"
	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/backend/upstream/given"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/wire"
)

// rotating is a stored secret that changes.
type rotating struct{ value atomic.Value }

func (s *rotating) now() string { return s.value.Load().(string) }

func (s *rotating) give(context.Context) (v given.Values, err error) {
	if s.now() == "" {
		return v, &sallyport.Error{Code: sallyport.NotFound, Message: "no such secret"}
	}
	return given.Values{Env: []string{"TOKEN=" + s.now()}, Header: http.Header{"Authorization": {"Bearer " + s.now()}}}, nil
}

func newRotating(first string) *rotating {
	s := &rotating{}
	s.value.Store(first)
	return s
}

func tokenOf(t *testing.T, b *upstream.Backend, who string) (token string) {
	t.Helper()
	out, err := b.Run(t.Context(), jobOf(sallyport.Principal{Tenant: "t", ID: who}, "env", `{}`))
	var r struct{ StructuredContent struct{ Env []string } }
	if err == nil {
		err = json.Unmarshal(out.Content, &r)
	}
	if err != nil {
		return err.Error()
	}
	for _, kv := range r.StructuredContent.Env {
		if v, ok := strings.CutPrefix(kv, "TOKEN="); ok {
			token = v
		}
	}
	return token
}

// FO-26: a program whose secret was changed is another process for the calls to come,
// of each caller, also of those who come for the first time; calls that run end where
// they are.
func TestFO26_RotatedEnvironment(t *testing.T) {
	t.Parallel()
	for _, processes := range []upstream.Processes{"", "each"} {
		t.Run("processes "+string(processes), func(t *testing.T) {
			t.Parallel()
			secret, file := newRotating("old"), filepath.Join(t.TempDir(), "go")
			c := server("s", "legacy")
			c.Given, c.Processes = secret.give, processes
			b := open(t, options(), c)
			if got := tokenOf(t, b, "ann"); got != "old" {
				t.Fatalf("at first %s", got)
			}
			held := make(chan string, 1)
			started := make(chan struct{})
			go func() {
				out, err := b.Run(t.Context(), func() sallyport.Job {
					close(started)
					return jobOf(sallyport.Principal{Tenant: "t", ID: "ann"}, "hold", `{"until":`+string(wire.Quote(file))+`}`)
				}())
				text, _ := backendtest.Text(out)
				held <- text + errorText(err)
			}()
			<-started
			time.Sleep(20 * time.Millisecond) // where it is not under way yet, the test shows less
			secret.value.Store("new")
			b.Renew()
			if got := tokenOf(t, b, "ann"); got != "new" {
				t.Errorf("right after it was told: %s", got)
			}
			for _, who := range []string{"ann", "bob"} {
				await.That(t, who+" has the new one", func() bool { return tokenOf(t, b, who) == "new" })
			}
			select {
			case got := <-held:
				t.Errorf("the call that ran ended: %s", got)
			default:
			}
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if got := <-held; got != "held" {
				t.Errorf("the call that ran: %s", got)
			}
			if st := status(t, b, "s"); st.Restarts != 0 || st.Error != "" {
				t.Errorf("it counts as a failure: %+v", st)
			}
			secret.value.Store("")
			await.That(t, "a secret that was removed is used no more", func() bool { return strings.Contains(tokenOf(t, b, "ann"), "not stored any more") })
			secret.value.Store("newest")
			await.That(t, "and is when it is there again", func() bool { return tokenOf(t, b, "ann") == "newest" })
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// FO-26: requests carry the credential that holds when they are sent; one that is
// refused for an old one is sent once more with the new one, and the call runs once.
func TestFO26_RotatedHeader(t *testing.T) {
	t.Parallel()
	for name, modern := range map[string]bool{"legacy": false, "modern": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secret, valid := newRotating("old"), newRotating("old")
			var refused atomic.Int64
			srv := &web{modern: modern}
			var once sync.Once
			srv.special = func(w http.ResponseWriter, r *http.Request, m wire.Message) bool {
				if m.Method == "tools/call" && strings.Contains(string(m.Params), "rotate") {
					once.Do(func() { valid.value.Store("new"); secret.value.Store("new") }) // just now
				}
				if r.Header.Get("Authorization") == "Bearer "+valid.now() {
					return false
				}
				if m.Method == "tools/call" {
					refused.Add(1)
				}
				w.WriteHeader(http.StatusUnauthorized)
				return true
			}
			b := open(t, options(), upstream.Config{Name: "s", URL: srv.start(t), Given: secret.give})
			mustText(t, b, "s", "echo", `{}`)
			if got := mustText(t, b, "s", "echo", `{"rotate":true}`); got != `{"rotate":true}` || refused.Load() != 1 || srv.executed.Load() != 2 {
				t.Errorf("%s, refused %d times, executed %d times", got, refused.Load(), srv.executed.Load())
			}
			valid.value.Store("other")
			if _, err := call(t, b, "s", "echo", `{}`); !errors.Is(err, sallyport.ErrNotExecuted) || refused.Load() != 2 {
				t.Errorf("a wrong one: %v, refused %d times: it is sent again for nothing", err, refused.Load())
			}
		})
	}
}

// FO-26: the stream of HTTP+SSE has the headers that it began with, so it is another one.
func TestFO26_RotatedHeaderOfHTTPSSE(t *testing.T) {
	t.Parallel()
	secret, inner := newRotating("old"), older()
	var seen atomic.Value
	url := startOlder(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.RawQuery != "" {
			seen.Store(r.Header.Get("Authorization"))
		}
		inner.ServeHTTP(w, r)
	}))
	b := open(t, options(), upstream.Config{Name: "s", URL: url, Given: secret.give})
	mustText(t, b, "s", "echo", `{}`)
	secret.value.Store("new")
	await.That(t, "the new one is sent", func() bool {
		mustText(t, b, "s", "echo", `{}`)
		return seen.Load() == "Bearer new"
	})
}

// FO-26: a server that was refused for its secret is tried again as soon as that was
// changed and somebody calls.
func TestFO26_RightSecretAtLast(t *testing.T) {
	t.Parallel()
	secret := newRotating("wrong")
	srv := &web{}
	srv.special = func(w http.ResponseWriter, r *http.Request, _ wire.Message) bool {
		if r.Header.Get("Authorization") == "Bearer right" {
			return false
		}
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	o := options()
	o.BackOff, o.Budget = time.Hour, 100*time.Millisecond // nobody looks by himself
	b := open(t, o, upstream.Config{Name: "s", URL: srv.start(t), Given: secret.give})
	await.That(t, "it is down", func() bool { return status(t, b, "s").State == upstream.StateDown })
	secret.value.Store("right")
	await.That(t, "it answers", func() bool { _, err := call(t, b, "s", "echo", `{}`); return err == nil })
}
