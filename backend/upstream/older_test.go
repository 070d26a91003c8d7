package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/backendtest"
	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/test/npm"
	"sallyport.dev/sallyport/wire"
)

// older is a server of the official SDK that speaks HTTP+SSE.
func older() *mcp.SSEHandler {
	srv := mcp.NewServer(&mcp.Implementation{Name: "older", Version: "1"}, nil)
	add := func(name string, run func(ctx context.Context, r *mcp.CallToolRequest) string) {
		srv.AddTool(&mcp.Tool{Name: name, InputSchema: map[string]any{"type": "object"}}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: run(ctx, r)}}, IsError: name == "fail"}, nil
		})
	}
	add("echo", func(_ context.Context, r *mcp.CallToolRequest) string { return string(r.Params.Arguments) })
	add("fail", func(context.Context, *mcp.CallToolRequest) string { return "as asked" })
	add("hang", func(ctx context.Context, r *mcp.CallToolRequest) string {
		_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 1})
		<-ctx.Done()
		return "ended"
	})
	return mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return srv }, nil)
}

// startOlder serves until the backend is closed.
func startOlder(t testing.TB, h http.Handler) string {
	srv := httptest.NewServer(h)
	t.Cleanup(srv.CloseClientConnections)
	return srv.URL + "/sse"
}

func TestConformanceHTTPSSE(t *testing.T) {
	t.Parallel()
	backendtest.Run(t, backendtest.Subject{
		Open: func(t testing.TB) sallyport.Backend {
			return upstream.New([]upstream.Config{{Name: "s", URL: startOlder(t, older())}}, options())
		},
		Echo: tool("s", "echo"), Hang: tool("s", "hang"), Fail: tool("s", "fail"), Gone: tool("nowhere", "echo"),
	})
}

// It is found by asking in the newer ways first, and that is remembered; a server
// that was replaced by a newer one is found again.
func TestHTTPSSEIsFoundOnce(t *testing.T) {
	t.Parallel()
	var posts, gets, newer atomic.Int64
	newest, old := &web{}, older()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if newer.Load() > 0 {
			newest.ServeHTTP(w, r)
			return
		}
		switch {
		case r.Method == http.MethodGet:
			gets.Add(1)
		case r.URL.RawQuery == "":
			posts.Add(1)
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		old.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.CloseClientConnections)
	b := open(t, options(), upstream.Config{Name: "s", URL: srv.URL})
	mustText(t, b, "s", "echo", `{}`)
	if p, g := posts.Load(), gets.Load(); p != 2 || g != 1 {
		t.Errorf("%d POST and %d GET, want discover, initialize and the stream", p, g)
	}
	if st := status(t, b, "s"); st.Era != "legacy" || st.Isolation != "remote" || !strings.Contains(string(st.Info), "older") {
		t.Errorf("%+v", st)
	}
	srv.CloseClientConnections()
	await.That(t, "it is connected again", func() bool { return gets.Load() == 2 })
	mustText(t, b, "s", "echo", `{}`)
	if p := posts.Load(); p != 2 {
		t.Errorf("it was probed again: %d POST", p)
	}
	newer.Add(1)
	srv.CloseClientConnections()
	await.That(t, "the newer server is found", func() bool { return newest.inits.Load() == 1 })
	mustText(t, b, "s", "echo", `{}`)
}

// Messages, and the operator's credentials with them, go to the server's own
// origin only.
func TestHTTPSSEEndpointIsOfTheSameOrigin(t *testing.T) {
	t.Parallel()
	var leaked atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { leaked.Add(1) }))
	defer elsewhere.Close()
	for name, said := range map[string]string{
		"another origin": elsewhere.URL + "/messages", "without scheme": strings.TrimPrefix(elsewhere.URL, "http:") + "/messages",
		"another port": "http://127.0.0.1:1/messages", "another scheme": "https://HOST/messages", "userinfo": "http://user:pw@HOST/messages",
		"no address": "http://[::1", "another name": "http://localhost:PORT/messages", "opaque": "http:HOST/x",
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet {
				w.WriteHeader(http.StatusMethodNotAllowed)
				return
			}
			_, port, _ := strings.Cut(r.Host, ":")
			w.Header().Set("Content-Type", wire.TypeSSE)
			_, _ = w.Write(wire.AppendEvent(nil, "endpoint", []byte(strings.NewReplacer("HOST", r.Host, "PORT", port).Replace(said))))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}))
		o := options()
		o.Budget = 100 * time.Millisecond
		b := open(t, o, upstream.Config{Name: "s", URL: srv.URL + "/sse", Header: http.Header{"Authorization": {"Bearer x"}}})
		await.That(t, name+": refused in words", func() bool { return strings.Contains(status(t, b, "s").Error, "its endpoint") })
		if _, err := call(t, b, "s", "echo", `{}`); err == nil || !errors.Is(err, sallyport.ErrNotExecuted) {
			t.Errorf("%s: %v", name, err)
		}
		_ = b.Close()
		srv.CloseClientConnections()
		srv.Close()
	}
	if leaked.Load() != 0 {
		t.Error("something went to another origin")
	}
}

// What a server says to a message tells whether it may have acted.
func TestHTTPSSERefusals(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		write func(w http.ResponseWriter)
		never bool
		sends int64
		said  string
	}{
		"413":      {func(w http.ResponseWriter) { w.WriteHeader(413) }, true, 1, "HTTP status 413"},
		"500":      {func(w http.ResponseWriter) { w.WriteHeader(500) }, false, 1, "HTTP status 500"},
		"404":      {func(w http.ResponseWriter) { w.WriteHeader(404) }, true, 2, ""}, // once more, to the next session
		"hangs up": {func(w http.ResponseWriter) { c, _, _ := w.(http.Hijacker).Hijack(); _ = c.Close() }, false, 1, ""},
	} {
		var calls atomic.Int64
		old := older()
		url := startOlder(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if strings.Contains(string(body), "tools/call") {
				calls.Add(1)
				tt.write(w)
				return
			}
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			old.ServeHTTP(w, r)
		}))
		b := open(t, options(), upstream.Config{Name: "s", URL: url})
		ctx := t.Context()
		if name == "hangs up" { // the answer may still come on the stream
			late, expire := timed(t)
			ctx = late
			go func() {
				await.That(t, "the call arrives", func() bool { return calls.Load() > 0 })
				expire()
			}()
		}
		_, err := b.Run(ctx, backendtest.Job(tool("s", "echo"), `{}`))
		if err == nil || errors.Is(err, sallyport.ErrNotExecuted) != tt.never || !strings.Contains(err.Error(), tt.said) {
			t.Errorf("%s: %v", name, err)
		}
		if n := calls.Load(); n != tt.sends {
			t.Errorf("%s: sent %d times, want %d", name, n, tt.sends)
		}
	}
}

// A stream that is cut in mid-call leaves that call's outcome unknown, and the
// next one works.
func TestHTTPSSEStreamThatIsCut(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(older())
	t.Cleanup(srv.CloseClientConnections)
	b := open(t, options(), upstream.Config{Name: "s", URL: srv.URL})
	job := backendtest.Job(tool("s", "hang"), `{}`)
	job.Notify = func(sallyport.Notice) { srv.CloseClientConnections() }
	if _, err := b.Run(t.Context(), job); err == nil || errors.Is(err, sallyport.ErrNotExecuted) || !strings.Contains(err.Error(), "its stream ended") {
		t.Errorf("%v", err)
	}
	mustText(t, b, "s", "echo", `{"again":1}`)
}

// The reference server, with the SSE server of the TypeScript SDK.
func TestNpmEverythingSSE(t *testing.T) {
	t.Parallel()
	modules := npm.Find(t)
	port := freePort(t)
	cmd := exec.CommandContext(t.Context(), modules.Node, modules.Script("server-everything"), "sse")
	cmd.Env = append(cmd.Environ(), "PORT="+port)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	b := open(t, npmOptions(), upstream.Config{Name: "every", URL: fmt.Sprintf("http://127.0.0.1:%s/sse", port)})
	everything(t, b)
	if st := status(t, b, "every"); st.Era != "legacy" || !strings.HasPrefix(string(st.Info), "{") {
		t.Errorf("%+v", st)
	}
}

// A server may answer a request where it was posted, instead of on its stream: large
// answers, errors and notifications, too.
func TestHTTPSSEAnswersWhereItIsAsked(t *testing.T) {
	t.Parallel()
	inner := &web{special: func(w http.ResponseWriter, _ *http.Request, m wire.Message) bool {
		if wire.Path(m.Params, "arguments", "broken") == nil {
			return false
		}
		w.Header().Set("Content-Type", wire.TypeJSON)
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"content":[]}}`, m.ID)
		return true
	}}
	url := startOlder(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodGet:
			w.Header().Set("Content-Type", wire.TypeSSE)
			_, _ = io.WriteString(w, "event: endpoint\ndata: /messages?x=1\n\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case r.URL.RawQuery == "":
			w.WriteHeader(http.StatusMethodNotAllowed)
		default:
			r.Header.Set(wire.HeaderSessionID, fmt.Sprint("s", inner.session.Load()))
			inner.ServeHTTP(w, r)
		}
	}))
	b := open(t, options(), upstream.Config{Name: "s", URL: url})
	large := `{"x":"` + strings.Repeat("x", limit/2) + `"}`
	for _, args := range []string{`{}`, large, `{"n":1.0}`} {
		if got := mustText(t, b, "s", "echo", args); got != args {
			t.Errorf("got %.40s", got)
		}
	}
	if out, err := call(t, b, "s", "echo", `{"broken":true}`); err != nil || !out.IsError || !out.Unclear {
		t.Errorf("one that cannot be used: %s, %v", out.Content, err)
	}
	if n := inner.executed.Load(); n != 3 {
		t.Errorf("executed %d times", n)
	}
}
