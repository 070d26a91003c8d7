package oauthtest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"sallyport.dev/sallyport/wire"
)

// A Site is an MCP server of the legacy era that wants tokens. Its one tool,
// test-tool, says its arguments, and the header with which it was called.
type Site struct {
	Resource
	Also func(w http.ResponseWriter, r *http.Request) bool // answers before anything else does
}

// NewSite starts one at a path.
func NewSite(t testing.TB, as *Server, path string) *Site {
	s := &Site{}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	s.AS, s.URL = as, srv.URL+path
	return s
}

func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.Also != nil && s.Also(w, r) || s.Guard(w, r) {
		return
	}
	body, _ := io.ReadAll(r.Body)
	m, err := wire.ParseMessage(body)
	if r.Method != http.MethodPost || err != nil || !m.IsRequest() {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	reply := wire.Message{ID: m.ID}
	switch m.Method {
	case "initialize":
		reply.Result = []byte(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"site","version":"1"}}`)
	case "tools/list":
		reply.Result = []byte(`{"tools":[{"name":"test-tool","description":"Says its arguments.","inputSchema":{"type":"object"}}]}`)
	case "tools/call":
		reply.Result = fmt.Appendf(nil, `{"content":[{"type":"text","text":%q}]}`, fmt.Sprintf("%s with %s", wire.Member(m.Params, "arguments"), r.Header.Get("Authorization")))
	default:
		reply.Error = &wire.Error{Code: wire.CodeMethodNotFound, Message: "method not found"}
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(reply.Append(nil))
}
