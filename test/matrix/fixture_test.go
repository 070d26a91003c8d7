package matrix

import (
	"context"
	"fmt"
	"os"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// envFixture makes this program a server of mcp-go, on its standard input and output.
const envFixture = "MATRIX_FIXTURE"

func serveFixture() {
	if err := server.ServeStdio(fixture()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func fixture() *server.MCPServer {
	s := server.NewMCPServer("fixture", "1", server.WithToolCapabilities(false), server.WithResourceCapabilities(false, false), server.WithPromptCapabilities(false), server.WithElicitation())
	s.AddTool(mcp.NewTool("add", mcp.WithDescription("adds"), mcp.WithNumber("a"), mcp.WithNumber("b")),
		func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText(fmt.Sprint(r.GetInt("a", 0) + r.GetInt("b", 0))), nil
		})
	s.AddTool(mcp.NewTool("ask", mcp.WithDescription("asks the user")), func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return ask(ctx, s, r)
	})
	s.AddResource(mcp.NewResource("doc://readme", "readme"), func(_ context.Context, r mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
		return []mcp.ResourceContents{mcp.TextResourceContents{URI: r.Params.URI, MIMEType: "text/plain", Text: "what the document says"}}, nil
	})
	s.AddPrompt(mcp.NewPrompt("greet", mcp.WithArgument("name")), func(_ context.Context, r mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		text := mcp.NewTextContent("Hello, " + r.Params.Arguments["name"])
		return mcp.NewGetPromptResult("greets", []mcp.PromptMessage{mcp.NewPromptMessage(mcp.RoleUser, text)}), nil
	})
	return s
}

// ask asks for a name as the era of the connection has it.
func ask(ctx context.Context, s *server.MCPServer, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	question := mcp.ElicitationParams{Mode: mcp.ElicitationModeForm, Message: "Who are you?", RequestedSchema: map[string]any{
		"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}}, "required": []string{"name"},
	}}
	answer := server.ElicitationResponse(r.Params.InputResponses, "who")
	if answer == nil {
		res, err := s.RequestElicitation(ctx, mcp.ElicitationRequest{Params: question})
		if err != nil { // a stateless connection, on which nothing can be asked
			return server.NewInputRequestBuilder("").Elicit("who", question).ToolResult(), nil
		}
		answer = res
	}
	return mcp.NewToolResultText(fmt.Sprintf("%s: %v", answer.Action, answer.Content)), nil
}
