package upstream_test

import (
	"encoding/json"
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

// standing is a legacy server over HTTP whose GET stream does what get says.
func standing(t *testing.T, get http.HandlerFunc) (c upstream.Config, gets, lists *atomic.Int32) {
	gets, lists = &atomic.Int32{}, &atomic.Int32{}
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			gets.Add(1)
			get(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		m, _ := wire.ParseMessage(body)
		result := ""
		switch m.Method {
		case "initialize":
			w.Header().Set("Mcp-Session-Id", "s1")
			result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"x","version":"1"}}`
		case "tools/list":
			result = fmt.Sprintf(`{"tools":[{"name":"t%d","inputSchema":{"type":"object"}}]}`, lists.Add(1))
		case "tools/call":
			result = `{"content":[{"type":"text","text":"done"}]}`
		}
		w.Header().Set("Content-Type", "application/json")
		switch {
		case m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
		case result == "":
			_, _ = w.Write(wire.AppendError(nil, m.ID, &wire.Error{Code: wire.CodeMethodNotFound, Message: "no"}))
		default:
			_, _ = w.Write(wire.AppendResult(nil, m.ID, json.RawMessage(result)))
		}
	}))
	t.Cleanup(func() { ts.CloseClientConnections(); ts.Close() })
	return upstream.Config{Name: "s", URL: ts.URL}, gets, lists
}

// FO-15: whatever the standing stream of a server does, calls go on.
func TestFO15StandingStreamsOfServers(t *testing.T) {
	t.Parallel()
	say := func(w http.ResponseWriter, text string) {
		w.Header().Set("Content-Type", wire.TypeSSE)
		_, _ = io.WriteString(w, text)
		_ = http.NewResponseController(w).Flush()
	}
	changed := "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n"
	for name, tt := range map[string]struct {
		get      http.HandlerFunc
		mostGets int32
		hears    bool
	}{
		"405":            {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) }, 1, false},
		"not a stream":   {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }, 1, false},
		"closes at once": {func(w http.ResponseWriter, _ *http.Request) { say(w, "") }, 3, false},
		"500":            {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }, 3, false},
		"silent":         {func(w http.ResponseWriter, r *http.Request) { say(w, ""); <-r.Context().Done() }, 1, false},
		"not a byte":     {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 1, false},
		"speaks":         {func(w http.ResponseWriter, r *http.Request) { say(w, ": hi\n\n"+changed); <-r.Context().Done() }, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, gets, lists := standing(t, tt.get)
			begun := time.Now()
			b := open(t, options(), c)
			for range 5 {
				if got := mustText(t, b, "s", "t", `{}`); got != "done" {
					t.Errorf("a call: %q", got)
				}
			}
			await.That(t, "it listens, and hears what there is to hear", func() bool { return gets.Load() > 0 && (!tt.hears || lists.Load() >= 2) })
			time.Sleep(300 * time.Millisecond)
			if n := gets.Load(); n > tt.mostGets+int32(time.Since(begun)/time.Second) {
				t.Errorf("the stream was opened %d times", n)
			}
			if !tt.hears && lists.Load() != 1 {
				t.Errorf("listed %d times", lists.Load())
			}
			if st := status(t, b, "s"); st.State != upstream.StateReady || st.Restarts != 0 {
				t.Errorf("status %+v", st)
			}
		})
	}
}
