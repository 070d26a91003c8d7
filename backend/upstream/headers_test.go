package upstream_test

import (
	"net/http"
	"strings"
	"testing"

	"sallyport.dev/sallyport/backend/backendtest"
	"sallyport.dev/sallyport/backend/upstream"
)

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
