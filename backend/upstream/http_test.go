package upstream_test

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/backendtest"
	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/wire"
)

func TestConformanceHTTP(t *testing.T) {
	t.Parallel()
	for name, srv := range map[string]func() *web{
		"legacy":     func() *web { return &web{} },
		"legacy SSE": func() *web { return &web{sse: true} },
		"modern":     func() *web { return &web{modern: true} },
		"modern SSE": func() *web { return &web{modern: true, sse: true} },
	} {
		t.Run(name, func(t *testing.T) {
			backendtest.Run(t, backendtest.Subject{
				Open: func(t testing.TB) sallyport.Backend {
					return upstream.New([]upstream.Config{{Name: "s", URL: srv().start(t)}}, options())
				},
				Echo: tool("s", "echo"), Hang: tool("s", "hang"), Fail: tool("s", "fail"), Gone: tool("nowhere", "echo"),
			})
		})
	}
}

func TestFO10_LostSession(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{
		"404",
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}`,
		`{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request: Missing session ID"}}`,
		"Bad Request: No valid session ID provided", "Invalid session ID\n",
	} {
		srv := &web{lost: lost}
		b := open(t, options(), upstream.Config{Name: "s", URL: srv.start(t)})
		mustText(t, b, "s", "echo", `{}`)
		await.That(t, "the first listing", func() bool { return status(t, b, "s").Tools > 0 })
		srv.session.Add(1) // the server restarts and forgets
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				args := fmt.Sprintf(`{"i":%d}`, i)
				if got := mustText(t, b, "s", "echo", args); got != args {
					t.Errorf("%s: got %s", lost, got)
				}
			})
		}
		wg.Wait()
		if n := srv.inits.Load(); n != 2 {
			t.Errorf("%s: %d times initialize, want 2", lost, n)
		}
		if n := srv.executed.Load(); n != 5 {
			t.Errorf("%s: executed %d times, want 5", lost, n)
		}
	}
}

// FO-10: a server that forgot a session and says so in other words is met with a new one,
// at the next call where nobody knows whether it looked at this one.
func TestFO10_LostInOtherWords(t *testing.T) {
	t.Parallel()
	const lost = `{"jsonrpc":"2.0","id":%s,"error":{"code":-32001,"message":"Session not found"}}`
	for name, tt := range map[string]struct {
		status int
		body   string
		again  bool // the call itself is made again
		tool   bool // it is an error of a tool: that session goes on
	}{
		"410":               {410, "gone", true, false},
		"401":               {401, "", false, false},
		"an error, and 200": {200, lost, false, false},
		"a tool's words":    {200, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no valid name: the session is found"}}`, false, true},
		"a tool's session":  {200, lost, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := &web{}
			var times atomic.Int64
			srv.special = func(w http.ResponseWriter, r *http.Request, m wire.Message) bool {
				if m.Method != "tools/call" && (m.Method != "ping" || tt.tool) || r.Header.Get(wire.HeaderSessionID) != "s1" || srv.executed.Load() == 0 {
					return false
				}
				if m.Method == "tools/call" {
					times.Add(1)
				}
				w.Header().Set("Content-Type", wire.TypeJSON)
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, strings.Replace(tt.body, "%s", string(m.ID), 1))
				return true
			}
			b := open(t, options(), upstream.Config{Name: "s", URL: srv.start(t)})
			mustText(t, b, "s", "echo", `{}`)
			if _, err := call(t, b, "s", "echo", `{}`); (err == nil) != tt.again || times.Load() != 1 {
				t.Errorf("%v, asked %d times", err, times.Load())
			}
			if tt.tool {
				if _, err := call(t, b, "s", "echo", `{}`); err == nil || srv.inits.Load() != 1 {
					t.Errorf("%v, %d sessions", err, srv.inits.Load())
				}
				return
			}
			mustText(t, b, "s", "echo", `{}`)
			if srv.inits.Load() != 2 || times.Load() != 1 {
				t.Errorf("%d sessions, refused %d times", srv.inits.Load(), times.Load())
			}
		})
	}
}

func TestFO10_LostForever(t *testing.T) {
	t.Parallel()
	srv := &web{forever: true}
	b := open(t, options(), upstream.Config{Name: "s", URL: srv.start(t)})
	_, err := call(t, b, "s", "echo", `{}`)
	if err == nil || !strings.Contains(err.Error(), "upstream_session_lost") || !errors.Is(err, sallyport.ErrNotExecuted) {
		t.Errorf("got %v, want upstream_session_lost", err)
	}
	if n := srv.inits.Load(); n > 10 {
		t.Errorf("%d times initialize", n)
	}
	legacy := &web{} // … and one that never knows the session, not even to greet
	none := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Session-Id") != "" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		legacy.ServeHTTP(w, r)
	}))
	defer none.Close()
	o := options()
	o.Budget = time.Second
	b = open(t, o, upstream.Config{Name: "s", URL: none.URL + "/mcp"})
	if _, err := call(t, b, "s", "echo", `{}`); err == nil || !strings.Contains(err.Error(), "upstream_session_lost") || !errors.Is(err, sallyport.ErrNotExecuted) {
		t.Errorf("got %v, want upstream_session_lost", err)
	}
}

func TestFO30_AnswersAreBounded(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 2*limit)
	for name, write := range map[string]func(w http.ResponseWriter, id string){
		"JSON": func(w http.ResponseWriter, id string) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+id+`,"result":`+text(big)+`}`)
		},
		"endless": func(w http.ResponseWriter, _ string) {
			w.Header().Set("Content-Type", "application/json")
			for {
				if _, err := io.WriteString(w, big); err != nil {
					return
				}
			}
		},
		"event": func(w http.ResponseWriter, id string) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write(wire.AppendEvent(nil, "", []byte(`{"jsonrpc":"2.0","id":`+id+`,"result":`+text(big)+`}`)))
		},
		"gzip": func(w http.ResponseWriter, _ string) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			for range 1000 {
				if _, err := io.WriteString(z, big); err != nil {
					return
				}
			}
			_ = z.Close()
		},
	} {
		srv := &web{}
		srv.special = func(w http.ResponseWriter, _ *http.Request, m wire.Message) bool {
			if m.Method == "tools/call" {
				write(w, string(m.ID))
				return true
			}
			return false
		}
		b := open(t, options(), upstream.Config{Name: "s", URL: srv.start(t)})
		if _, err := call(t, b, "s", "echo", `{}`); err == nil || !strings.Contains(err.Error(), "response_too_large") {
			t.Errorf("%s: %v, want response_too_large", name, err)
		}
	}
}

func TestHTTPRefusals(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		write    func(w http.ResponseWriter)
		never    bool
		contains string
	}{
		"401":      {func(w http.ResponseWriter) { w.WriteHeader(401) }, true, "HTTP status 401"},
		"500":      {func(w http.ResponseWriter) { w.WriteHeader(500) }, false, "HTTP status 500"},
		"503":      {func(w http.ResponseWriter) { http.Error(w, "busy \x1b[2J", http.StatusServiceUnavailable) }, false, "HTTP status 503"},
		"not JSON": {func(w http.ResponseWriter) { _, _ = io.WriteString(w, "<html>") }, false, ""},
		"hangs up": {func(w http.ResponseWriter) { c, _, _ := w.(http.Hijacker).Hijack(); _ = c.Close() }, false, "may have taken effect"[:0]},
		"cut short": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "{")
		}, false, ""},
	} {
		var calls atomic.Int64
		srv := &web{modern: true}
		srv.special = func(w http.ResponseWriter, _ *http.Request, m wire.Message) bool {
			if m.Method != "tools/call" {
				return false
			}
			calls.Add(1)
			tt.write(w)
			return true
		}
		b := open(t, options(), upstream.Config{Name: "s", URL: srv.start(t)})
		job := backendtest.Job(tool("s", "x"), `{}`)
		job.Key = "with-a-key" // must not make the HTTP client repeat the request
		out, err := b.Run(t.Context(), job)
		if name == "not JSON" {
			if err != nil || !out.IsError {
				t.Errorf("%s: %s, %v", name, out.Content, err)
			}
		} else if err == nil || errors.Is(err, sallyport.ErrNotExecuted) != tt.never || !strings.Contains(err.Error(), tt.contains) || sallyport.CodeOf(err) == sallyport.Internal {
			t.Errorf("%s: %v", name, err)
		}
		if calls.Load() != 1 {
			t.Errorf("%s: the server saw %d calls", name, calls.Load())
		}
	}
	b := open(t, options())
	for _, u := range []string{"ftp://x/", "http://", "http://u:p@x/", "javascript:alert(1)", "/mcp"} {
		if b.Add(upstream.Config{Name: "s", URL: u}) == nil {
			t.Errorf("%s was accepted", u)
		}
	}
}
