package suite

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport/test/bearer"
	"sallyport.dev/sallyport/test/stage"
)

// parts are what is played in each scenario: p is on its way, and the gateway has
// nothing of it yet.
var parts = map[string]func(t *testing.T, g *stage.Gateway, p Play) error{
	"initialize":                          through((*agent).look),
	"request-metadata":                    through((*agent).look),
	"json-schema-ref-no-deref":            through((*agent).look),
	"tools_call":                          through(calls("add_numbers", map[string]any{"a": 5, "b": 3})),
	"sse-retry":                           through(calls("test_reconnection", nil)),
	"elicitation-sep1034-client-defaults": through(calls("test_client_elicitation_defaults", nil)),
	"json-schema-2020-12-preservation":    through((*agent).echoSchema),
	"sep-2322-client-request-state":       through((*agent).answerQuestions),
	"http-standard-headers":               through((*agent).useAll),
	"http-custom-headers":                 through((*agent).callAsTold),
	"http-invalid-tool-headers":           through((*agent).callAll),
}

// The client face: the suite's servers are upstreams of a real gateway, and an
// agent with the reference SDK's client uses them through it.
func TestClientRequirements(t *testing.T) {
	s := New(t)
	g := stage.New(t)
	g.Write("sallyport.yaml", g.Config(roomy))
	g.Start()
	g.Login()
	for _, revision := range Revisions {
		t.Run(revision, func(t *testing.T) {
			g.In(t)
			s.t = t
			r := s.Client(revision, func(p Play) error {
				play := parts[p.Scenario]
				if slices.Contains(authScenarios, strings.TrimPrefix(p.Scenario, "auth/")) {
					play = authorised
				}
				if play == nil {
					return errors.New("nobody plays this")
				}
				err := play(t, g, p)
				if err != nil {
					t.Logf("%s: the agent: %v", p.Scenario, err)
				}
				return err
			})
			r.Judge(t, nil)
		})
	}
}

// An agent speaks to the gateway, behind which is one server of the suite.
type agent struct {
	*mcp.ClientSession
	play   Play
	server string
}

// through adds the suite's server to the gateway for as long as an agent uses it.
func through(use func(*agent, context.Context) error) func(*testing.T, *stage.Gateway, Play) error {
	return func(t *testing.T, g *stage.Gateway, p Play) error {
		a := &agent{play: p, server: "suite"}
		added := g.Run("", "servers", "add", a.server, "--url", p.URL)
		defer g.Run("", "servers", "remove", a.server)
		if added.Code != 0 {
			return fmt.Errorf("servers add: %s", added)
		}
		ctx, cancel := context.WithTimeout(t.Context(), stage.Patience)
		defer cancel()
		client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, &mcp.ClientOptions{
			ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				return &mcp.ElicitResult{Action: "accept", Content: map[string]any{}}, nil // the SDK fills in defaults
			},
		})
		transport := &mcp.StreamableClientTransport{Endpoint: g.URL + "/mcp", HTTPClient: bearer.Client(g.Token(""))}
		var err error
		if a.ClientSession, err = client.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: p.Version}); err != nil {
			return err
		}
		defer a.Close()
		if err := use(a, ctx); err != nil {
			return fmt.Errorf("%w\n%s", err, g.Run("", "servers", "list"))
		}
		return nil
	}
}

// calls is a use that calls one tool, once it is listed.
func calls(tool string, args map[string]any) func(*agent, context.Context) error {
	return func(a *agent, ctx context.Context) error {
		for {
			tools, err := a.tools(ctx)
			if err != nil {
				return err
			}
			if len(tools) > 0 {
				return a.call(ctx, tool, args)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}

func (a *agent) look(ctx context.Context) error {
	_, err := a.tools(ctx)
	return err
}

// tools are those of the suite's server.
func (a *agent) tools(ctx context.Context) (list []*mcp.Tool, err error) {
	for tool, err := range a.Tools(ctx, nil) {
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(tool.Name, a.server+"__") {
			list = append(list, tool)
		}
	}
	return list, nil
}

func (a *agent) call(ctx context.Context, tool string, args map[string]any) error {
	if args == nil {
		args = map[string]any{}
	}
	res, err := a.CallTool(ctx, &mcp.CallToolParams{Name: a.server + "__" + strings.TrimPrefix(tool, a.server+"__"), Arguments: args})
	if err == nil && res.IsError {
		b, _ := json.Marshal(res)
		err = fmt.Errorf("%s: %s", tool, b)
	}
	return err
}

// echoSchema sends a tool's schema back, as it arrived here.
func (a *agent) echoSchema(ctx context.Context) error {
	tools, err := a.tools(ctx)
	if err != nil {
		return err
	}
	for _, tool := range tools {
		if strings.HasSuffix(tool.Name, "__json_schema_2020_12_tool") {
			return a.call(ctx, "json_schema_echo", map[string]any{"schema": tool.InputSchema})
		}
	}
	return errors.New("the tool is not listed")
}

func (a *agent) answerQuestions(ctx context.Context) (err error) {
	for _, tool := range []string{"test_mrtr_echo_state", "test_mrtr_no_state", "test_mrtr_unrelated", "test_mrtr_no_result_type"} {
		err = cmp.Or(err, a.call(ctx, tool, nil))
	}
	return err
}

func (a *agent) callAll(ctx context.Context) error {
	tools, err := a.tools(ctx)
	if err == nil && len(tools) == 0 {
		err = errors.New("no tool is listed")
	}
	for _, tool := range tools {
		err = cmp.Or(err, a.call(ctx, tool.Name, map[string]any{"region": "us-west1"}))
	}
	return err
}

// callAsTold makes the calls that the suite asks for. What is null in one that
// the gateway refuses is left out: its schema does not allow null.
func (a *agent) callAsTold(ctx context.Context) error {
	var told struct {
		ToolCalls []struct {
			Name      string
			Arguments map[string]any
		}
	}
	if err := json.Unmarshal(a.play.Context, &told); err != nil {
		return err
	}
	if _, err := a.tools(ctx); err != nil {
		return err
	}
	for _, c := range told.ToolCalls {
		if err := a.call(ctx, c.Name, c.Arguments); err == nil {
			continue
		}
		for name, v := range c.Arguments {
			if v == nil {
				delete(c.Arguments, name)
			}
		}
		if err := a.call(ctx, c.Name, c.Arguments); err != nil {
			return err
		}
	}
	return nil
}

// useAll uses one of each.
func (a *agent) useAll(ctx context.Context) error {
	tools, err := a.tools(ctx)
	if err != nil || len(tools) == 0 {
		return errors.Join(err, errors.New("no tools"))
	}
	if err := a.call(ctx, tools[0].Name, nil); err != nil {
		return err
	}
	resources, err := a.ListResources(ctx, nil)
	if err != nil || len(resources.Resources) == 0 {
		return errors.Join(err, errors.New("no resources"))
	}
	if _, err := a.ReadResource(ctx, &mcp.ReadResourceParams{URI: resources.Resources[0].URI}); err != nil {
		return err
	}
	prompts, err := a.ListPrompts(ctx, nil)
	if err != nil || len(prompts.Prompts) == 0 {
		return errors.Join(err, errors.New("no prompts"))
	}
	_, err = a.GetPrompt(ctx, &mcp.GetPromptParams{Name: prompts.Prompts[0].Name})
	return err
}
