package mcpserver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/mcpserver"
)

const waitsForAHuman = `{"jsonrpc":"2.0","id":"w","method":"tools/call","params":{"name":"pending","_meta":{"progressToken":1}}}`

// FO-33: the gateway learns who cancelled a call: the client, by its id and no
// other; the end of its session; or nobody, where a connection broke.
func TestFO33_WhoCancelled(t *testing.T) {
	long := func(o *mcpserver.Options) { quick(o); o.ApprovalWait = time.Hour }
	for name, tt := range map[string]struct {
		end func(d *door, session string)
		by  string
	}{
		"notification": {func(d *door, session string) {
			for _, id := range []string{`"nobody"`, `7`, `"w"`} {
				d.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`, session)
			}
		}, "client"},
		"session":  {func(d *door, session string) { d.do(d.newRequest(context.Background(), "DELETE", "/mcp", "", session)) }, "session"},
		"shutdown": {func(d *door, _ string) { d.server.Close() }, "shutdown"},
	} {
		d := newDoor(t, long)
		session := d.open("alice")
		done := make(chan struct{})
		go func() { defer close(done); d.post(waitsForAHuman, session) }()
		for d.gw.count() == 0 {
			time.Sleep(time.Millisecond)
		}
		tt.end(d, session)
		select {
		case err := <-d.gw.causes:
			if c, ok := errors.AsType[*sallyport.Cancellation](err); !ok || c.By != tt.by {
				t.Errorf("%s: the cause is %v, want %s", name, err, tt.by)
			}
		case <-time.After(patience):
			t.Fatalf("%s: not cancelled", name)
		}
		<-done
		d.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"w"}}`, session) // it is over
	}
}

// A client of the earlier revisions that hangs up does not cancel its call; but
// while a human is waited for, the gateway is told that nobody listens.
func TestFO33_HangsUpWhileWaiting(t *testing.T) {
	d := newDoor(t, func(o *mcpserver.Options) { quick(o); o.ApprovalWait = time.Hour })
	session := d.open("alice")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		res, err := d.http.Client().Do(d.newRequest(ctx, "POST", "/mcp", waitsForAHuman, session))
		if err == nil {
			<-ctx.Done()
			res.Body.Close()
		}
	}()
	for d.gw.count() == 0 {
		time.Sleep(time.Millisecond)
	}
	select {
	case <-d.gw.gone:
		t.Fatal("somebody listens")
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	select {
	case <-d.gw.gone:
	case err := <-d.gw.causes:
		t.Errorf("it was cancelled: %v", err)
	case <-time.After(patience):
		t.Error("the gateway is not told")
	}
}
