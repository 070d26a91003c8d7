package mcpserver_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport/mcpserver"
	"sallyport.dev/sallyport/test/bearer"
)

// notices collects what a client was told in mid-call.
type notices struct {
	mu       sync.Mutex
	progress []float64
	texts    []string
	logs     int
}

func connectSDK(t *testing.T, d *door, version string) (*sdk.ClientSession, *notices) {
	t.Helper()
	n := &notices{}
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.progress = append(n.progress, r.Params.Progress)
			n.texts = append(n.texts, r.Params.Message)
		},
		LoggingMessageHandler: func(context.Context, *sdk.LoggingMessageRequest) { //nolint:staticcheck // the earlier eras still log
			n.mu.Lock()
			defer n.mu.Unlock()
			n.logs++
		},
	})
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	transport := &sdk.StreamableClientTransport{Endpoint: d.base + "/mcp", HTTPClient: &http.Client{Transport: bearer.Transport{Token: "alice", Next: d.http.Client().Transport}}}
	s, err := client.Connect(ctx, transport, &sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, n
}

// The reference client lists, calls and hears progress, in every era.
func TestGoSDKClient(t *testing.T) {
	for _, version := range []string{"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"} {
		t.Run(version, func(t *testing.T) {
			d := newDoor(t, func(o *mcpserver.Options) { o.PageSize = 3 })
			s, heard := connectSDK(t, d, version)
			if got := s.InitializeResult().ProtocolVersion; got != version {
				t.Fatalf("negotiated %s", got)
			}
			ctx := context.Background()
			var names []string
			for tool, err := range s.Tools(ctx, nil) {
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, tool.Name)
			}
			if got := strings.Join(names, " "); got != "denied echo meta mirror pending progress slow" {
				t.Errorf("tools: %s", got)
			}
			callSDK(t, s)
			progressSDK(t, s, heard)
		})
	}
}

func callSDK(t *testing.T, s *sdk.ClientSession) {
	t.Helper()
	ctx := context.Background()
	res, err := s.CallTool(ctx, &sdk.CallToolParams{Name: "mirror", Arguments: map[string]any{"region": "Zürich", "deep": map[string]any{"n": 7}}})
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := json.Marshal(res.StructuredContent); string(got) != `{"deep":{"n":7},"region":"Zürich"}` {
		t.Errorf("structured content %s", got)
	}
	if res.Meta["dev.sallyport/callId"] != "call-1" {
		t.Errorf("_meta %v", res.Meta)
	}
	if res, err = s.CallTool(ctx, &sdk.CallToolParams{Name: "denied"}); err != nil || !res.IsError {
		t.Errorf("denied: %+v, %v", res, err)
	}
	if _, err = s.CallTool(ctx, &sdk.CallToolParams{Name: "nope"}); err == nil || !strings.Contains(err.Error(), "unknown tool nope") {
		t.Errorf("unknown tool: %v", err)
	}
	if _, err = s.CallTool(ctx, &sdk.CallToolParams{Name: "limited"}); err == nil {
		t.Error("rate limit: no error")
	}
	if _, err = s.CallTool(ctx, &sdk.CallToolParams{Name: "echo"}); err != nil {
		t.Errorf("the connection is lost after an error: %v", err)
	}
}

func progressSDK(t *testing.T, s *sdk.ClientSession, heard *notices) {
	t.Helper()
	params := &sdk.CallToolParams{Name: "progress"}
	params.SetProgressToken("mine")
	if _, err := s.CallTool(context.Background(), params); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(patience) // the client hands notifications over on its own time
	for {
		heard.mu.Lock()
		n := len(heard.progress)
		heard.mu.Unlock()
		if n == 4 || time.Now().After(deadline) {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	heard.mu.Lock()
	defer heard.mu.Unlock()
	if len(heard.progress) != 4 {
		t.Fatalf("heard %v", heard.progress)
	}
	for i := 1; i < len(heard.progress); i++ {
		if heard.progress[i] <= heard.progress[i-1] {
			t.Errorf("progress does not grow: %v", heard.progress)
		}
	}
}

// A reference client that cancels its call ends it at the gateway, too.
func TestGoSDKClientCancels(t *testing.T) {
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		t.Run(version, func(t *testing.T) {
			d := newDoor(t, nil)
			s, _ := connectSDK(t, d, version)
			ctx, cancel := context.WithCancel(context.Background())
			go func() { <-d.gw.started; cancel() }()
			if _, err := s.CallTool(ctx, &sdk.CallToolParams{Name: "slow"}); err == nil {
				t.Error("no error")
			}
			_ = d.cancelled()
		})
	}
}
