package mcpserver_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport/mcpserver"
	"sallyport.dev/sallyport/mcpserver/stream"
	"sallyport.dev/sallyport/test/bearer"
	"sallyport.dev/sallyport/wire"
)

func resuming(o *mcpserver.Options) {
	quick(o)
	o.Hub = stream.NewHub(nil, nil)
}

// cut makes a call that is cut off before its answer, and returns the id to come back with.
func (d *door) cut(session, call string) (id string) {
	d.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	_, events := d.stream(d.newRequest(ctx, "POST", "/mcp", call, session))
	for events.LastID() == "" {
		if _, err := events.Next(); err != nil && events.LastID() == "" {
			d.t.Fatal(err)
		}
	}
	return events.LastID()
}

const slowCall = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"slow","arguments":{"n":1},"_meta":{"progressToken":1}}}`

// A client with a session whose connection breaks in the middle of a call finds the answer
// by the id of the last event that it has; nobody else finds anything, and it is run once.
func TestAnswerOfACallWhoseStreamWasCut(t *testing.T) {
	d := newDoor(t, resuming)
	session := d.session("alice", "2025-11-25", `{}`)
	id := d.cut(session, slowCall)
	if id != "call-1-0" {
		t.Errorf("the first id is %q", id)
	}
	resume := func(id string, lines ...string) (*http.Response, string) {
		return d.do(d.newRequest(context.Background(), "GET", "/mcp", "", append([]string{"Accept: text/event-stream", "Last-Event-ID: " + id}, lines...)...))
	}
	_, events := d.stream(d.newRequest(context.Background(), "GET", "/mcp", "", "Accept: text/event-stream", "Last-Event-ID: "+id, session))
	close(d.gw.release)
	if m := next(t, events); string(m.ID) != "7" || !strings.Contains(string(m.Result), `slow {\"n\":1}`) || events.LastID() != "call-1-1" {
		t.Errorf("%s: %s", events.LastID(), m.Result)
	}
	if _, err := events.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the answer: %v", err)
	}
	if res, body := resume(id, session); res.StatusCode != 200 || strings.Count(body, `"result"`) != 1 {
		t.Errorf("once more: %d %s", res.StatusCode, body)
	}
	if res, body := resume("call-1-1", session); res.StatusCode != 200 || strings.Contains(body, "data") {
		t.Errorf("with everything: %d %s", res.StatusCode, body)
	}
	for what, try := range map[string][]string{
		"another session":   {"call-1-0", d.session("alice", "2025-11-25", `{}`)},
		"another principal": {"call-1-0", session, "Authorization: Bearer bob"},
		"no token":          {"call-1-0", session, "-Authorization"},
		"no session":        {"call-1-0"},
		"too far":           {"call-1-2", session}, "another call": {"call-2-0", session}, "odd": {"call-01-0", session}, "no number": {"call-1", session},
	} {
		if res, body := resume(try[0], try[1:]...); res.StatusCode < 400 || strings.Contains(body, "slow") {
			t.Errorf("%s: %d %s", what, res.StatusCode, body)
		}
	}
	if n := d.gw.count(); n != 1 {
		t.Errorf("called %d times", n)
	}
	if res, _ := d.do(d.newRequest(context.Background(), "DELETE", "/mcp", "", session)); res.StatusCode != 204 {
		t.Errorf("the end: %d", res.StatusCode)
	}
	if res, body := resume(id, session); res.StatusCode != 404 {
		t.Errorf("after the session: %d %s", res.StatusCode, body)
	}
}

// What is kept is bounded, and a question that is asked meanwhile reaches who comes back.
func TestWhatIsKeptOfStreamsIsBounded(t *testing.T) {
	d := newDoor(t, resuming)
	session := d.session("alice", "2025-11-25", `{}`)
	d.gw.huge = 2 << 20
	call := strings.Replace(slowCall, `"slow"`, `"echo"`, 1)
	_, body := d.post(call, session)
	if !strings.Contains(body, "id: call-1-1\n") || len(body) < d.gw.huge {
		t.Errorf("a large answer on its own stream: %.200s, %d bytes", body, len(body))
	}
	if res, body := d.do(d.newRequest(context.Background(), "GET", "/mcp", "", "Accept: text/event-stream", "Last-Event-ID: call-1-0", session)); res.StatusCode != 400 || !strings.Contains(body, "not kept") {
		t.Errorf("%d %.200s", res.StatusCode, body)
	}
	d.gw.huge = 0
	for range 100 {
		d.post(call, session)
	}
	for id, status := range map[string]int{"call-30-0": 400, "call-101-0": 200} {
		if res, _ := d.do(d.newRequest(context.Background(), "GET", "/mcp", "", "Accept: text/event-stream", "Last-Event-ID: "+id, session)); res.StatusCode != status {
			t.Errorf("%s: %d", id, res.StatusCode)
		}
	}
	asking := newDoor(t, func(o *mcpserver.Options) {
		resuming(o)
		o.Gateway = asker{o.Gateway.(*fakeGateway)}
	})
	session = asking.session("alice", "2025-11-25", `{"elicitation":{}}`)
	id := asking.cut(session, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask"}}`)
	_, events := asking.stream(asking.newRequest(context.Background(), "GET", "/mcp", "", "Accept: text/event-stream", "Last-Event-ID: "+id, session))
	q := next(t, events)
	question, _ := wire.String(q.ID)
	if res, body := asking.post(answerTo(question), session); res.StatusCode != 202 {
		t.Errorf("answered after the cut: %d %s", res.StatusCode, body)
	}
	if m := next(t, events); !strings.Contains(string(m.Result), "accept") {
		t.Errorf("%s", m.Result)
	}
}

// cutter cuts the first stream that answers a call, after its first event.
type cutter struct {
	next http.RoundTripper
	once sync.Once
	cut  bool
}

func (c *cutter) RoundTrip(r *http.Request) (*http.Response, error) {
	call := false
	if r.Method == http.MethodPost && r.GetBody != nil {
		body, err := r.GetBody()
		if err != nil {
			return nil, err
		}
		b, _ := io.ReadAll(body)
		call = bytes.Contains(b, []byte(`"tools/call"`))
	}
	res, err := c.next.RoundTrip(r)
	if err == nil && call {
		c.once.Do(func() {
			c.cut = true
			res.Body = &cutBody{ReadCloser: res.Body}
		})
	}
	return res, err
}

type cutBody struct {
	io.ReadCloser
	last byte
	over bool
}

func (b *cutBody) Read(p []byte) (int, error) {
	if b.over {
		_ = b.Close()
		return 0, io.ErrUnexpectedEOF
	}
	n, err := b.ReadCloser.Read(p[:1]) // no more than one event
	if n == 1 {
		b.over, b.last = p[0] == '\n' && b.last == '\n', p[0]
	}
	return n, err
}

// The reference client of the revisions with sessions gets its answer all the same.
func TestGoSDKClientWhoseStreamIsCut(t *testing.T) {
	for _, version := range []string{"2025-11-25", "2025-06-18"} {
		d := newDoor(t, resuming)
		c := &cutter{next: bearer.Transport{Token: "alice", Next: d.http.Client().Transport}}
		client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
		ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
		t.Cleanup(cancel)
		s, err := client.Connect(ctx, &sdk.StreamableClientTransport{Endpoint: d.base + "/mcp", HTTPClient: &http.Client{Transport: c}}, &sdk.ClientSessionOptions{ProtocolVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		params := &sdk.CallToolParams{Name: "progress"}
		params.SetProgressToken("p")
		res, err := s.CallTool(ctx, params)
		if err != nil || len(res.Content) != 1 || res.Content[0].(*sdk.TextContent).Text != "done" || !c.cut || d.gw.count() != 1 {
			t.Errorf("%s: %+v, %v; cut %v, called %d times", version, res, err, c.cut, d.gw.count())
		}
	}
}

// Who wants to hear of tasks must take them.
func TestListeningToTasksNeedsThem(t *testing.T) {
	d := newDoor(t, resuming)
	body, headers := modern("1", "subscriptions/listen", `"notifications":{"taskIds":["run_x.1"]}`)
	res, got := d.post(body, headers...)
	if res.StatusCode != 400 || !strings.Contains(got, `"code":-32021`) || !strings.Contains(got, "io.modelcontextprotocol/tasks") {
		t.Errorf("%d %s", res.StatusCode, got)
	}
}
