package mcpserver_test

import (
	"fmt"
	"testing"
	"time"

	"sallyport.dev/sallyport/mcpserver"
)

const pingBody = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

func (d *door) ping(cred, session string) int {
	d.t.Helper()
	res, _ := d.post(pingBody, session, "Authorization: Bearer "+cred)
	return res.StatusCode
}

func TestSessionsExpire(t *testing.T) {
	d := newDoor(t, func(o *mcpserver.Options) { o.SessionIdle = time.Millisecond })
	session := d.open("alice")
	time.Sleep(20 * time.Millisecond)
	if got := d.ping("alice", session); got != 404 {
		t.Errorf("idle session: %d", got)
	}
}

// A principal that opens session after session displaces only its own.
func TestSessionsAreBoundedPerPrincipal(t *testing.T) {
	d := newDoor(t, func(o *mcpserver.Options) { o.SessionsPerPrincipal = 3; o.Sessions = 5 })
	bob := d.open("bob")
	var alice []string
	for range 20 {
		alice = append(alice, d.open("alice"))
	}
	if got := d.ping("bob", bob); got != 200 {
		t.Errorf("bob's session: %d", got)
	}
	for i, s := range alice {
		want := 404
		if i >= 17 {
			want = 200
		}
		if got := d.ping("alice", s); got != want {
			t.Errorf("alice's session %d: %d, want %d", i, got, want)
		}
	}
	d.open("carol")
	res, body := d.post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`, "Authorization: Bearer carol")
	if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" {
		t.Errorf("a full table: %d %s", res.StatusCode, body)
	}
}

// A session with calls in flight is not displaced, and their number is bounded.
func TestBusySessions(t *testing.T) {
	d := newDoor(t, func(o *mcpserver.Options) { o.SessionsPerPrincipal = 1; o.CallsPerSession = 2 })
	session := d.open("alice")
	done := make(chan int, 2)
	for i := range 2 {
		go func() {
			res, _ := d.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"slow"}}`, i+10), session)
			done <- res.StatusCode
		}()
		<-d.gw.started
	}
	res, body := d.post(pingBody, session)
	if want := `{"jsonrpc":"2.0","id":1,"error":{"code":429,`; len(body) < len(want) || body[:len(want)] != want {
		t.Errorf("a third request: %d %s", res.StatusCode, body)
	}
	if res, _ := d.post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`); res.StatusCode != 503 {
		t.Errorf("a second session: %d", res.StatusCode)
	}
	close(d.gw.release)
	if a, b := <-done, <-done; a != 200 || b != 200 {
		t.Errorf("the calls: %d, %d", a, b)
	}
	if got := d.ping("alice", session); got != 200 {
		t.Errorf("afterwards: %d", got)
	}
}

func TestSessionIDsAreRandomAndVisible(t *testing.T) {
	d := newDoor(t, nil)
	seen := map[string]bool{}
	for range 50 {
		s := d.open("alice")[len("Mcp-Session-Id: "):]
		if seen[s] || len(s) < 40 {
			t.Fatalf("session id %q", s)
		}
		seen[s] = true
		for _, c := range s {
			if c < 0x21 || c > 0x7e {
				t.Fatalf("session id %q", s)
			}
		}
	}
}
