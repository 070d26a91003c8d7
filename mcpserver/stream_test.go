package mcpserver_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/mcpserver"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/wire"
)

const patience = await.Patience

func quick(o *mcpserver.Options) {
	o.StreamAfter, o.KeepAlive = 20*time.Millisecond, 20*time.Millisecond
}

// stream sends a request and returns its events as they come.
func (d *door) stream(req *http.Request) (*http.Response, *wire.EventReader) {
	d.t.Helper()
	res, err := d.http.Client().Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { res.Body.Close() })
	if ct := res.Header.Get("Content-Type"); ct != wire.TypeSSE {
		d.t.Fatalf("content type %q", ct)
	}
	return res, wire.NewEventReader(res.Body, 1<<20)
}

func next(t *testing.T, r *wire.EventReader) wire.Message {
	t.Helper()
	e, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	m, err := wire.ParseMessage(e.Data)
	if err != nil {
		t.Fatalf("%s: %v", e.Data, err)
	}
	return m
}

func withToken(body string) string {
	return strings.Replace(body, `"_meta":{`, `"_meta":{"progressToken":"tok",`, 1)
}

func TestWaitingForApprovalTellsProgress(t *testing.T) {
	d := newDoor(t, quick)
	body, headers := modern("1", "tools/call", `"name":"pending"`)
	res, events := d.stream(d.newRequest(context.Background(), "POST", "/mcp", withToken(body), headers...))
	if res.Header.Get("X-Accel-Buffering") != "no" {
		t.Error("a proxy may buffer the stream")
	}
	last := "-1"
	for range 4 { // said at once, then again and again
		m := next(t, events)
		now := string(wire.Member(m.Params, "progress"))
		msg, _ := wire.String(wire.Member(m.Params, "message"))
		if m.Method != "notifications/progress" || string(wire.Member(m.Params, "progressToken")) != `"tok"` || now == last || msg != "waiting for approval of ticket tkt-7" {
			t.Errorf("%s %s after %s", m.Method, m.Params, last)
		}
		last = now
	}
	close(d.gw.release)
	for {
		if m := next(t, events); m.IsResponse() {
			if !strings.Contains(string(m.Result), "approved and done") {
				t.Errorf("%s", m.Result)
			}
			return
		}
	}
}

func TestApprovalWaitEnds(t *testing.T) {
	d := newDoor(t, func(o *mcpserver.Options) { quick(o); o.ApprovalWait = 30 * time.Millisecond })
	body, headers := modern("1", "tools/call", `"name":"pending"`)
	_, events := d.stream(d.newRequest(context.Background(), "POST", "/mcp", withToken(body), headers...))
	for {
		if m := next(t, events); m.IsResponse() {
			if code, _ := wire.String(wire.Path(m.Result, "structuredContent", "code")); code != "approval_pending" {
				t.Errorf("%s", m.Result)
			}
			return
		}
	}
}

// A call that takes long is answered as a stream with signs of life, even
// without a progress token.
func TestLongCallBecomesAStream(t *testing.T) {
	d := newDoor(t, quick)
	body, headers := modern("1", "tools/call", `"name":"slow","arguments":{"n":1}`)
	res, err := d.http.Client().Do(d.newRequest(context.Background(), "POST", "/mcp", body, headers...))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	buf := make([]byte, 256)
	for seen := ""; strings.Count(seen, ": alive\n\n") < 3; {
		n, err := res.Body.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, seen)
		}
		seen += string(buf[:n])
	}
	close(d.gw.release)
	m := next(t, wire.NewEventReader(res.Body, 1<<20))
	if !m.IsResponse() || !strings.Contains(string(m.Result), "slow") {
		t.Errorf("%s", m.Append(nil))
	}
}

func TestLongCallStaysJSONForAClientWithoutStreams(t *testing.T) {
	d := newDoor(t, quick)
	session := d.open("alice")
	time.AfterFunc(150*time.Millisecond, func() { close(d.gw.release) })
	res, body := d.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow","_meta":{"progressToken":1}}}`, session, "Accept: application/json")
	if res.Header.Get("Content-Type") != wire.TypeJSON || !strings.Contains(body, `"text":"slow `) {
		t.Errorf("%s %s", res.Header.Get("Content-Type"), body)
	}
}

func (d *door) cancelled() error {
	d.t.Helper()
	select {
	case err := <-d.gw.ended:
		return err
	case <-time.After(patience):
		d.t.Fatal("the call was not cancelled")
		return nil
	}
}

// In the stateless revision the end of the connection is the cancellation,
// whether the answer had become a stream or not.
func TestDisconnectCancelsModern(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  func(*mcpserver.Options)
	}{{"stream", quick}, {"json", nil}} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDoor(t, tt.set)
			ctx, cancel := context.WithCancel(context.Background())
			body, headers := modern("1", "tools/call", `"name":"slow"`)
			done := make(chan struct{})
			go func() {
				defer close(done)
				res, err := d.http.Client().Do(d.newRequest(ctx, "POST", "/mcp", body, headers...))
				if err == nil {
					<-ctx.Done()
					res.Body.Close()
				}
			}()
			<-d.gw.started
			time.Sleep(60 * time.Millisecond)
			cancel()
			<-done
			if err := d.cancelled(); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}

// In the earlier revisions it is not: only notifications/cancelled is.
func TestDisconnectDoesNotCancelLegacy(t *testing.T) {
	d := newDoor(t, quick)
	session := d.open("alice")
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		res, err := d.http.Client().Do(d.newRequest(ctx, "POST", "/mcp", `{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"slow"}}`, session))
		if err == nil {
			<-ctx.Done()
			res.Body.Close()
		}
	}()
	<-d.gw.started
	cancel()
	<-gone
	select {
	case err := <-d.gw.ended:
		t.Fatalf("the disconnect cancelled the call: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	cancelNote := func(id, cred, session string) int {
		res, _ := d.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`,"reason":"x"}}`, session, "Authorization: Bearer "+cred)
		return res.StatusCode
	}
	other := d.open("bob")
	if got := []int{cancelNote(`"y"`, "alice", session), cancelNote(`"x"`, "bob", other), cancelNote(`"x"`, "bob", session)}; got[0] != 202 || got[1] != 202 || got[2] != 404 {
		t.Errorf("statuses %v", got)
	}
	select {
	case err := <-d.gw.ended:
		t.Fatalf("somebody else's notification cancelled the call: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if got := cancelNote(`"\u0078"`, "alice", session); got != 202 {
		t.Errorf("status %d", got)
	}
	if err := d.cancelled(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestEndOfSessionCancelsItsCalls(t *testing.T) {
	for _, end := range []string{"delete", "close"} {
		d := newDoor(t, nil)
		session := d.open("alice")
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			d.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow"}}`, session)
		}()
		<-d.gw.started
		if end == "close" {
			d.server.Close()
		} else if res, _ := d.do(d.newRequest(context.Background(), "DELETE", "/mcp", "", session)); res.StatusCode != 204 {
			t.Errorf("delete: %d", res.StatusCode)
		}
		if err := d.cancelled(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", end, err)
		}
		<-answered
	}
}

// The connection is good for the next request after a stream.
func TestConnectionIsReusedAfterAStream(t *testing.T) {
	d := newDoor(t, func(o *mcpserver.Options) { quick(o); o.WriteTimeout = time.Second })
	session := d.open("alice")
	body, headers := modern("1", "tools/call", `"name":"progress"`)
	for again := range 2 {
		if res, got := d.post(withToken(body), headers...); res.StatusCode != 200 || !strings.Contains(got, "done") {
			t.Fatalf("%d %s", res.StatusCode, got)
		}
		if again == 0 {
			time.Sleep(1100 * time.Millisecond) // the write deadline passes
		}
		if got := d.ping("alice", session); got != 200 {
			t.Fatalf("afterwards: %d", got)
		}
	}
}
