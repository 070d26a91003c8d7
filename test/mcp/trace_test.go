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
	state        [4]string // tracestate and baggage, in _meta and headers
	whole        string    // the last call
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
		for i, name := range []string{"tracestate", "baggage"} {
			s.state[i], _ = wire.String(wire.Path(m.Params, "_meta", name))
			s.state[i+2] = r.Header.Get(name)
		}
		s.mu.Unlock()
		result = `{"content":[],"resultType":"complete"}`
	}
	_, _ = w.Write(wire.AppendResult(nil, m.ID, []byte(result)))
}

// FO-44: whatever a caller says of its trace, by one rule it is in one trace from
// the caller to the server, which is told in one way and in the same words.
func TestFO44TraceOfACall(t *testing.T) {
	t.Parallel()
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
				meta += `,"traceparent":"` + tt.meta + `","tracestate":"v=of-meta","baggage":"k=of%20meta;p"`
			}
			extra := []string{"Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: w__note", "Tracestate: v=of-header", "Baggage: k=of-header"}
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
			want := [4]string{}
			switch {
			case trace.Valid(tt.meta):
				want = [4]string{"v=of-meta", "k=of%20meta;p", "v=of-meta", "k=of%20meta;p"}
			case trace.Valid(tt.header):
				want = [4]string{"v=of-header", "k=of-header", "v=of-header", "k=of-header"}
			}
			if srv.state != want {
				t.Errorf("tracestate and baggage are %q, want %q: they belong to the traceparent that counts", srv.state, want)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if r := w.entries[len(w.entries)-1]; r.Trace != srv.meta || r.TraceState != want[0] || r.Baggage != want[1] || strings.Contains(r.Trace, "CANARY") {
				t.Errorf("on record is %q, the server was told %q", r.Trace, srv.meta)
			}
		})
	}
}

// What a caller's context carries is no way around the arguments: it goes nowhere where it
// holds a secret, or is not what the specifications say; and of _meta, nothing else does.
func TestWhatATraceMayCarry(t *testing.T) {
	t.Parallel()
	srv := &witness{}
	h := httptest.NewServer(srv)
	t.Cleanup(h.Close)
	w := newWorld(t, setup{policies: permitAll, servers: []upstream.Config{{Name: "w", URL: h.URL}}}).whole()
	for carried, goes := range map[string]bool{
		`"tracestate":"a=1,b@c=2","baggage":"k=v"`: true, `"baggage":"k=AKIAIOSFODNN7EXAMPLQ"`: false, `"baggage":"k=AKIAIOSF%4FDNN7EXAMPLQ"`: false,
		`"tracestate":"a=AKIAIOSFODNN7EXAMPLQ"`: false, `"tracestate":"A=1"`: false, `"baggage":"no"`: false, `"baggage":7`: false, `"baggage":"k=v\u0000"`: false,
		`"vendor.example/x":"CANARY"`: false,
	} {
		meta := `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",` + carried
		res := w.send(t.Context(), "POST", "ann", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"w__note","arguments":{},"_meta":{`+meta+`}}}`,
			"Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: w__note")
		if b, _ := io.ReadAll(res.Body); res.StatusCode != 200 || strings.Contains(string(b), "error") {
			t.Fatalf("%s: %d %s", carried, res.StatusCode, b)
		}
		srv.mu.Lock()
		if got := srv.state != [4]string{}; got != goes || strings.Contains(srv.whole, "AKIA") || strings.Contains(srv.whole, "CANARY") {
			t.Errorf("%s: %q, %s", carried, srv.state, srv.whole)
		}
		srv.mu.Unlock()
	}
}
