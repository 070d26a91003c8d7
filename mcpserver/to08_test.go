package mcpserver_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// A session's id is no credential: with another's token, or none, it opens
// nothing, and its owner notices nothing.
func TestTO08_SessionOfAnotherPrincipal(t *testing.T) {
	d := newDoor(t, nil)
	session := d.open("alice")
	id := strings.TrimPrefix(session, "Mcp-Session-Id: ")
	call := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"a":1}}}`
	bob, nobody := "Authorization: Bearer bob", "-Authorization"
	own := d.open("bob")
	for _, c := range []struct {
		what, method, body string
		extra              []string
		want               string
	}{
		{"POST with bob's token", "POST", call, []string{session, bob}, "404"},
		{"notification with bob's token", "POST", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`, []string{session, bob}, "404"},
		{"GET with bob's token", "GET", "", []string{session, bob, "Accept: text/event-stream"}, "40"}, // 404, or 405 where there is no stream to GET
		{"resume with bob's token", "GET", "", []string{session, bob, "Accept: text/event-stream", "Last-Event-ID: 1"}, "40"},
		{"DELETE with bob's token", "DELETE", "", []string{session, bob}, "404"},
		{"POST without a token", "POST", call, []string{session, nobody}, "401"},
		{"GET without a token", "GET", "", []string{session, nobody, "Accept: text/event-stream"}, "40"},
		{"DELETE without a token", "DELETE", "", []string{session, nobody}, "401"},
		{"twice", "POST", call, []string{session, "+Mcp-Session-Id: " + id}, "400"},
		{"bob's and alice's", "POST", call, []string{own, "+Mcp-Session-Id: " + id, bob}, "400"},
		{"empty", "POST", call, []string{"Mcp-Session-Id: "}, "400"},
		{"long", "POST", call, []string{"Mcp-Session-Id: " + strings.Repeat("x", 8000)}, "404"},
		{"one letter less", "POST", call, []string{session[:len(session)-1]}, "404"},
		{"another case", "POST", call, []string{"Mcp-Session-Id: " + swapped(id)}, "404"},
		{"a space behind", "POST", call, []string{"Mcp-Session-Id: " + id + "%20"}, "404"},
	} {
		before := d.made()
		res, body := d.do(d.newRequest(context.Background(), c.method, "/mcp", c.body, c.extra...))
		if !strings.HasPrefix(fmt.Sprint(res.StatusCode), c.want) {
			t.Errorf("%s: %d %s, want %s", c.what, res.StatusCode, body, c.want)
		}
		if after := d.made(); after != before {
			t.Errorf("%s: a call came through", c.what)
		}
	}
	for i := range 1000 {
		if got := d.ping("alice", fmt.Sprintf("Mcp-Session-Id: %032x", i)); got != 404 {
			t.Fatalf("a guess: %d", got)
		}
	}
	if got := d.ping("alice", session); got != 200 {
		t.Errorf("alice's own session: %d", got)
	}
}

func swapped(s string) string {
	if up := strings.ToUpper(s); up != s {
		return up
	}
	return strings.ToLower(s)
}

// made counts the calls that came through the door.
func (d *door) made() int {
	d.gw.mu.Lock()
	defer d.gw.mu.Unlock()
	return len(d.gw.calls)
}
