package mcpserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/mcpserver"
	"sallyport.dev/sallyport/wire"
)

// fakeGateway answers by the tool's name; it remembers every request.
type fakeGateway struct {
	tools      []sallyport.Tool
	shelves    map[sallyport.Shelf][]sallyport.Tool
	incomplete bool
	huge       int // bytes that "echo" answers beside

	mu      sync.Mutex
	calls   []sallyport.Request
	lists   int
	started chan string   // gets the arguments of each "slow" call
	release chan struct{} // lets "slow" calls go
	ended   chan error    // gets ctx.Err() of each "slow" call that was cancelled
	causes  chan error    // gets the cause of the same
	gone    chan struct{} // gets one for each call that waits and that nobody listens to
}

func newFakeGateway() *fakeGateway {
	g := &fakeGateway{started: make(chan string, 2000), release: make(chan struct{}), ended: make(chan error, 100), causes: make(chan error, 100), gone: make(chan struct{}, 100)}
	for _, n := range []string{"denied", "echo", "meta", "pending", "progress", "slow"} {
		g.add(n, `{"type":"object"}`)
	}
	g.add("mirror", `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},`+
		`"deep":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"}}},"ok":{"type":"boolean","x-mcp-header":"OK"}}}`)
	g.shelves = map[sallyport.Shelf][]sallyport.Tool{
		sallyport.Resources: {thing("sallyport:a/x:1", "uri"), thing("sallyport:a/x:2", "uri")},
		sallyport.Templates: {thing("sallyport:a/db://{table}", "uriTemplate")},
		sallyport.Prompts:   {thing("a__hi", "name")},
	}
	return g
}

func thing(name, key string) sallyport.Tool {
	return sallyport.Tool{Name: name, Digest: "d-" + name, Definition: json.RawMessage(`{"` + key + `":"` + name + `","zeta":1.0}`)}
}

// read answers what reads: by the target's last word.
func (g *fakeGateway) read(req sallyport.Request) (sallyport.Result, error) {
	res := sallyport.Result{CallID: "call-1"}
	refused := func(code sallyport.Code, step sallyport.Step) (sallyport.Result, error) {
		return res, &sallyport.Error{Code: code, Step: step, Message: "no " + req.Operation.Target, Hint: "list", CallID: "call-1"}
	}
	switch t := req.Operation.Target; {
	case strings.HasSuffix(t, "nothing"):
		return refused(sallyport.NotFound, sallyport.Resolve)
	case strings.HasSuffix(t, "gone"):
		return refused(sallyport.NotFound, sallyport.Execute)
	case strings.HasSuffix(t, "denied"):
		return refused(sallyport.Denied, sallyport.Authorize)
	case strings.HasSuffix(t, "wrong"):
		return refused(sallyport.Invalid, sallyport.Validate)
	case strings.HasSuffix(t, "malformed"):
		res.IsError, res.Content = true, text("cannot be used")
	case req.Operation.Kind == sallyport.ReadResource:
		res.Content = json.RawMessage(`{"content":[{"type":"resource","resource":{"uri":"` + t + `","blob":"AA==","n":1.0}},{"type":"text","text":"[truncated: kept 1 of 9 bytes]"}]}`)
	case req.Operation.Kind == sallyport.GetPrompt:
		res.Content = json.RawMessage(`{"content":[{"type":"text","text":"q","n":1.0},{"type":"text","text":"a"},{"type":"text","text":"cut"}],"structuredContent":{"roles":["user","assistant"],"description":"d"},"_meta":{"x":1}}`)
	default:
		res.Content = json.RawMessage(`{"content":[],"structuredContent":{"completion":{"values":["a"],"total":1.0,"hasMore":false}}}`)
	}
	return res, nil
}

func (g *fakeGateway) add(name, schema string) {
	g.tools = append(g.tools, sallyport.Tool{
		Name: name, Digest: "d-" + name, InputSchema: json.RawMessage(schema),
		Definition: json.RawMessage(`{"name":"` + name + `","zeta":1.0,"inputSchema":` + schema + `}`),
	})
}

func (g *fakeGateway) Identify(_ context.Context, cred, _ string) (sallyport.Principal, error) {
	switch cred {
	case "alice", "bob", "carol":
		return sallyport.Principal{Tenant: sallyport.DefaultTenant, ID: cred}, nil
	case "broken":
		return sallyport.Principal{}, errors.New("database password is hunter2")
	}
	return sallyport.Principal{}, &sallyport.Error{Code: sallyport.Unauthenticated, Step: sallyport.Authenticate,
		Message: "the token has expired", Hint: "get a new one"}
}

func (g *fakeGateway) Withdraw(ctx context.Context, req sallyport.Request) error {
	_, err := g.Identify(ctx, req.Credential, req.Profile)
	return err
}

func (g *fakeGateway) List(ctx context.Context, cred, profile string, shelf sallyport.Shelf, size int) (sallyport.Sight, error) {
	who, err := g.Identify(ctx, cred, "")
	if err != nil {
		return sallyport.Sight{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lists++
	sight := sallyport.Sight{Who: who, List: g.shelves[shelf], Incomplete: g.incomplete}
	if shelf == "" {
		sight.List = g.tools
	}
	if who.ID == "bob" && len(sight.List) > 0 {
		sight.List = sight.List[:1]
	}
	return sight, nil
}

func (g *fakeGateway) Await(ctx context.Context, req sallyport.Request, wait time.Duration, waiting func(*sallyport.Error)) (sallyport.Result, error) {
	res, err := g.Call(ctx, req)
	e, ok := errors.AsType[*sallyport.Error](err)
	if !ok || e.Code != sallyport.Pending {
		return res, err
	}
	waiting(e)
	select {
	case <-g.release:
		return sallyport.Result{CallID: "call-1", Content: text("approved and done")}, nil
	case <-ctx.Done():
		g.causes <- context.Cause(ctx)
		g.ended <- ctx.Err()
		return res, &sallyport.Error{Code: sallyport.Canceled, Step: sallyport.Approve, Message: "canceled", Err: ctx.Err()}
	case <-req.Gone:
		g.gone <- struct{}{}
		return res, err
	case <-time.After(wait):
		return res, err
	}
}

func text(s string) json.RawMessage {
	return json.RawMessage(`{"content":[{"type":"text","text":` + string(wire.Quote(s)) + `}]}`)
}

func (g *fakeGateway) Call(ctx context.Context, req sallyport.Request) (sallyport.Result, error) {
	if _, err := g.Identify(ctx, req.Credential, req.Profile); err != nil {
		return sallyport.Result{}, err
	}
	g.mu.Lock()
	g.calls = append(g.calls, req)
	g.mu.Unlock()
	res := sallyport.Result{CallID: "call-1"}
	if req.Operation.Kind != sallyport.CallTool {
		return g.read(req)
	}
	refused := func(code sallyport.Code, step sallyport.Step, msg string) (sallyport.Result, error) {
		return res, &sallyport.Error{Code: code, Step: step, Message: msg, Hint: "ask the operator", CallID: "call-1"}
	}
	switch req.Operation.Target {
	case "echo", "mirror":
		args, err := sallyport.Canonical(req.Operation.Args)
		if err != nil {
			return refused(sallyport.Invalid, sallyport.Validate, err.Error())
		}
		res.Content = json.RawMessage(fmt.Sprintf(`{"content":[{"type":"text","text":%s,"vendor":1.0}],"structuredContent":%s}`, wire.Quote(string(args)), args))
		if g.huge > 0 {
			res.Content = text(strings.Repeat("x", g.huge))
		}
	case "meta":
		res.Content = json.RawMessage(`{ "_meta" : {"n":9007199254740993,"dev.sallyport/callId":"forged"},"content":[] ,"resultType":"complete"}`)
	case "numbers":
		res.Content = json.RawMessage(`{"content":[],"structuredContent":[9007199254740993]}`)
	case "progress":
		for _, v := range []string{"1", "1", "0.5", "9007199254740993"} {
			req.Notify(sallyport.Notice{Method: "notifications/progress", Params: json.RawMessage(`{"progressToken":"upstream","progress":` + v + `,"total":3.0,"message":"m` + v + `"}`)})
		}
		req.Notify(sallyport.Notice{Method: "notifications/message", Params: json.RawMessage(`{"level":"debug","data":"quiet"}`)})
		req.Notify(sallyport.Notice{Method: "notifications/message", Params: json.RawMessage(`{"level":"warning","data":{"n":1.0}}`)})
		req.Notify(sallyport.Notice{Method: "sampling/createMessage", Params: json.RawMessage(`{}`)})
		res.Content = text("done")
	case "slow":
		return g.slow(ctx, req, res)
	case "pending":
		return res, &sallyport.Error{Code: sallyport.Pending, Step: sallyport.Approve, Message: "a human must approve this",
			Hint: "call again with the ticket", Ticket: "tkt-7", RetryAfter: 1500 * time.Millisecond, CallID: "call-1"}
	case "denied":
		return refused(sallyport.Denied, sallyport.Authorize, "no policy allows this")
	case "limited":
		res, err := refused(sallyport.RateLimited, sallyport.Admit, "too many calls")
		errAs(err).RetryAfter = 2100 * time.Millisecond
		return res, err
	case "broken":
		return res, errors.New("pq: password is hunter2")
	case "broken-late":
		return refused(sallyport.Internal, sallyport.Execute, "password is hunter2")
	case "malformed":
		res.Content = json.RawMessage(`[1]`)
	case "panic":
		panic("hunter2")
	default:
		return refused(sallyport.NotFound, sallyport.Resolve, "unknown tool "+req.Operation.Target)
	}
	return res, nil
}

func errAs(err error) *sallyport.Error { e, _ := errors.AsType[*sallyport.Error](err); return e }

func (g *fakeGateway) slow(ctx context.Context, req sallyport.Request, res sallyport.Result) (sallyport.Result, error) {
	g.started <- string(req.Operation.Args)
	select {
	case <-g.release:
		res.Content = text("slow " + string(req.Operation.Args))
		return res, nil
	case <-ctx.Done():
		g.causes <- context.Cause(ctx)
		g.ended <- ctx.Err()
		return res, &sallyport.Error{Code: sallyport.Canceled, Step: sallyport.Execute, Message: "canceled", Err: ctx.Err()}
	}
}

func (g *fakeGateway) last(t *testing.T) sallyport.Request {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.calls) == 0 {
		t.Fatal("the gateway was not called")
	}
	return g.calls[len(g.calls)-1]
}

func (g *fakeGateway) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.calls)
}

// A door is a served Server with a fake gateway behind it.
type door struct {
	t      testing.TB
	gw     *fakeGateway
	server *mcpserver.Server
	http   *httptest.Server
	base   string
	log    *syncBuffer
}

func newDoor(t testing.TB, change func(*mcpserver.Options)) *door {
	t.Helper()
	d := &door{t: t, gw: newFakeGateway(), log: &syncBuffer{}}
	d.http = httptest.NewUnstartedServer(nil)
	d.base = "http://" + d.http.Listener.Addr().String()
	opts := mcpserver.Options{
		Gateway: d.gw, BaseURL: d.base, Version: "1.2.3", Instructions: "Be careful.",
		Log:     slog.New(slog.NewJSONHandler(d.log, nil)),
		Profile: func(name string) bool { return name == "finance" },
	}
	if change != nil {
		change(&opts)
	}
	server, err := mcpserver.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	d.server = server
	mux := http.NewServeMux()
	for _, p := range mcpserver.Patterns() {
		mux.Handle(p, server)
	}
	d.http.Config.Handler = mux
	d.http.Start()
	d.http.Client().Timeout = 2 * patience // a test that waits for ever tells nothing
	t.Cleanup(func() { server.Close(); d.http.CloseClientConnections(); d.http.Close() })
	return d
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// newRequest makes a request with the headers that a good client sends; extra
// is "Name: value" lines, "-Name" takes one away.
func (d *door) newRequest(ctx context.Context, method, path, body string, extra ...string) *http.Request {
	d.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, d.base+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer alice")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for _, line := range extra {
		name, value, given := strings.Cut(line, ": ")
		switch {
		case !given && strings.HasPrefix(line, "-"):
			req.Header.Del(line[1:])
		case strings.EqualFold(name, "Host"):
			req.Host = value
		case strings.HasPrefix(name, "+"):
			req.Header.Add(name[1:], value)
		default:
			req.Header.Set(name, value)
		}
	}
	return req
}

func (d *door) do(req *http.Request) (*http.Response, string) {
	d.t.Helper()
	res, err := d.http.Client().Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return res, string(b)
}

func (d *door) post(body string, extra ...string) (*http.Response, string) {
	d.t.Helper()
	return d.do(d.newRequest(context.Background(), "POST", "/mcp", body, extra...))
}

// modern returns a stateless request and its headers.
func modern(id, method, params string) (body string, headers []string) {
	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	if params != "" {
		meta += "," + params
	}
	headers = []string{"Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: " + method}
	if name, ok := wire.String(wire.Member(json.RawMessage("{"+params+"}"), "name")); ok {
		headers = append(headers, "Mcp-Name: "+wire.EncodeHeader(name))
	}
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + meta + `}}`, headers
}

// open makes a session for a credential and returns its header line.
func (d *door) open(cred string) string {
	d.t.Helper()
	res, body := d.post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`, "Authorization: Bearer "+cred)
	id := res.Header.Get("Mcp-Session-Id")
	if res.StatusCode != 200 || id == "" {
		d.t.Fatalf("initialize: %d %s", res.StatusCode, body)
	}
	return "Mcp-Session-Id: " + id
}
