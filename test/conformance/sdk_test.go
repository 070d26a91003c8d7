package conformance

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport/test/bearer"
	"sallyport.dev/sallyport/test/stage"
)

// heard collects the progress that a client is told of.
type heard struct {
	mu       sync.Mutex
	progress []float64
	updated  []string // resources
}

func connect(t *testing.T, transport mcp.Transport, version string) (*mcp.ClientSession, *heard) {
	t.Helper()
	h := &heard{}
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.progress = append(h.progress, r.Params.Progress)
		},
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.updated = append(h.updated, r.Params.URI)
		},
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*stage.Patience)
	t.Cleanup(cancel)
	s, err := c.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, h
}

// The reference SDK's client, over HTTP and over the stdio bridge, in both eras.
func TestGoSDK(t *testing.T) {
	t.Parallel()
	g, _ := ledgered(t, "")
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		t.Run("HTTP/"+version, func(t *testing.T) {
			g.In(t)
			useSDK(t, &mcp.StreamableClientTransport{Endpoint: g.URL + "/mcp", HTTPClient: bearer.Client(g.Token(""))}, version)
		})
		t.Run("stdio/"+version, func(t *testing.T) {
			g.In(t)
			useSDK(t, &mcp.CommandTransport{Command: g.Command(context.Background(), "stdio")}, version)
		})
	}
	t.Run("NoToken", func(t *testing.T) {
		c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		if s, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: g.URL + "/mcp", MaxRetries: -1}, nil); err == nil {
			_ = s.Close()
			t.Error("a client without a token is let in")
		}
	})
}

func useSDK(t *testing.T, transport mcp.Transport, version string) {
	t.Helper()
	s, h := connect(t, transport, version)
	if got := s.InitializeResult().ProtocolVersion; got != version {
		t.Errorf("negotiated %s", got)
	}
	names := map[string]bool{}
	for tool, err := range s.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		names[tool.Name] = true
	}
	for _, want := range []string{"run_python", "run_javascript", "run_shell", "approval_result", "a__echo", "a__pay"} {
		if !names[want] {
			t.Errorf("%s is not listed: %v", want, names)
		}
	}
	python(t, s)
	if res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "a__echo", Arguments: map[string]any{"text": "Zürich"}}); err != nil || text(res) != `{"text":"Zürich"}` {
		t.Errorf("echo: %q, %v", text(res), err)
	}
	if _, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "a__nope"}); err == nil || !strings.Contains(err.Error(), "unknown tool") {
		t.Errorf("an unknown tool: %v", err)
	}
	p := &mcp.CallToolParams{Name: "a__wait", Arguments: map[string]any{"n": 200}}
	p.SetProgressToken("mine")
	if res, err := s.CallTool(t.Context(), p); err != nil || text(res) != "waited" {
		t.Errorf("wait: %q, %v", text(res), err)
	}
	until := time.Now().Add(stage.Patience) // the SDK tells of it when it has time
	for {
		h.mu.Lock()
		n := len(h.progress)
		h.mu.Unlock()
		if n >= 4 {
			break
		}
		if time.Now().After(until) {
			t.Errorf("progress: %v, want 1 2 3 4", h.progress)
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func python(t *testing.T, s *mcp.ClientSession) {
	t.Helper()
	res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "run_python", Arguments: map[string]any{"code": "import sys; print(6*7); sys.exit(3)"}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(res.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		ExitCode  int    `json:"exit_code"`
		Stdout    string `json:"stdout"`
		SandboxID string `json:"sandbox_id"`
	}
	if err := json.Unmarshal(b, &r); err != nil || r.ExitCode != 3 || r.Stdout != "42\n" || r.SandboxID == "" || !strings.Contains(text(res), "42") {
		t.Errorf("run_python: %s, %q, %v", b, text(res), err)
	}
	if id, _ := res.Meta["dev.sallyport/callId"].(string); !strings.HasPrefix(id, "call_") {
		t.Errorf("_meta: %v", res.Meta)
	}
}

func text(res *mcp.CallToolResult) string {
	if res == nil || len(res.Content) == 0 {
		return ""
	}
	c, _ := res.Content[0].(*mcp.TextContent)
	if c == nil {
		return ""
	}
	return c.Text
}

var _ = stage.Patience
