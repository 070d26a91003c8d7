package mcpserver_test

import (
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
