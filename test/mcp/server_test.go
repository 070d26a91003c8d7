package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport/backend/upstream"
)

func writeFile(t testing.TB, dir, name, text string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A shop is a server of the official SDK that has one of everything.
type shop struct {
	*sdk.Server
	config upstream.Config

	mu   sync.Mutex
	read []string // addresses that were asked for
}

// newShop serves it over HTTP, of either era.
func newShop(t *testing.T, name string, modern bool) *shop {
	t.Helper()
	s := &shop{}
	s.Server = sdk.NewServer(&sdk.Implementation{Name: name, Version: "1"}, &sdk.ServerOptions{
		CompletionHandler:  s.complete,
		SubscribeHandler:   func(context.Context, *sdk.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *sdk.UnsubscribeRequest) error { return nil },
	})
	s.AddResource(&sdk.Resource{URI: "file:///readme", Name: "readme", MIMEType: "text/plain"}, s.give(name))
	s.AddResource(&sdk.Resource{URI: "file:///secret", Name: "secret"}, s.give(name))
	s.AddResource(&sdk.Resource{URI: "file:///pixel", Name: "pixel"}, s.give(name))
	s.AddResourceTemplate(&sdk.ResourceTemplate{URITemplate: "db://{table}", Name: "rows"}, s.give(name))
	s.AddPrompt(&sdk.Prompt{Name: "greet", Arguments: []*sdk.PromptArgument{{Name: "who", Required: true}}}, greet)
	s.AddTool(&sdk.Tool{Name: "link", InputSchema: map[string]any{"type": "object"}}, link)
	h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s.Server }, &sdk.StreamableHTTPOptions{Stateless: modern}))
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	s.config = upstream.Config{Name: name, URL: h.URL}
	return s
}

func (s *shop) give(name string) sdk.ResourceHandler {
	return func(_ context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		uri := r.Params.URI
		s.mu.Lock()
		s.read = append(s.read, uri)
		s.mu.Unlock()
		c := &sdk.ResourceContents{URI: uri, MIMEType: "text/plain", Text: name + " has " + uri + " postgres://app:tr0ub4dor-and-3@db/x"}
		switch {
		case uri == "db://nothing":
			return nil, sdk.ResourceNotFoundError(uri)
		case uri == "db://large":
			c.Text = strings.Repeat("0123456789", 300<<10)
		case uri == "db://blob":
			c = &sdk.ResourceContents{URI: uri, Blob: []byte(strings.Repeat("x ", 1<<10) + c.Text)}
		case uri == "file:///pixel":
			c = &sdk.ResourceContents{URI: uri, MIMEType: "image/png", Blob: []byte{0, 1, 2}}
		}
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{c}}, nil
	}
}

func (s *shop) asked() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.read, " ")
}

func (s *shop) complete(_ context.Context, r *sdk.CompleteRequest) (*sdk.CompleteResult, error) {
	ref := r.Params.Ref
	if ref.Name != "greet" && ref.URI != "db://{table}" {
		return nil, errors.New("unknown reference")
	}
	values := []string{r.Params.Argument.Value + "!"}
	if c := r.Params.Context; c != nil {
		values = append(values, fmt.Sprint(c.Arguments))
	}
	return &sdk.CompleteResult{Completion: sdk.CompletionResultDetails{Values: values, Total: 1}}, nil
}

func greet(_ context.Context, r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
	return &sdk.GetPromptResult{Description: "a greeting", Messages: []*sdk.PromptMessage{
		{Role: "user", Content: &sdk.TextContent{Text: "Hello " + r.Params.Arguments["who"]}},
		{Role: "assistant", Content: &sdk.ResourceLink{URI: "file:///readme", Name: "readme"}},
	}}, nil
}

func link(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	return &sdk.CallToolResult{Content: []sdk.Content{
		&sdk.ResourceLink{URI: "file:///readme", Name: "readme"},
		&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "db://users", Text: "ann"}},
	}}, nil
}
