package upstream_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/backendtest"
	"sallyport.dev/sallyport/backend/upstream"
)

// TestSDKServers speaks with servers of the official SDK in both eras: they
// check headers and metadata strictly.
func TestSDKServers(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{true, false} {
		t.Run(fmt.Sprint("modern=", modern), func(t *testing.T) {
			srv := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, &mcp.ServerOptions{Instructions: "Be kind."})
			srv.AddTool(&mcp.Tool{Name: "echo", InputSchema: map[string]any{"type": "object", "properties": map[string]any{"region": map[string]any{"type": "string", "x-mcp-header": "Region"}}}},
				func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					if token := r.Params.GetProgressToken(); token != nil {
						_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: 1})
					}
					return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
				})
			handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv }, &mcp.StreamableHTTPOptions{Stateless: modern})
			ts := httptest.NewServer(handler)
			t.Cleanup(ts.Close) // after the backend, which listens to it
			b := open(t, options(), upstream.Config{Name: "s", URL: ts.URL})
			tl := tool("s", "echo")
			tl.InputSchema = []byte(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`)
			job := backendtest.Job(tl, `{"n":9007199254740993,"region":"eu 1"}`)
			var notices []string
			job.Notify = func(n sallyport.Notice) { notices = append(notices, string(n.Params)) }
			out, err := b.Run(t.Context(), job)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := backendtest.Text(out); err != nil || got != `{"n":9007199254740993,"region":"eu 1"}` {
				t.Errorf("got %s, %v", got, err)
			}
			if len(notices) != 1 || !strings.Contains(notices[0], `"progress":1`) {
				t.Errorf("notices = %v", notices)
			}
			l, err := b.Tools(t.Context(), "s")
			if err != nil || len(l.Tools) != 1 || l.Instructions != "Be kind." {
				t.Errorf("listing = %+v, %v", l, err)
			}
			want := map[bool]string{true: "modern", false: "legacy"}[modern]
			if st := status(t, b, "s"); st.Era != want || !strings.Contains(string(st.Info), `"sdk"`) {
				t.Errorf("status = %+v", st)
			}
			if out, err := call(t, b, "s", "nothing", `{}`); err == nil && !out.IsError {
				t.Errorf("unknown tool: %s", out.Content)
			} else {
				t.Log(err)
			}
		})
	}
}
