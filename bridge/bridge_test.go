package bridge_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sallyport.dev/sallyport/bridge"
	"sallyport.dev/sallyport/wire"
)

// What a stateless request is about stands in a header: of a task, too.
func TestHeadersSayWhatARequestIsAbout(t *testing.T) {
	names := map[string]string{}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m, _ := wire.ParseMessage(body)
		names[r.Header.Get("Mcp-Method")] = r.Header.Get("Mcp-Name")
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(wire.AppendResult(nil, m.ID, []byte(`{"resultType":"complete"}`)))
	}))
	t.Cleanup(h.Close)
	b := &bridge.Bridge{URL: h.URL, Client: h.Client(), Token: func(context.Context) (string, error) { return "t", nil }}
	for method, params := range map[string]string{
		"tools/call": `"name":"a__b"`, "resources/read": `"uri":"sallyport:a/x:é"`, "tasks/get": `"taskId":"run_x.1"`, "tools/list": `"cursor":"c"`,
	} {
		var out bytes.Buffer
		line := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
		if err := b.Run(t.Context(), strings.NewReader(line+"\n"), &out); err != nil || !strings.Contains(out.String(), "complete") {
			t.Errorf("%s: %s, %v", method, out.String(), err)
		}
	}
	if names["tools/call"] != "a__b" || names["tasks/get"] != "run_x.1" || names["resources/read"] != wire.EncodeHeader("sallyport:a/x:é") || names["tools/list"] != "" {
		t.Errorf("%q", names)
	}
}
