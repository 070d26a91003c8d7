package toolkit_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport/toolkit"
)

type echoIn struct {
	Text string `json:"text" jsonschema:"what to say"`
	N    int64  `json:"n,omitempty"`
}

type echoOut struct {
	Text string       `json:"text"`
	N    int64        `json:"n"`
	Call toolkit.Call `json:"call"`
}

func server() *toolkit.Server {
	s := toolkit.New("test", "1")
	toolkit.Tool(s, "echo", "Say it again.", func(_ context.Context, c toolkit.Call, in echoIn) (echoOut, error) {
		return echoOut{in.Text, in.N, c}, nil
	})
	toolkit.Tool(s, "upper", "Say it loud.", func(_ context.Context, _ toolkit.Call, in echoIn) (string, error) {
		return strings.ToUpper(in.Text), nil
	})
	toolkit.Tool(s, "fail", "Fail.", func(context.Context, toolkit.Call, struct{}) (string, error) { return "", errors.New("no stock") })
	toolkit.Tool(s, "panic", "Panic.", func(context.Context, toolkit.Call, struct{}) (string, error) { panic("hunter2") })
	return s
}

// The test binary is its own stdio server.
func TestMain(m *testing.M) {
	if os.Getenv("TOOLKIT_TEST_SERVE") == "1" {
		if err := server().ServeStdio(context.Background()); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestStdio(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "TOOLKIT_TEST_SERVE=1")
	exercise(t, &mcp.CommandTransport{Command: cmd})
	if cmd.ProcessState == nil || !cmd.ProcessState.Success() {
		t.Errorf("the server ended with %v, want success once its input ends", cmd.ProcessState)
	}
}

func TestHTTP(t *testing.T) {
	h := httptest.NewServer(server().Handler())
	defer h.Close()
	exercise(t, &mcp.StreamableClientTransport{Endpoint: h.URL, MaxRetries: -1})
}

// exercise drives a server with the real client.
func exercise(t *testing.T, transport mcp.Transport) {
	t.Helper()
	ctx := t.Context()
	client, err := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil).Connect(ctx, transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.ListTools(ctx, nil)
	if err != nil || len(list.Tools) != 4 {
		t.Fatalf("ListTools = %+v, %v", list, err)
	}
	if b, _ := json.Marshal(list.Tools[0]); !strings.Contains(string(b), `"what to say"`) || !strings.Contains(string(b), `"required":["text"]`) || !strings.Contains(string(b), "outputSchema") {
		t.Errorf("echo is listed as %s", b)
	}
	call := func(name, args string, meta mcp.Meta) *mcp.CallToolResult {
		t.Helper()
		r, err := client.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(args), Meta: meta})
		if err != nil {
			t.Fatalf("%s(%s): %v", name, args, err)
		}
		return r
	}
	text := func(r *mcp.CallToolResult) string { return r.Content[0].(*mcp.TextContent).Text }

	// The client rounds structured numbers; the text shows what the tool saw.
	r := call("echo", `{"text":"hi","n":9007199254740993}`, mcp.Meta{
		"dev.sallyport/callId": "c1", "dev.sallyport/idempotencyKey": "k1", "traceparent": "00-aa-bb-01",
	})
	if want := `{"text":"hi","n":9007199254740993,"call":{"ID":"c1","Key":"k1","Trace":"00-aa-bb-01"}}`; r.IsError || text(r) != want || r.StructuredContent == nil {
		t.Errorf("echo = %s, %v; want %s", text(r), r.StructuredContent, want)
	}
	if r := call("upper", `{"text":"hi"}`, nil); text(r) != "HI" || r.StructuredContent != nil {
		t.Errorf("upper = %s, %v", text(r), r.StructuredContent)
	}
	for args, want := range map[string]string{`{}`: "text", `{"text":7}`: "string", `{"text":"a","x":1}`: "x", `{"text":"a","n":1.5}`: "integer"} {
		if r := call("echo", args, nil); !r.IsError || !strings.Contains(text(r), "invalid arguments") || !strings.Contains(text(r), want) {
			t.Errorf("echo(%s) = %v %s, want an error with %q", args, r.IsError, text(r), want)
		}
	}
	if r := call("fail", `{}`, nil); !r.IsError || text(r) != "no stock" {
		t.Errorf("fail = %v %s", r.IsError, text(r))
	}
	if r := call("panic", `{}`, nil); !r.IsError || strings.Contains(text(r), "hunter2") {
		t.Errorf("panic = %v %s", r.IsError, text(r))
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if r, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "upper", Arguments: json.RawMessage(`{"text":"x"}`)}); err != nil || text(r) != "X" {
				t.Errorf("upper = %v, %v", r, err)
			}
		})
	}
	wg.Wait()
	if err := client.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestToolRefusesArgumentsWithoutNames(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Tool took a string as its arguments")
		}
	}()
	toolkit.Tool(toolkit.New("x", "1"), "x", "x", func(context.Context, toolkit.Call, string) (string, error) { return "", nil })
}
