//nolint:staticcheck // sampling and roots are deprecated, and in use
package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/bridge"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/gateway/held"
)

// An inquirer is a server of the official SDK whose tools ask. With clients that
// have sessions it asks by requests of its own, with others by its results.
type inquirer struct {
	*sdk.Server
	config upstream.Config

	cancelled chan struct{}
}

func form(message string, fields ...string) *sdk.ElicitParams {
	s := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{}, Required: fields}
	for _, f := range fields {
		s.Properties[f] = &jsonschema.Schema{Type: "string"}
	}
	return &sdk.ElicitParams{Message: message, RequestedSchema: s}
}

func said(text string) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}
}

// filled is what a user filled in, or the action where there is nothing.
func filled(in sdk.InputResponseMap, key, field string) (string, bool) {
	r, ok := in[key].(*sdk.ElicitResult)
	if !ok {
		return "", false
	}
	if v, ok := r.Content[field].(string); ok && r.Action == "accept" {
		return v, true
	}
	return r.Action, true
}

func newInquirer(t *testing.T, name string, modern bool) *inquirer {
	t.Helper()
	s := &inquirer{cancelled: make(chan struct{}, 10)}
	s.Server = sdk.NewServer(&sdk.Implementation{Name: name, Version: "1"}, nil)
	tool := func(name string, run func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error)) {
		s.AddTool(&sdk.Tool{Name: name, InputSchema: map[string]any{"type": "object"}}, run)
	}
	tool("elicit", func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if v, ok := filled(r.Params.InputResponses, "who", "name"); ok {
			return said("hello " + v), nil
		}
		return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{"who": form("Who is it?", "name")}, RequestState: "state \"of\" <the> server"}, nil
	})
	tool("sample", func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if m, ok := r.Params.InputResponses["q"].(*sdk.CreateMessageWithToolsResult); ok {
			return said("the model said " + m.Content[0].(*sdk.TextContent).Text), nil
		}
		return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{"q": &sdk.CreateMessageParams{MaxTokens: 10, Messages: []*sdk.SamplingMessage{{Role: "user", Content: &sdk.TextContent{Text: "2+2?"}}}}}}, nil
	})
	tool("roots", func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if m, ok := r.Params.InputResponses["where"].(*sdk.ListRootsResult); ok {
			return said("in " + m.Roots[0].URI), nil
		}
		return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{"where": &sdk.ListRootsParams{}}}, nil
	})
	s.readings(modern)
	s.direct(tool, modern)
	h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s.Server }, &sdk.StreamableHTTPOptions{Stateless: modern}))
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	s.config = upstream.Config{Name: name, URL: h.URL}
	return s
}

// readings adds a prompt and a resource that ask.
func (s *inquirer) readings(modern bool) {
	s.AddPrompt(&sdk.Prompt{Name: "intro"}, func(_ context.Context, r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
		if v, ok := filled(r.Params.InputResponses, "who", "name"); ok {
			return &sdk.GetPromptResult{Messages: []*sdk.PromptMessage{{Role: "user", Content: &sdk.TextContent{Text: "for " + v}}}}, nil
		}
		return &sdk.GetPromptResult{InputRequests: sdk.InputRequestMap{"who": form("For whom?", "name")}}, nil
	})
	s.AddResource(&sdk.Resource{URI: "note://own", Name: "own"}, func(ctx context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		if !modern { // the SDK does not turn this one's result into a request
			res, err := r.Session.Elicit(ctx, form("Whose?", "name"))
			if err != nil {
				return nil, err
			}
			r.Params.InputResponses = sdk.InputResponseMap{"who": res}
		}
		if v, ok := filled(r.Params.InputResponses, "who", "name"); ok {
			return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: "note://own", Text: "of " + v}}}, nil
		}
		return &sdk.ReadResourceResult{InputRequests: sdk.InputRequestMap{"who": form("Whose?", "name")}}, nil
	})
}

// direct adds tools that ask more than once, in the way of each era.
func (s *inquirer) direct(tool func(string, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error)), modern bool) {
	tool("thrice", func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		var all []string
		if !modern {
			for i := range 3 {
				res, err := r.Session.Elicit(ctx, form(fmt.Sprint("Question ", i+1), "a"))
				if err != nil {
					return nil, err
				}
				all = append(all, fmt.Sprint(res.Content["a"]))
			}
			return said(strings.Join(all, " ")), nil
		}
		if r.Params.RequestState != "" {
			all = strings.Split(r.Params.RequestState, ",")
		}
		if len(all) > 0 {
			v, _ := filled(r.Params.InputResponses, fmt.Sprint("q", len(all)), "a")
			all[len(all)-1] = v
		}
		if len(all) == 3 {
			return said(strings.Join(all, " ")), nil
		}
		all = append(all, "?")
		return &sdk.CallToolResult{RequestState: strings.Join(all, ","), InputRequests: sdk.InputRequestMap{
			fmt.Sprint("q", len(all)): form(fmt.Sprint("Question ", len(all)), "a"),
		}}, nil
	})
	tool("wait", func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if modern {
			return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{"who": form("Who is it?", "name")}}, nil
		}
		_, err := r.Session.Elicit(ctx, form("Who is it?", "name"))
		select { // that nobody answers can be heard before that the call is cancelled
		case <-ctx.Done():
			s.cancelled <- struct{}{}
		case <-time.After(patience):
		}
		return nil, errors.Join(err, errors.New("nobody said"))
	})
}

// A person answers what clients are asked.
type person struct {
	mu    sync.Mutex
	asked []string
	say   func(*sdk.ElicitParams) (*sdk.ElicitResult, error)
}

func (p *person) options() *sdk.ClientOptions {
	return &sdk.ClientOptions{
		Capabilities: &sdk.ClientCapabilities{RootsV2: &sdk.RootCapabilities{}},
		ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.asked = append(p.asked, r.Params.Message)
			return p.say(r.Params)
		},
		CreateMessageHandler: func(_ context.Context, r *sdk.CreateMessageRequest) (*sdk.CreateMessageResult, error) {
			return &sdk.CreateMessageResult{Model: "m", Role: "assistant", Content: &sdk.TextContent{Text: "4"}}, nil
		},
	}
}

func accept(field, value string) func(*sdk.ElicitParams) (*sdk.ElicitResult, error) {
	return func(*sdk.ElicitParams) (*sdk.ElicitResult, error) {
		return &sdk.ElicitResult{Action: "accept", Content: map[string]any{field: value}}, nil
	}
}

func textOf(t *testing.T, c *sdk.ClientSession, tool string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	res, err := c.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: map[string]any{}})
	if err != nil {
		return "error: " + err.Error()
	}
	if len(res.Content) == 0 {
		return "nothing"
	}
	text, _ := res.Content[0].(*sdk.TextContent)
	return text.Text
}

// FO-34: a tool that asks its user, its model and for its folders in the middle of a
// call gets answers, from clients and for servers of either era.
func TestFO34_AskingInAllPairs(t *testing.T) {
	t.Parallel()
	every(t, func(t *testing.T, version string, modern bool) {
		s := newInquirer(t, "s", modern)
		w := newWorld(t, setup{servers: []upstream.Config{s.config}}).whole()
		p := &person{say: accept("name", "Ann")}
		c := w.client("ann", "", version, p.options())
		for _, tt := range [][2]string{{"s__elicit", "hello Ann"}, {"s__sample", "the model said 4"}, {"s__roots", "in file:///home/ann"}} {
			if got := textOf(t, c, tt[0]); got != tt[1] {
				t.Errorf("%s: %s", tt[0], got)
			}
		}
		p.say = accept("a", "yes")
		if got := textOf(t, c, "s__thrice"); got != "yes yes yes" {
			t.Errorf("thrice: %s", got)
		}
		for _, action := range []string{"decline", "cancel"} {
			p.say = func(*sdk.ElicitParams) (*sdk.ElicitResult, error) { return &sdk.ElicitResult{Action: action}, nil }
			if got := textOf(t, c, "s__elicit"); got != "hello "+action {
				t.Errorf("%s: %s", action, got)
			}
		}
		if got := strings.Join(p.asked, "; "); got != "Who is it?; Question 1; Question 2; Question 3; Who is it?; Who is it?" {
			t.Errorf("asked %s", got)
		}
		p.say = accept("name", "Bob")
		got, err := c.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "s__intro"})
		if err != nil || got.Messages[0].Content.(*sdk.TextContent).Text != "for Bob" {
			t.Errorf("a prompt that asks: %+v, %v", got, err)
		}
		read, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "sallyport:s/note://own"})
		if err != nil || read.Contents[0].Text != "of Bob" {
			t.Errorf("a resource that asks: %+v, %v", read, err)
		}
		w.eventually("nothing is held", func() bool { return w.held.Waiting() == 0 })
		w.asks(7 + 2)
	})
}

// asks expects so many questions in the record, each with what came of it.
func (w *world) asks(n int) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	found := 0
	for _, r := range w.entries {
		for _, a := range r.Asked {
			if found++; a.Hash == "" || a.Answer == "" || a.Answer == "none" || a.AnswerHash == "" {
				w.t.Errorf("%s: %+v", r.Target, a)
			}
		}
	}
	if found != n+1 { // thrice asks three times
		w.t.Errorf("%d questions are on record", found)
	}
}

// FO-34: a client that cannot be asked never hangs: its server gets a proper error, or
// is told beforehand.
func TestFO34_AClientThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	every(t, func(t *testing.T, version string, modern bool) {
		s := newInquirer(t, "s", modern)
		w := newWorld(t, setup{servers: []upstream.Config{s.config}}).whole()
		c := w.client("ann", "", version, &sdk.ClientOptions{Capabilities: &sdk.ClientCapabilities{}})
		for _, tool := range []string{"s__elicit", "s__sample", "s__roots"} {
			got := textOf(t, c, tool)
			if strings.HasPrefix(got, "hello") || strings.Contains(got, "deadline") || got == "nothing" {
				t.Errorf("%s: %s", tool, got)
			}
		}
		if w.held.Waiting() != 0 {
			t.Errorf("%d calls are held", w.held.Waiting())
		}
	})
}

// FO-34: a question that nobody answers ends by its own limit; the server is told, and
// the call ends.
func TestFO34_NobodyAnswers(t *testing.T) {
	t.Parallel()
	every(t, func(t *testing.T, version string, modern bool) {
		s := newInquirer(t, "s", modern)
		limits := setup{servers: []upstream.Config{s.config}, held: held.Options{Wait: 100 * time.Millisecond}}
		if version < "2026" { // its client stays
			limits = setup{servers: []upstream.Config{s.config}, limits: gateway.CallLimits{Answer: 300 * time.Millisecond}}
		}
		w := newWorld(t, limits).whole()
		released := make(chan struct{})
		defer close(released)
		p := &person{say: func(*sdk.ElicitParams) (*sdk.ElicitResult, error) {
			<-released
			return &sdk.ElicitResult{Action: "cancel"}, nil
		}}
		c := w.client("ann", "", version, p.options())
		ended := make(chan string, 1)
		go func() { ended <- textOf(t, c, "s__elicit") }()
		if version < "2026" {
			select {
			case got := <-ended:
				if got != "hello cancel" {
					t.Errorf("%s", got)
				}
			case <-time.After(patience):
				t.Fatal("it hangs")
			}
			return
		}
		w.eventually("the call is over", func() bool { return w.ended("s__elicit", "unanswered") })
		if !modern {
			w.eventually("nothing is held", func() bool { return w.held.Waiting() == 0 })
		}
	})
}

// ended reports whether a call was ended by somebody.
func (w *world) ended(tool, by string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.entries {
		if r.Target == tool && r.CancelledBy == by {
			return true
		}
	}
	return false
}

// A call that its client cancels while the question is open ends, and a server that
// waits for the answer is told.
func TestCancelledWhileTheQuestionIsOpen(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{true, false} {
		s := newInquirer(t, "s", modern)
		w := newWorld(t, setup{servers: []upstream.Config{s.config}}).whole()
		asked := make(chan struct{}, 1)
		ctx, cancel := context.WithCancel(t.Context())
		p := &person{say: func(*sdk.ElicitParams) (*sdk.ElicitResult, error) {
			asked <- struct{}{}
			<-t.Context().Done()
			return nil, errors.New("closed")
		}}
		c := w.client("ann", "", "2025-11-25", p.options())
		go func() { <-asked; cancel() }()
		if _, err := c.CallTool(ctx, &sdk.CallToolParams{Name: "s__wait"}); err == nil {
			t.Error("no error")
		}
		w.eventually("the call is over", func() bool { return w.ended("s__wait", "client") })
		if !modern {
			select {
			case <-s.cancelled:
			case <-time.After(patience):
				t.Error("the server is not told")
			}
		}
	}
}

// A client that speaks stdio to the bridge is asked, too, in either era.
func TestFO34_OverStdio(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		s := newInquirer(t, "s", false)
		w := newWorld(t, setup{servers: []upstream.Config{s.config}}).whole()
		in, toBridge := io.Pipe()
		fromBridge, out := io.Pipe()
		b := &bridge.Bridge{URL: w.url + "/mcp", Client: http.DefaultClient, Token: func(context.Context) (string, error) { return "ann", nil }}
		go func() { _ = b.Run(t.Context(), in, out) }()
		p := &person{say: accept("a", "yes")}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, p.options()).Connect(ctx, &sdk.IOTransport{Reader: fromBridge, Writer: toBridge}, &sdk.ClientSessionOptions{ProtocolVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		if got := textOf(t, c, "s__thrice"); got != "yes yes yes" {
			t.Errorf("%s: %s", version, got)
		}
		_ = c.Close()
		cancel()
	}
}
