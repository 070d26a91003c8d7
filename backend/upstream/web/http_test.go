package web_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/upstream/link"
	"sallyport.dev/sallyport/backend/upstream/status"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/wire"
)

func done(w http.ResponseWriter, _ *http.Request, m wire.Message) {
	w.Header().Set("Content-Type", wire.TypeJSON)
	_, _ = w.Write(wire.AppendResult(nil, m.ID, []byte(`{}`)))
}

// A server that dies before it has the whole message cannot have acted on it.
func TestCutRequestIsNotExecuted(t *testing.T) {
	t.Parallel()
	l := newLink(t, true, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = c.(*net.TCPConn).SetLinger(0) // a reset, as when a process is killed
			_ = c.Close()
		}
	}), nil)
	_, err := l.Exchange(t.Context(), link.Request{
		ID: 1, Method: "tools/call", Params: []byte(`{"text":"` + strings.Repeat("x", 1<<23) + `"}`), Notify: unheard,
	})
	if !errors.Is(err, sallyport.ErrNotExecuted) {
		t.Errorf("got %v, want that nothing ran", err)
	}
}

// Where nothing listens, nothing ran, and the link is over.
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	ts := httptest.NewServer(http.NotFoundHandler())
	ts.Close()
	l := at(ts.URL, true, nil)
	for range 2 {
		_, err := call(t.Context(), l, "x", unheard)
		if !errors.Is(err, sallyport.ErrNotExecuted) || !errors.Is(err, link.ErrGone) || !errors.Is(err, link.ErrNoConnection) || sallyport.CodeOf(err) != sallyport.Unavailable {
			t.Errorf("got %v", err)
		}
	}
	select {
	case <-l.Done():
	default:
		t.Error("the link goes on")
	}
	if err := l.Err(); !errors.Is(err, link.ErrNoConnection) || !strings.Contains(err.Error(), `server "s": no connection`) {
		t.Errorf("it is over for %v", err)
	}
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	var led atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { led.Add(1) }))
	defer elsewhere.Close()
	for name, tt := range map[string]struct {
		to   string
		code int
		ok   bool
	}{
		"same origin": {"/mcp/", 307, true}, "other origin": {elsewhere.URL, 307, false}, "as GET": {"/mcp/", 302, false},
		"with password": {"http://u:p@HOST/mcp/", 308, false}, "without end": {"/mcp", 307, false},
	} {
		srv := &server{answer: func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			if r.URL.Path != "/mcp" {
				done(w, r, m)
				return
			}
			w.Header().Set("Location", strings.Replace(tt.to, "HOST", r.Host, 1))
			w.WriteHeader(tt.code)
		}}
		_, err := call(t.Context(), newLink(t, false, srv, http.Header{"Authorization": {"Bearer x"}}), "x", unheard)
		if e, refused := errors.AsType[*status.Error](err); refused == tt.ok || (err == nil) != tt.ok || refused && e.Code != tt.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	if led.Load() != 0 {
		t.Error("a redirect led to another origin")
	}
}

func TestCancelIsTold(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{true, false} {
		ended := make(chan struct{}, 1)
		srv := &server{answer: func(w http.ResponseWriter, r *http.Request, _ wire.Message) {
			w.Header().Set("Content-Type", wire.TypeSSE)
			_, _ = w.Write(wire.AppendEvent(nil, "", []byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`)))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			ended <- struct{}{}
		}}
		ctx, cancel := context.WithCancel(t.Context())
		l := newLink(t, modern, srv, nil)
		if _, err := call(ctx, l, "hang", func(sallyport.Notice) { cancel() }); err != context.Canceled {
			t.Errorf("modern %t: %v", modern, err)
		}
		select {
		case <-ended:
		case <-time.After(await.Patience):
			t.Error("the stream was not hung up")
		}
		if modern {
			continue // hanging up says it
		}
		await.That(t, "notifications/cancelled arrives", func() bool { return srv.got("notifications/cancelled") })
	}
}
