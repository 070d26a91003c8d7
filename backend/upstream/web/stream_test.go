package web_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/upstream/link"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/wire"
)

func TestStreamsOfManyKinds(t *testing.T) {
	t.Parallel()
	var resumed atomic.Int64
	srv := &server{answer: func(w http.ResponseWriter, r *http.Request, m wire.Message) {
		if r.Header.Get(wire.HeaderLastEventID) != "" {
			resumed.Add(1)
		}
		name, _ := wire.String(wire.Member(m.Params, "name"))
		w.Header().Set("Content-Type", wire.TypeSSE)
		send := func(name, data string) { _, _ = w.Write(wire.AppendEvent(nil, name, []byte(data))) }
		switch name {
		case "ask":
			send("", `{"jsonrpc":"2.0","id":5,"method":"ping"}`)
			send("", `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"mine"}}`)
			send("other", `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"x":"not a message event"}}`)
			send("", `{"jsonrpc":"2.0","id":"foreign","result":{}}`)
			send("", `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"x":"asked"}}`)
		case "cut":
			send("", `{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`)
		case "malformed":
			send("", `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{},"result":1}`)
		}
	}}
	l := newLink(t, false, srv, nil)
	var notices []string
	m, err := call(t.Context(), l, "ask", func(n sallyport.Notice) { notices = append(notices, n.Method) })
	if err != nil || string(m.Result) != `{"x":"asked"}` || len(notices) != 1 {
		t.Errorf("ask: %s, %v, notices %v", m.Result, err, notices)
	}
	await.That(t, "ping is answered", func() bool { return srv.got(`{"jsonrpc":"2.0","id":5,"result":{}}`) })
	_, err = call(t.Context(), l, "cut", unheard)
	if err == nil || !strings.Contains(err.Error(), "upstream_disconnected") || errors.Is(err, sallyport.ErrNotExecuted) || resumed.Load() != 0 {
		t.Errorf("cut: %v, %d resumes", err, resumed.Load())
	}
	if _, err := call(t.Context(), l, "malformed", unheard); !errors.Is(err, link.ErrMalformed) {
		t.Errorf("malformed: %v", err)
	}
}

func TestStreamIsResumed(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		var calls atomic.Int64
		srv := &server{answer: func(w http.ResponseWriter, r *http.Request, _ wire.Message) {
			w.Header().Set("Content-Type", wire.TypeSSE)
			if r.Method == http.MethodGet && r.Header.Get(wire.HeaderLastEventID) == "e1" {
				_, _ = w.Write(wire.AppendEvent(nil, "", []byte(`{"jsonrpc":"2.0","id":1,"result":{"x":"later"}}`)))
				return
			}
			calls.Add(1)
			_, _ = io.WriteString(w, "id: e1\nretry: 10\ndata:\n\n") // then hangs up
		}}
		m, err := call(t.Context(), newLink(t, modern, srv, nil), "x", unheard)
		if got := string(m.Result) == `{"x":"later"}`; got == modern || (err == nil) == modern || calls.Load() != 1 {
			t.Errorf("modern %t: got %s, %v after %d calls", modern, m.Result, err, calls.Load())
		}
	}
}

// Servers of 2025-03-26 may send several messages at once, as a body or in an event.
func TestAnswersInBatches(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{wire.TypeJSON, wire.TypeSSE} {
		srv := &server{answer: func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			out := fmt.Appendf(nil, ` [{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}},{"jsonrpc":"2.0","id":"other","result":{}},7,{"jsonrpc":"2.0","id":%s,"result":{"x":"one of several"}}]`, m.ID)
			if kind == wire.TypeSSE {
				out = wire.AppendEvent(nil, "", out)
			}
			w.Header().Set("Content-Type", kind)
			_, _ = w.Write(out)
		}}
		told := 0
		m, err := call(t.Context(), newLink(t, false, srv, nil), "x", func(sallyport.Notice) { told++ })
		if err != nil || string(m.Result) != `{"x":"one of several"}` || told != 1 {
			t.Errorf("%s: %s, %v, told %d times", kind, m.Result, err, told)
		}
	}
}
