package mcp

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/trace"
	"sallyport.dev/sallyport/wire"
)

// A witness is a server that notes which trace each call says it belongs to.
type witness struct {
	mu           sync.Mutex
	meta, header string
	whole        string // the last call
}

func (s *witness) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	m, _ := wire.ParseMessage(body)
	w.Header().Set("Content-Type", wire.TypeJSON)
	result := `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`
	switch m.Method {
	case "tools/list":
		result = `{"tools":[{"name":"note","inputSchema":{"type":"object"}}],"ttlMs":0,"cacheScope":"private","resultType":"complete"}`
	case "tools/call":
		s.mu.Lock()
		s.meta, _ = wire.String(wire.Path(m.Params, "_meta", "traceparent"))
		s.header, s.whole = r.Header.Get("Traceparent"), string(body)
		s.mu.Unlock()
		result = `{"content":[],"resultType":"complete"}`
	}
	_, _ = w.Write(wire.AppendResult(nil, m.ID, []byte(result)))
}

// FO-44: whatever a caller says of its trace, by one rule it is in one trace from
// the caller to the server, which is told in one way and in the same words.
func TestFO44TraceOfACall(t *testing.T) {
	srv := &witness{}
	h := httptest.NewServer(srv)
	t.Cleanup(h.Close)
	w := newWorld(t, setup{policies: permitAll, servers: []upstream.Config{{Name: "w", URL: h.URL}}}).whole()
	const (
		one = "4bf92f3577b34da6a3ce929d0e0e4736"
		two = "0af7651916cd43dd8448eb211c80319c"
	)
	parent := func(id string) string { return "00-" + id + "-00f067aa0ba902b7-01" }
	zero := parent(strings.Repeat("0", 32))
	for _, tt := range []struct{ name, meta, header, want string }{
		{"neither", "", "", ""},
		{"header", "", parent(one), one},
		{"_meta", parent(one), "", one},
		{"equal", parent(one), parent(one), one},
		{"different: _meta counts", parent(one), parent(two), one},
		{"_meta malformed", "00-xyz", parent(two), two},
		{"_meta all zero", zero, parent(two), two},
		{"both malformed", "x", "y", ""},
		{"both all zero", zero, zero, ""},
		{"a version to come", "cc-" + one + "-00f067aa0ba902b7-01-more", "", ""},
		{"upper case", strings.ToUpper(parent(one)), "", ""},
		{"all-zero span", "00-" + one + "-0000000000000000-01", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			meta := `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`
			if tt.meta != "" {
				meta += `,"traceparent":"` + tt.meta + `","tracestate":"v=CANARY-STATE","baggage":"k=CANARY-BAGGAGE"`
			}
			extra := []string{"Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: w__note", "Tracestate: v=CANARY-STATE"}
			if tt.header != "" {
				extra = append(extra, "Traceparent: "+tt.header)
			}
			res := w.send(t.Context(), "POST", "ann", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"w__note","arguments":{"a":"CANARY-ARGUMENT"},"_meta":{`+meta+`}}}`, extra...)
			if b, _ := io.ReadAll(res.Body); res.StatusCode != 200 || strings.Contains(string(b), "error") {
				t.Fatalf("%d %s", res.StatusCode, b)
			}
			srv.mu.Lock()
			defer srv.mu.Unlock()
			if !trace.Valid(srv.meta) || srv.header != srv.meta {
				t.Fatalf("the server is told %q in _meta and %q in the header", srv.meta, srv.header)
			}
			if got := srv.meta[3:35]; tt.want != "" && got != tt.want || tt.want == "" && (got == one || got == two) {
				t.Errorf("trace %s, want %q", got, tt.want)
			}
			if tt.want != "" && srv.meta[36:52] == "00f067aa0ba902b7" {
				t.Error("the gateway is no span of its own")
			}
			if strings.Contains(srv.whole, "CANARY-STATE") || strings.Contains(srv.whole, "CANARY-BAGGAGE") {
				t.Errorf("what a caller's context carries goes on: %s", srv.whole)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if r := w.entries[len(w.entries)-1]; r.Trace != srv.meta || strings.Contains(r.Trace, "CANARY") {
				t.Errorf("on record is %q, the server was told %q", r.Trace, srv.meta)
			}
		})
	}
}
