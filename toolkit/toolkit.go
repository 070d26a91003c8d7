// Package toolkit writes a tool server in a few lines of Go. Put it behind
// Sallyport and every call that reaches a tool has been identified, validated,
// judged and, where need be, approved; the tool learns the call's id and the
// caller's idempotency key, so that it can make a retry harmless itself.
//
// It stands on the official MCP SDK and speaks both eras of the protocol, over
// stdio and over streamable HTTP.
package toolkit

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"runtime/debug"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Where the gateway puts what it tells a tool, in the request's _meta.
const (
	metaCallID = "dev.sallyport/callId"
	metaKey    = "dev.sallyport/idempotencyKey"
	metaTrace  = "traceparent"
)

// A Call says which call a tool is running for. Fields are empty where the
// caller did not say.
type Call struct {
	ID    string // the gateway's id of this call; the same in its audit log
	Key   string // idempotency key: the same key means the same effect, once
	Trace string // W3C traceparent
}

// A Server is a set of tools. Register them all with Tool, then serve.
type Server struct {
	mcp *mcp.Server
	log *slog.Logger
}

// New returns a server without tools. It logs to slog.Default, which writes to
// standard error unless the program chose otherwise; standard output belongs to
// the protocol.
func New(name, version string) *Server {
	return &Server{
		mcp: mcp.NewServer(&mcp.Implementation{Name: name, Version: version}, &mcp.ServerOptions{
			Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
		}),
		log: slog.Default(),
	}
}

// Tool adds a tool to s.
//
// In is a struct; its fields are the arguments, named by their json tags and
// described by their jsonschema tags. A field is required unless its tag says
// omitempty. Arguments that do not fit never reach fn, and whole numbers arrive
// exact. Out is what the tool answers: a string is answered as text, anything
// else as structured content with a schema, and as its JSON in text. An error
// of fn is a tool error that the agent reads; so is a panic, without its text.
//
// fn may run many times at once. It must end when ctx does. Tool panics if
// In or Out has no schema: that is a mistake in the program.
func Tool[In, Out any](s *Server, name, description string, fn func(ctx context.Context, call Call, in In) (Out, error)) {
	t := &mcp.Tool{Name: name, Description: description}
	in := schemaOf[In](name)
	if in.Type != "object" {
		panic(fmt.Sprintf("toolkit: tool %s: the arguments must be a struct, not %v", name, reflect.TypeFor[In]()))
	}
	t.InputSchema = in
	check, err := in.Resolve(nil)
	if err != nil {
		panic(fmt.Sprintf("toolkit: tool %s: %v", name, err))
	}
	text := reflect.TypeFor[Out]().Kind() == reflect.String
	if !text {
		t.OutputSchema = schemaOf[Out](name)
	}
	s.mcp.AddTool(t, func(ctx context.Context, req *mcp.CallToolRequest) (res *mcp.CallToolResult, err error) {
		defer func() {
			if r := recover(); r != nil {
				s.log.Error("tool panicked", "tool", name, "panic", r, "stack", string(debug.Stack()))
				res, err = failed(fmt.Errorf("the tool %s failed unexpectedly", name)), nil
			}
		}()
		var args In
		if err := decode(req.Params.Arguments, check, &args); err != nil {
			return failed(fmt.Errorf("invalid arguments: %w", err)), nil
		}
		out, err := fn(ctx, callOf(req.Params.Meta), args)
		if err != nil {
			return failed(err), nil
		}
		return answer(out, text)
	})
}

func schemaOf[T any](tool string) *jsonschema.Schema {
	s, err := jsonschema.For[T](nil)
	if err != nil {
		panic(fmt.Sprintf("toolkit: tool %s: %v", tool, err))
	}
	return s
}

func callOf(meta mcp.Meta) Call {
	str := func(key string) string {
		s, _ := meta[key].(string)
		return s
	}
	return Call{ID: str(metaCallID), Key: str(metaKey), Trace: str(metaTrace)}
}

// decode checks the arguments and fills in. The check works on a copy with
// rounded numbers; what fn sees comes from the bytes.
func decode(raw json.RawMessage, check *jsonschema.Resolved, in any) error {
	if len(raw) == 0 {
		raw = json.RawMessage("{}")
	}
	var rough any
	if err := json.Unmarshal(raw, &rough); err != nil {
		return err
	}
	if err := check.Validate(rough); err != nil {
		return err
	}
	return json.Unmarshal(raw, in)
}

func answer(out any, text bool) (*mcp.CallToolResult, error) {
	if text {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: reflect.ValueOf(out).String()}}}, nil
	}
	b, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	return &mcp.CallToolResult{
		Content: []mcp.Content{&mcp.TextContent{Text: string(b)}}, StructuredContent: json.RawMessage(b),
	}, nil
}

func failed(err error) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: err.Error()}}, IsError: true}
}

// ServeStdio serves on standard input and output until the input ends, which
// is no error, or ctx does.
func (s *Server) ServeStdio(ctx context.Context) error {
	return s.mcp.Run(ctx, &mcp.StdioTransport{})
}

// Handler serves streamable HTTP, without sessions. It has no authentication
// of its own: bind it to loopback or put the gateway before it.
func (s *Server) Handler() http.Handler {
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.mcp },
		&mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
}
