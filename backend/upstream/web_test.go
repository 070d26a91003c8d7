package upstream_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

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
