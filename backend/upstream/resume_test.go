package upstream_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/wire"
)

// FO-11: an answer that was cut in the middle comes whole when it is asked for again,
// also where the server is not there at once.
func TestFO11_AnswerCutInTheMiddle(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]func(http.ResponseWriter){
		"at once":  nil,
		"503":      func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) },
		"429":      func(w http.ResponseWriter) { w.WriteHeader(http.StatusTooManyRequests) },
		"hangs up": func(w http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			var id atomic.Value
			var calls, gets atomic.Int64
			srv := &web{}
			srv.special = func(w http.ResponseWriter, _ *http.Request, m wire.Message) bool {
				if m.Method != "tools/call" {
					return false
				}
				calls.Add(1)
				id.Store(string(m.ID))
				w.Header().Set("Content-Type", wire.TypeSSE)
				_, _ = io.WriteString(w, "id: e1\nretry: 10\ndata:\n\nid: e2\ndata: {\"jsonrpc\":\"2.0\",\"id\":"+string(m.ID))
				return true
			}
			ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet || r.Header.Get("Last-Event-Id") == "" {
					srv.ServeHTTP(w, r)
					return
				}
				if gets.Add(1) == 1 && first != nil {
					first(w)
					return
				}
				w.Header().Set("Content-Type", wire.TypeSSE)
				if r.Header.Get("Last-Event-Id") == "e1" {
					_, _ = w.Write(wire.AppendEvent([]byte("id: e2\n"), "", fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id.Load(), text("later"))))
				}
			}))
			defer ts.Close()
			b := open(t, options(), upstream.Config{Name: "s", URL: ts.URL})
			if got := mustText(t, b, "s", "x", `{}`); got != "later" || calls.Load() != 1 {
				t.Errorf("got %q after %d calls", got, calls.Load())
			}
		})
	}
}

// FO-04: what changed while the stream of changes was away is listed, whether the
// server can go on where it was or not.
func TestFO04_ChangesInAGap(t *testing.T) {
	t.Parallel()
	flush := func(w http.ResponseWriter, text string) {
		w.Header().Set("Content-Type", wire.TypeSSE)
		_, _ = io.WriteString(w, text)
		_ = http.NewResponseController(w).Flush()
	}
	for name, id := range map[string]string{"with ids": "id: 7\ndata:\n\n", "without": ": hi\n\n"} {
		t.Run(name, func(t *testing.T) {
			var n atomic.Int32
			var resumed atomic.Value
			c, _, lists := standing(t, func(w http.ResponseWriter, r *http.Request) {
				if n.Add(1) == 1 {
					flush(w, id)
					time.Sleep(200 * time.Millisecond)
					return
				}
				resumed.Store(r.Header.Get("Last-Event-Id"))
				flush(w, ": hi\n\n")
				<-r.Context().Done()
			})
			o := options()
			o.Settle = 50 * time.Millisecond
			open(t, o, c)
			await.That(t, "it is listed again", func() bool { return lists.Load() >= 2 && resumed.Load() != nil })
			if want := map[bool]string{true: "7"}[name == "with ids"]; resumed.Load() != want {
				t.Errorf("resumed after %q, want %q", resumed.Load(), want)
			}
		})
	}
}

// FO-15: statuses that a proxy gives in passing end no stream for good.
func TestFO15_StreamThatIsRefusedForNow(t *testing.T) {
	t.Parallel()
	changed := ": hi\n\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n"
	for _, status := range []int{408, 425, 429, 502, 503, 504} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			var n atomic.Int32
			c, _, lists := standing(t, func(w http.ResponseWriter, r *http.Request) {
				if n.Add(1) == 1 {
					w.WriteHeader(status)
					return
				}
				w.Header().Set("Content-Type", wire.TypeSSE)
				_, _ = io.WriteString(w, changed)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			})
			open(t, options(), c)
			await.That(t, "a change is heard", func() bool { return lists.Load() >= 2 })
		})
	}
}

// FO-10: a server that was started again says so on the stream of changes too.
func TestFO10_StreamOfALostSession(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	c, _, lists := standing(t, func(w http.ResponseWriter, r *http.Request) {
		switch n.Add(1) {
		case 1:
			w.Header().Set("Content-Type", wire.TypeSSE)
			_ = http.NewResponseController(w).Flush()
		case 2:
			http.Error(w, "Session not found", http.StatusNotFound)
		default:
			w.Header().Set("Content-Type", wire.TypeSSE)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	})
	b := open(t, options(), c)
	await.That(t, "a new session, and what it has", func() bool { return lists.Load() >= 2 && n.Load() >= 3 })
	if st := status(t, b, "s"); st.Restarts != 1 {
		t.Errorf("status %+v", st)
	}
}

// FO-14: a server may hang up as often as it likes while a call runs, as one does that is
// polled, or is behind an idle cut: it is asked again until the answer is there.
func TestFO14_AnswerThatIsPolled(t *testing.T) {
	t.Parallel()
	const turns = 22
	var id atomic.Value
	var gets, executed atomic.Int64
	srv := &web{}
	srv.special = func(w http.ResponseWriter, _ *http.Request, m wire.Message) bool {
		if m.Method != "tools/call" {
			return false
		}
		executed.Add(1)
		id.Store(string(m.ID))
		w.Header().Set("Content-Type", wire.TypeSSE)
		_, _ = io.WriteString(w, "id: e0\nretry: 1\ndata:\n\n") // said once
		return true
	}
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.Header.Get("Last-Event-Id") == "" {
			srv.ServeHTTP(w, r)
			return
		}
		n := gets.Add(1)
		w.Header().Set("Content-Type", wire.TypeSSE)
		if want := fmt.Sprint("e", n-1); r.Header.Get("Last-Event-Id") != want {
			t.Errorf("asked for what is after %s, want %s", r.Header.Get("Last-Event-Id"), want)
		}
		if n < turns {
			_, _ = fmt.Fprintf(w, "id: e%d\ndata:\n\n", n)
			return
		}
		_, _ = w.Write(wire.AppendEvent(nil, "", fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id.Load(), text("at last"))))
	}))
	defer ts.Close()
	b := open(t, options(), upstream.Config{Name: "s", URL: ts.URL})
	if got := mustText(t, b, "s", "x", `{}`); got != "at last" || executed.Load() != 1 {
		t.Errorf("got %q, executed %d times", got, executed.Load())
	}
}
