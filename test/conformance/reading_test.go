package conformance

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport/test/bearer"
	"sallyport.dev/sallyport/test/stage"
)

// readEverything reads what the reference server holds, twice over: as a program
// and behind a URL. It speaks the earlier revisions only.
func readEverything(t *testing.T, g *stage.Gateway, version string) {
	c, heard := connect(t, &mcp.StreamableClientTransport{Endpoint: g.URL + "/mcp", HTTPClient: bearer.Client(g.Token(""))}, version)
	for _, server := range []string{"every", "web"} {
		prefix := "sallyport:" + server + "/"
		listed, text := 0, ""
		for r, err := range c.Resources(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(r.URI, prefix) {
				listed++
				text = r.URI
			}
		}
		if listed < 5 {
			t.Fatalf("%s: %d resources are listed", server, listed)
		}
		for _, uri := range []string{text, prefix + "demo://resource/dynamic/text/7"} {
			got, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
			if err != nil || len(got.Contents) != 1 || got.Contents[0].URI != uri || got.Contents[0].Text == "" {
				t.Errorf("%s: %+v, %v", uri, got, err)
			}
		}
		if got, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: prefix + "demo://resource/dynamic/blob/7"}); err != nil || len(got.Contents[0].Blob) == 0 {
			t.Errorf("a blob: %+v, %v", got, err)
		}
		if _, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: prefix + "demo://resource/none"}); err == nil {
			t.Error("what is not there was read")
		}
		name := server + "__completable-prompt"
		team, err := c.Complete(t.Context(), &mcp.CompleteParams{
			Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: name}, Argument: mcp.CompleteParamsArgument{Name: "name", Value: "D"},
			Context: &mcp.CompleteContext{Arguments: map[string]string{"department": "Sales"}},
		})
		if err != nil || strings.Join(team.Completion.Values, " ") != "David" {
			t.Fatalf("%+v, %v", team, err)
		}
		got, err := c.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: name, Arguments: map[string]string{"department": "Sales", "name": "David"}})
		if err != nil || len(got.Messages) != 1 || got.Messages[0].Content.(*mcp.TextContent).Text != "Please promote David to the head of the Sales team." {
			t.Errorf("%+v, %v", got, err)
		}
		got, err = c.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: server + "__resource-prompt", Arguments: map[string]string{"resourceType": "Text", "resourceId": "3"}})
		if err != nil || len(got.Messages) != 2 {
			t.Fatalf("%+v, %v", got, err)
		}
		embedded, ok := got.Messages[1].Content.(*mcp.EmbeddedResource)
		if !ok || !strings.HasPrefix(embedded.Resource.URI, prefix) {
			t.Errorf("embedded: %+v", got.Messages[1].Content)
		}
	}
	follows(t, g, c, heard)
}

// follows hears of the updates that the server pretends, as the address that the
// gateway gave out.
func follows(t *testing.T, g *stage.Gateway, c *mcp.ClientSession, heard *heard) {
	const uri = "sallyport:every/demo://resource/dynamic/text/1"
	if err := c.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
		t.Fatal(err)
	}
	g.Eventually(stage.Patience, "an update is told", func() error {
		heard.mu.Lock()
		n := len(heard.updated)
		heard.mu.Unlock()
		if n > 0 {
			return nil
		}
		_, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "every__toggle-subscriber-updates"})
		if err == nil {
			err = errors.New("nothing yet")
		}
		time.Sleep(500 * time.Millisecond)
		return err
	})
	heard.mu.Lock()
	defer heard.mu.Unlock()
	if heard.updated[0] != uri {
		t.Errorf("told of %s", heard.updated[0])
	}
}
