package mcp

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"sallyport.dev/sallyport/backend/upstream"
)

// every runs a test for each pair of eras: the client's and the server's.
func every(t *testing.T, test func(t *testing.T, version string, modern bool)) {
	for _, version := range []string{"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"} {
		for _, modern := range []bool{true, false} {
			t.Run(fmt.Sprintf("client %s, modern server %v", version, modern), func(t *testing.T) {
				t.Parallel() // they wait for each other's clocks, not for the processor
				test(t, version, modern)
			})
		}
	}
}

func rpcCode(err error) int64 {
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return e.Code
	}
	return 0
}

// Resources, templates, prompts and completions of two servers, read through the
// path, by a client and from servers of either era.
func TestReadingInAllPairs(t *testing.T) {
	t.Parallel()
	every(t, func(t *testing.T, version string, modern bool) {
		a, b := newShop(t, "a", modern), newShop(t, "b", modern)
		w := newWorld(t, setup{servers: []upstream.Config{a.config, b.config}}).whole()
		c := w.client("ann", "", version, nil)
		if got := resourcesOf(t, c); got != "sallyport:a/file:///pixel sallyport:a/file:///readme sallyport:a/file:///secret sallyport:b/file:///pixel sallyport:b/file:///readme sallyport:b/file:///secret" {
			t.Errorf("resources: %s", got)
		}
		templates, err := c.ListResourceTemplates(t.Context(), nil)
		if err != nil || len(templates.ResourceTemplates) != 2 || templates.ResourceTemplates[1].URITemplate != "sallyport:b/db://{table}" {
			t.Fatalf("templates: %+v, %v", templates, err)
		}
		readsBoth(t, c)
		if a.asked() != "file:///readme file:///pixel db://blob db://users db://nothing" || b.asked() != "file:///readme" {
			t.Errorf("a was asked %s, b %s", a.asked(), b.asked())
		}
		prompts(t, c)
		links(t, c)
		completes(t, c)
	})
}

func resourcesOf(t *testing.T, c *sdk.ClientSession) string {
	t.Helper()
	var uris []string
	for r, err := range c.Resources(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		uris = append(uris, r.URI)
	}
	return strings.Join(uris, " ")
}

func read(t *testing.T, c *sdk.ClientSession, uri string) (*sdk.ResourceContents, error) {
	t.Helper()
	res, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})
	if err != nil {
		return nil, err
	}
	if len(res.Contents) != 1 {
		t.Fatalf("%s: %d parts", uri, len(res.Contents))
	}
	return res.Contents[0], nil
}

func readsBoth(t *testing.T, c *sdk.ClientSession) {
	t.Helper()
	for _, server := range []string{"a", "b"} {
		uri := "sallyport:" + server + "/file:///readme"
		part, err := read(t, c, uri)
		if err != nil || part.URI != uri || !strings.HasPrefix(part.Text, server+" has file:///readme") || strings.Contains(part.Text, "tr0ub4dor") {
			t.Errorf("%s: %+v, %v", uri, part, err)
		}
	}
	if part, err := read(t, c, "sallyport:a/file:///pixel"); err != nil || string(part.Blob) != "\x00\x01\x02" {
		t.Errorf("a blob: %+v, %v", part, err)
	}
	if part, err := read(t, c, "sallyport:a/db://blob"); err != nil || len(part.Blob) < 2<<10 || strings.Contains(string(part.Blob), "tr0ub4dor") {
		t.Errorf("a text as a blob: %s, %v", part.Blob, err)
	}
	if part, err := read(t, c, "sallyport:a/db://users"); err != nil || part.URI != "sallyport:a/db://users" {
		t.Errorf("of a template: %+v, %v", part, err)
	}
	for _, uri := range []string{"sallyport:a/db://nothing", "sallyport:c/x:1", "file:///readme"} {
		if _, err := read(t, c, uri); rpcCode(err) != -32602 && rpcCode(err) != -32002 {
			t.Errorf("%s: %v", uri, err)
		}
	}
}

func prompts(t *testing.T, c *sdk.ClientSession) {
	t.Helper()
	list, err := c.ListPrompts(t.Context(), nil)
	if err != nil || len(list.Prompts) != 2 || list.Prompts[0].Name != "a__greet" || !list.Prompts[0].Arguments[0].Required {
		t.Fatalf("prompts: %+v, %v", list, err)
	}
	got, err := c.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "b__greet", Arguments: map[string]string{"who": "you"}})
	if err != nil || got.Description != "a greeting" || len(got.Messages) != 2 || got.Messages[1].Role != "assistant" {
		t.Fatalf("prompt: %+v, %v", got, err)
	}
	if text, ok := got.Messages[0].Content.(*sdk.TextContent); !ok || text.Text != "Hello you" {
		t.Errorf("%+v", got.Messages[0].Content)
	}
	if link, ok := got.Messages[1].Content.(*sdk.ResourceLink); !ok || link.URI != "sallyport:b/file:///readme" {
		t.Errorf("%+v", got.Messages[1].Content)
	}
	for _, p := range []*sdk.GetPromptParams{{Name: "b__greet"}, {Name: "b__nothing"}, {Name: "greet"}} {
		if _, err := c.GetPrompt(t.Context(), p); rpcCode(err) != -32602 {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

func links(t *testing.T, c *sdk.ClientSession) {
	t.Helper()
	res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "b__link"})
	if err != nil || len(res.Content) != 2 {
		t.Fatalf("%+v, %v", res, err)
	}
	if link, ok := res.Content[0].(*sdk.ResourceLink); !ok || link.URI != "sallyport:b/file:///readme" {
		t.Errorf("%+v", res.Content[0])
	}
	if r, ok := res.Content[1].(*sdk.EmbeddedResource); !ok || r.Resource.URI != "sallyport:b/db://users" {
		t.Errorf("%+v", res.Content[1])
	}
}

func completes(t *testing.T, c *sdk.ClientSession) {
	t.Helper()
	for _, ref := range []*sdk.CompleteReference{{Type: "ref/prompt", Name: "a__greet"}, {Type: "ref/resource", URI: "sallyport:b/db://{table}"}} {
		got, err := c.Complete(t.Context(), &sdk.CompleteParams{Ref: ref, Argument: sdk.CompleteParamsArgument{Name: "who", Value: "y"}, Context: &sdk.CompleteContext{Arguments: map[string]string{"k": "v"}}})
		if err != nil || strings.Join(got.Completion.Values, " ") != "y! map[k:v]" {
			t.Errorf("%+v: %+v, %v", ref, got, err)
		}
	}
	if _, err := c.Complete(t.Context(), &sdk.CompleteParams{Ref: &sdk.CompleteReference{Type: "ref/prompt", Name: "a__nothing"}, Argument: sdk.CompleteParamsArgument{Name: "who", Value: "y"}}); rpcCode(err) != -32602 {
		t.Errorf("an unknown prompt: %v", err)
	}
}

// A profile with bare names is as its one server is.
func TestBareProfile(t *testing.T) {
	t.Parallel()
	every(t, func(t *testing.T, version string, modern bool) {
		a, b := newShop(t, "a", modern), newShop(t, "b", modern)
		w := newWorld(t, setup{servers: []upstream.Config{a.config, b.config}, bare: "b"}).whole()
		c := w.client("ann", "/bare", version, nil)
		if got := resourcesOf(t, c); got != "file:///pixel file:///readme file:///secret" {
			t.Errorf("resources: %s", got)
		}
		if part, err := read(t, c, "db://users"); err != nil || part.URI != "db://users" || !strings.HasPrefix(part.Text, "b has") {
			t.Errorf("%+v, %v", part, err)
		}
		tools, err := c.ListTools(t.Context(), nil)
		if err != nil || len(tools.Tools) != 1 || tools.Tools[0].Name != "link" {
			t.Fatalf("tools: %+v, %v", tools, err)
		}
		res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "link"})
		if err != nil || res.Content[0].(*sdk.ResourceLink).URI != "file:///readme" {
			t.Errorf("%+v, %v", res, err)
		}
		if got, err := c.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "greet", Arguments: map[string]string{"who": "you"}}); err != nil || len(got.Messages) != 2 {
			t.Errorf("%+v, %v", got, err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, r := range w.entries { // the record knows the full names
			if !strings.HasPrefix(r.Target, "b__") && !strings.HasPrefix(r.Target, "sallyport:b/") {
				t.Errorf("recorded as %q", r.Target)
			}
		}
		if a.asked() != "" {
			t.Errorf("the other server was asked %s", a.asked())
		}
	})
}

// A resource that is larger than a result may be is cut, and says so.
func TestLargeResourceIsCut(t *testing.T) {
	t.Parallel()
	a := newShop(t, "a", true)
	w := newWorld(t, setup{servers: []upstream.Config{a.config}}).whole()
	part, err := read(t, w.client("ann", "", "2026-07-28", nil), "sallyport:a/db://large")
	if err != nil || len(part.Text) < 900<<10 || len(part.Text) > 1<<20 || !strings.HasSuffix(part.Text, " of 3072000 bytes]") || part.URI != "sallyport:a/db://large" {
		t.Errorf("%d bytes, %v", len(part.Text), err)
	}
}
