package upstream_test

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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

// web is a streamable HTTP server for tests. Its zero value speaks the legacy
// era with sessions and answers in JSON.
type web struct {
	modern, sse bool
	lost        string // what an unknown session is told: "404", or the body of a 400
	forever     bool   // no session is ever known
	session     atomic.Int64
	inits       atomic.Int64
	executed    atomic.Int64

	mu       sync.Mutex
	requests []*http.Request // headers of tools/call, and of what is not a request
	bodies   []string
	special  func(w http.ResponseWriter, r *http.Request, m wire.Message) bool
}

func (s *web) start(t testing.TB) string {
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return srv.URL + "/mcp"
}

func (s *web) record(r *http.Request, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests, s.bodies = append(s.requests, r), append(s.bodies, body)
}

func (s *web) recorded() ([]*http.Request, []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*http.Request(nil), s.requests...), append([]string(nil), s.bodies...)
}

func (s *web) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	m, err := wire.ParseMessage(body)
	if r.Method != http.MethodPost || err != nil || !m.IsRequest() {
		s.record(r, string(body))
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if s.special != nil && s.special(w, r, m) {
		return
	}
	if !s.modern && m.Method != "initialize" && m.Method != "server/discover" {
		if s.forever || r.Header.Get(wire.HeaderSessionID) != fmt.Sprint("s", s.session.Load()) {
			if s.lost != "" && s.lost != "404" {
				kind := "application/json"
				if s.lost[0] != '{' {
					kind = "text/plain; charset=utf-8"
				}
				w.Header().Set("Content-Type", kind)
				w.WriteHeader(400)
				_, _ = io.WriteString(w, s.lost)
				return
			}
			http.Error(w, "Session not found", 404)
			return
		}
	}
	if m.Method == "tools/call" {
		s.record(r, string(body))
	}
	s.respond(w, r, m)
}

func (s *web) respond(w http.ResponseWriter, r *http.Request, m wire.Message) {
	name, _ := wire.String(wire.Member(m.Params, "name"))
	reply := wire.Message{ID: m.ID}
	switch {
	case m.Method == "server/discover" && s.modern:
		reply.Result = []byte(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`)
	case m.Method == "initialize" && !s.modern:
		s.inits.Add(1)
		w.Header().Set(wire.HeaderSessionID, fmt.Sprint("s", s.session.Add(1)))
		reply.Result = []byte(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"web","version":"1"}}`)
	case m.Method == "tools/list":
		reply.Result = []byte(`{"tools":[` + echoTool + `,{"name":"bad","inputSchema":{"type":"object","properties":{"a":{"type":"number","x-mcp-header":"A"}}}}]}`)
	case m.Method == "tools/call" && name == "hang":
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write(wire.AppendEvent(nil, "", fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, m.ID)))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	case m.Method == "tools/call" && name == "fail":
		reply.Result = []byte(`{"content":[{"type":"text","text":"as asked"}],"isError":true}`)
	case m.Method == "tools/call":
		s.executed.Add(1)
		reply.Result = []byte(text(string(wire.Member(m.Params, "arguments"))))
	case !s.modern && m.Method == "server/discover":
		reply.Error = &wire.Error{Code: -32000, Message: "Server not initialized"}
	default:
		reply.Error = &wire.Error{Code: wire.CodeMethodNotFound, Message: "method not found"}
	}
	out := reply.Append(nil)
	if s.sse {
		w.Header().Set("Content-Type", "text/event-stream")
		out = wire.AppendEvent(wire.AppendComment(nil, "hello"), "message", out)
	} else {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
	}
	if reply.Error != nil && !s.sse {
		w.WriteHeader(400)
	}
	_, _ = w.Write(out)
}

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
}

// A server that dies before it has the whole message cannot have acted on it.
func TestCutRequestIsNotExecuted(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength < 1<<20 {
			(&web{modern: true}).ServeHTTP(w, r)
			return
		}
		c, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = c.(*net.TCPConn).SetLinger(0) // a reset, as when a process is killed
			_ = c.Close()
		}
	}))
	defer srv.Close()
	b := open(t, options(), upstream.Config{Name: "s", URL: srv.URL + "/mcp"})
	args := `{"text":"` + strings.Repeat("x", 1<<23) + `"}`
	if _, err := call(t, b, "s", "echo", args); !errors.Is(err, sallyport.ErrNotExecuted) {
		t.Errorf("got %v, want that nothing ran", err)
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{true, false} {
		srv := &web{modern: modern}
		c := upstream.Config{Name: "s", URL: srv.start(t), Header: http.Header{"authorization": {"Bearer upstream-secret"}}}
		b := open(t, options(), c)
		tl := tool("s", "écho")
		tl.Digest = "d"
		tl.InputSchema = []byte(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"n":{"properties":{"deep":{"type":"integer","x-mcp-header":"Deep"}}},"none":{"type":"boolean","x-mcp-header":"None"}}}`)
		job := backendtest.Job(tl, `{"n":{"deep":42},"none":null,"region":"é"}`)
		job.Key, job.Who.TokenID = "key-1", "callers-token"
		for range 2 {
			if _, err := b.Run(t.Context(), job); err != nil {
				t.Fatal(err)
			}
		}
		requests, bodies := srv.recorded()
		n := len(requests) - 1
		for requests[n].Method != http.MethodPost { // the listening stream of the session opens when it likes
			n--
		}
		last := requests[n]
		want := map[string]string{
			"Authorization": "Bearer upstream-secret", "Idempotency-Key": "key-1", "Accept": "application/json, text/event-stream",
			"Mcp-Protocol-Version": "2025-11-25", "Mcp-Session-Id": "s1", "Mcp-Method": "", "Mcp-Name": "", "Mcp-Param-Region": "",
		}
		if modern {
			want["Mcp-Protocol-Version"], want["Mcp-Session-Id"], want["Mcp-Method"] = "2026-07-28", "", "tools/call"
			want["Mcp-Name"], want["Mcp-Param-Region"], want["Mcp-Param-Deep"] = "=?base64?w6ljaG8=?=", "=?base64?w6k=?=", "42"
		}
		for name, value := range want {
			if got := last.Header.Get(name); got != value {
				t.Errorf("modern %t: %s = %q, want %q", modern, name, got, value)
			}
		}
		if _, there := last.Header["Mcp-Param-None"]; there {
			t.Error("null argument has a header")
		}
		if body := bodies[n]; strings.Contains(body, "callers-token") || !strings.Contains(body, `"arguments":{"n":{"deep":42},"none":null,"region":"é"}`) {
			t.Errorf("body = %s", body)
		}
		l, err := b.Tools(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		if wantTools := map[bool]int{true: 1, false: 2}[modern]; len(l.Tools) != wantTools || len(l.Warnings) != 2-wantTools {
			t.Errorf("modern %t: %d tools, warnings %v", modern, len(l.Tools), l.Warnings)
		}
	}
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	other := &web{}
	elsewhere := other.start(t)
	for name, tt := range map[string]struct {
		to   string
		code int
		ok   bool
	}{
		"same origin": {"/mcp/", 307, true}, "other origin": {elsewhere, 307, false}, "as GET": {"/mcp/", 302, false},
		"with password": {"http://u:p@HOST/mcp/", 308, false},
	} {
		srv := &web{}
		srv.special = func(w http.ResponseWriter, r *http.Request, _ wire.Message) bool {
			if r.URL.Path != "/mcp" {
				return false
			}
			w.Header().Set("Location", strings.Replace(tt.to, "HOST", r.Host, 1))
			w.WriteHeader(tt.code)
			return true
		}
		o := options()
		if !tt.ok {
			o.Budget = 100 * time.Millisecond
		}
		b := open(t, o, upstream.Config{Name: "s", URL: srv.start(t), Header: http.Header{"Authorization": {"Bearer x"}}})
		await.That(t, name+": it was tried", func() bool { s := status(t, b, "s"); return s.State == upstream.StateReady || s.Error != "" })
		_, err := call(t, b, "s", "echo", `{}`)
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && !strings.Contains(err.Error(), fmt.Sprint("HTTP status ", tt.code)) {
			t.Errorf("%s: unclear: %v", name, err)
		}
	}
	if requests, _ := other.recorded(); len(requests) != 0 || other.inits.Load() != 0 {
		t.Error("a redirect led to another origin")
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

func TestStreamsOfManyKinds(t *testing.T) {
	t.Parallel()
	srv := &web{}
	var resumed atomic.Int64
	srv.special = func(w http.ResponseWriter, _ *http.Request, m wire.Message) bool {
		if m.Method != "tools/call" {
			return false
		}
		id, _ := wire.String(wire.Path(m.Params, "arguments", "do"))
		w.Header().Set("Content-Type", "text/event-stream")
		send := func(name, data string) { _, _ = w.Write(wire.AppendEvent(nil, name, []byte(data))) }
		switch id {
		case "ask":
			send("", `{"jsonrpc":"2.0","id":5,"method":"ping"}`)
			send("", `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"mine"}}`)
			send("other", `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"content":[],"x":"not a message event"}}`)
			send("", `{"jsonrpc":"2.0","id":"foreign","result":{"content":[]}}`)
			send("", `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":`+text("asked")+`}`)
		case "cut":
			send("", `{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`)
		case "malformed":
			send("", `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"content":[]},"result":1}`)
		}
		return true
	}
	inner := http.Handler(srv)
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(wire.HeaderLastEventID) != "" {
			resumed.Add(1)
		}
		inner.ServeHTTP(w, r)
	}))
	defer ts.Close()
	b := open(t, options(), upstream.Config{Name: "s", URL: ts.URL})
	job := backendtest.Job(tool("s", "x"), `{"do":"ask"}`)
	var notices []string
	job.Notify = func(n sallyport.Notice) { notices = append(notices, n.Method) }
	out, err := b.Run(t.Context(), job)
	if got, _ := backendtest.Text(out); err != nil || got != "asked" || len(notices) != 1 {
		t.Errorf("ask: %s, %v, notices %v", out.Content, err, notices)
	}
	await.That(t, "ping is answered", func() bool {
		_, bodies := srv.recorded()
		return strings.Contains(strings.Join(bodies, "\n"), `{"jsonrpc":"2.0","id":5,"result":{}}`)
	})
	_, err = call(t, b, "s", "x", `{"do":"cut"}`)
	if err == nil || !strings.Contains(err.Error(), "upstream_disconnected") || errors.Is(err, sallyport.ErrNotExecuted) || resumed.Load() != 0 {
		t.Errorf("cut: %v, %d resumes", err, resumed.Load())
	}
	if out, err := call(t, b, "s", "x", `{"do":"malformed"}`); err != nil || !out.IsError {
		t.Errorf("malformed: %s, %v", out.Content, err)
	}
}

func TestStreamIsResumed(t *testing.T) {
	t.Parallel()
	var id atomic.Value
	var calls atomic.Int64
	srv := &web{}
	srv.special = func(w http.ResponseWriter, _ *http.Request, m wire.Message) bool {
		if m.Method != "tools/call" {
			return false
		}
		calls.Add(1)
		id.Store(string(m.ID))
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "id: e1\nretry: 10\ndata:\n\n") // then hangs up
		return true
	}
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.Header.Get("Last-Event-Id") == "e1" {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write(wire.AppendEvent(nil, "", fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id.Load(), text("later"))))
			return
		}
		srv.ServeHTTP(w, r)
	}))
	defer ts.Close()
	b := open(t, options(), upstream.Config{Name: "s", URL: ts.URL})
	if got := mustText(t, b, "s", "x", `{}`); got != "later" || calls.Load() != 1 {
		t.Errorf("got %q after %d calls", got, calls.Load())
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

func TestHTTPCancelIsTold(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{true, false} {
		srv := &web{modern: modern}
		ended := make(chan struct{}, 1)
		srv.special = func(w http.ResponseWriter, r *http.Request, m wire.Message) bool {
			if m.Method == "tools/call" {
				go func() { <-r.Context().Done(); ended <- struct{}{} }()
			}
			return false
		}
		b := open(t, options(), upstream.Config{Name: "s", URL: srv.start(t)})
		ctx, cancel := context.WithCancel(t.Context())
		job := backendtest.Job(tool("s", "hang"), `{}`)
		job.Notify = func(sallyport.Notice) { cancel() }
		if _, err := b.Run(ctx, job); err != context.Canceled {
			t.Errorf("Run = %v", err)
		}
		select {
		case <-ended:
		case <-time.After(await.Patience):
			t.Error("the stream was not hung up")
		}
		if !modern {
			await.That(t, "notifications/cancelled arrives", func() bool {
				_, bodies := srv.recorded()
				return strings.Contains(strings.Join(bodies, "\n"), "notifications/cancelled")
			})
		}
	}
}
