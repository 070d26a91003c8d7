package mcp

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/test/bearer"
)

const password = "tr0ub4dor-and-3"

// leak is what a server says on one surface: its name, so that the test knows that
// it came through, and a secret.
func leak(surface string) string { return "<" + surface + "> postgres://app:" + password + "@db/x" }

// a tap keeps every byte that a client gets: bodies, streams and headers.
type tap struct {
	mu   sync.Mutex
	seen bytes.Buffer
	base http.RoundTripper
}

func (t *tap) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := t.base.RoundTrip(r)
	if err == nil {
		t.mu.Lock()
		_ = res.Header.Write(&t.seen) // a buffer takes everything
		t.mu.Unlock()
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.TeeReader(res.Body, t), res.Body}
	}
	return res, err
}

func (t *tap) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seen.Write(b)
}

func (t *tap) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seen.String()
}

var runs = regexp.MustCompile(`[A-Za-z0-9+/_-]{24,}={0,2}`)

// everything is what the client got, and what of it is text in base64.
func (t *tap) everything() string {
	s := t.String()
	var decoded strings.Builder
	for _, run := range runs.FindAllString(s, -1) {
		for _, how := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
			if b, err := how.DecodeString(run); err == nil {
				decoded.Write(b)
			}
		}
	}
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(s + decoded.String())
}

// leaky is a server that says a secret wherever it can say something.
func leaky(t *testing.T) *shop {
	s := newShop(t, "leaky", false)
	open := map[string]any{"type": "object"}
	s.AddTool(&sdk.Tool{Name: "all", Title: leak("tool title"), Description: leak("tool description"), InputSchema: map[string]any{
		"type": "object", "properties": map[string]any{"dsn": map[string]any{"type": "string", "default": leak("schema default"), "description": leak("argument description")}},
	}, Annotations: &sdk.ToolAnnotations{Title: leak("annotation")}}, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if token := r.Params.GetProgressToken(); token != nil {
			if err := r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Message: leak("progress"), Progress: 1}); err != nil {
				return nil, err
			}
		}
		return &sdk.CallToolResult{
			Meta: sdk.Meta{"x": leak("_meta"), leak("name in _meta"): 1}, StructuredContent: map[string]any{"a": leak("structured"), leak("name of a member"): []any{leak("in a list")}, "n": map[string]any{"password": "<member called password>" + password}},
			Content: []sdk.Content{
				&sdk.TextContent{Text: leak("text"), Annotations: &sdk.Annotations{Audience: []sdk.Role{sdk.Role(leak("audience"))}}},
				&sdk.ImageContent{Data: []byte(strings.Repeat(" ", 900) + leak("image")), MIMEType: "image/svg+xml; " + leak("media type")},
				&sdk.AudioContent{Data: []byte(leak("audio")), MIMEType: "audio/x"},
				&sdk.ResourceLink{URI: "file:///link-surface?dsn=postgres://app:" + password + "@db/x", Name: leak("file name"), Title: leak("link title"), Description: leak("link description")},
				&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "file:///embedded-surface#postgres://app:" + password + "@db/x", Text: leak("embedded text")}},
				&sdk.ResourceLink{URI: leak("no URI"), Name: "odd"}, // its address is written in base64
				&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "file:///z", Blob: []byte(leak("blob"))}},
			},
		}, nil
	})
	s.AddTool(&sdk.Tool{Name: "fails", InputSchema: open}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: leak("tool error")}}}, nil
	})
	s.AddTool(&sdk.Tool{Name: "breaks", InputSchema: open}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return nil, fmt.Errorf("trace: %w", errors.New(leak("rpc error")))
	})
	s.AddPrompt(&sdk.Prompt{Name: "leaks", Title: leak("prompt title"), Description: leak("prompt description"), Arguments: []*sdk.PromptArgument{{Name: "a", Description: leak("prompt argument")}}},
		func(context.Context, *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			return &sdk.GetPromptResult{Description: leak("got prompt"), Messages: []*sdk.PromptMessage{{Role: "user", Content: &sdk.TextContent{Text: leak("prompt message")}}}}, nil
		})
	s.AddResource(&sdk.Resource{URI: "file:///leak", Name: leak("resource name"), Title: leak("resource title"), Description: leak("resource description"), MIMEType: leak("resource type")}, s.leaks)
	s.AddResourceTemplate(&sdk.ResourceTemplate{URITemplate: "leak://{x}", Name: leak("template name"), Description: leak("template description")}, s.leaks)
	return s
}

func (s *shop) leaks(_ context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	if strings.Contains(r.Params.URI, "error") {
		return nil, errors.New(leak("reading error"))
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: r.Params.URI, MIMEType: leak("read type"), Text: leak("read text")}, {URI: r.Params.URI, Blob: []byte(leak("read blob"))}}}, nil
}

// TO-20: a secret leaves on no surface. Each surface is seen to come through.
func TestTO20SecretsOnForgottenSurfaces(t *testing.T) {
	t.Parallel()
	l := leaky(t)
	w := newWorld(t, setup{policies: `permit (principal, action, resource);`, servers: []upstream.Config{l.config}}).whole()
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		seen := &tap{base: bearer.Transport{Token: "ann"}}
		c, err := sdk.NewClient(&sdk.Implementation{Name: "t", Version: "1"}, &sdk.ClientOptions{ProgressNotificationHandler: func(context.Context, *sdk.ProgressNotificationClientRequest) {}}).Connect(t.Context(),
			&sdk.StreamableClientTransport{Endpoint: w.url + "/mcp", HTTPClient: &http.Client{Transport: seen}}, &sdk.ClientSessionOptions{ProtocolVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		_, _ = c.ListTools(ctx, nil) // what comes of each is in the tap
		_, _ = c.ListPrompts(ctx, nil)
		_, _ = c.ListResources(ctx, nil)
		_, _ = c.ListResourceTemplates(ctx, nil)
		for _, name := range []string{"all", "fails", "breaks", "none"} {
			p := &sdk.CallToolParams{Name: "leaky__" + name, Arguments: map[string]any{}}
			p.SetProgressToken("p")
			_, _ = c.CallTool(ctx, p)
		}
		_, _ = c.GetPrompt(ctx, &sdk.GetPromptParams{Name: "leaky__leaks"})
		_, _ = c.ReadResource(ctx, &sdk.ReadResourceParams{URI: "sallyport:leaky/file:///leak"})
		_, _ = c.ReadResource(ctx, &sdk.ReadResourceParams{URI: "sallyport:leaky/leak://error"})
		_ = c.Close()
		all := seen.everything()
		for _, surface := range []string{
			"tool title", "tool description", "schema default", "argument description", "annotation", "progress", "_meta", "name in _meta", "structured", "name of a member", "in a list", "text", "image", "media type", "audio", "link-surface", "file name",
			"link title", "link description", "embedded-surface", "embedded text", "blob", "tool error", "rpc error", "prompt title", "prompt description", "prompt argument", "got prompt", "prompt message", "resource name", "resource title",
			"resource description", "resource type", "template name", "template description", "read type", "read text", "read blob", "reading error",
		} {
			if !strings.Contains(all, "<"+surface+">") && (!strings.HasSuffix(surface, "-surface") || !strings.Contains(all, surface)) {
				t.Errorf("%s: nothing came on the surface %q", version, surface)
			}
		}
		if i := strings.Index(all, password); i >= 0 {
			t.Errorf("%s: the secret came out: %s", version, all[max(0, i-200):i+40])
		}
	}
}
