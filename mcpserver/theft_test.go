package mcpserver_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// TO-08, afresh: an id that was taken opens nothing at its own gateway or another
// one, says no more than a guess does, and raises one alarm in a burst; its owner
// goes on.
func TestTO08_TakenIDTellsNothing(t *testing.T) {
	d, replica := newDoor(t, nil), newDoor(t, nil)
	session := d.open("alice")
	own := replica.open("bob")
	call := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{}}}`
	ask := func(at *door, method, token string, extra ...string) string {
		body := call
		if method != "POST" {
			body = ""
		}
		res, said := at.do(at.newRequest(t.Context(), method, "/mcp", body, append([]string{"Authorization: Bearer " + token, "Accept: application/json, text/event-stream"}, extra...)...))
		return fmt.Sprint(res.StatusCode, " ", said)
	}
	guess := "Mcp-Session-Id: " + strings.Repeat("A", len(session)-len("Mcp-Session-Id: "))
	for _, method := range []string{"POST", "GET", "DELETE"} {
		taken := ask(d, method, "bob", session)
		for what, got := range map[string]string{
			"a guess": ask(d, method, "bob", guess), "at another gateway": ask(replica, method, "bob", session), "at another, with its owner's token": ask(replica, method, "alice", session),
			"a resume": ask(d, method, "bob", session, "Last-Event-ID: get-1"),
		} {
			if got != taken || !strings.HasPrefix(got, "40") {
				t.Errorf("%s %s: %q; one that was taken: %q", method, what, got, taken)
			}
		}
	}
	var wg sync.WaitGroup
	for i := range 8 { // guesses beside the owner's work
		wg.Go(func() {
			for j := range 250 {
				if got := d.ping("bob", fmt.Sprintf("Mcp-Session-Id: %043d", i*1000+j)); got != 404 {
					t.Errorf("a guess: %d", got)
				}
				if j%50 == 0 {
					if got := d.ping("alice", session); got != 200 {
						t.Errorf("alice: %d", got)
					}
				}
			}
		})
	}
	wg.Wait()
	if n := strings.Count(d.log.String(), "another than its owner"); n != 1 {
		t.Errorf("%d alarms, want one for the burst: %s", n, d.log)
	}
	if id := strings.TrimPrefix(session, "Mcp-Session-Id: "); strings.Contains(d.log.String(), id) || len(id) < 22 {
		t.Errorf("the id of %d letters is in the log, or short", len(id))
	}
	if strings.Contains(replica.log.String(), "another than its owner") {
		t.Error("an alarm where nobody's session was asked for")
	}
	if d.made()+replica.made() != 0 {
		t.Error("a call came through")
	}
	if got := replica.ping("bob", own); got != 200 {
		t.Errorf("bob's own session: %d", got)
	}
}

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
