package mcpserver

import (
	"testing"
	"time"

	"sallyport.dev/sallyport"
)

// Every method that the router knows is an operation, or says why it needs
// none. The router reads the same table, so there is no other method.
func TestEveryMethodIsAnOperationOrSaysWhy(t *testing.T) {
	kinds := map[sallyport.Kind]bool{sallyport.CallTool: true, sallyport.ReadResource: true, sallyport.GetPrompt: true, sallyport.Complete: true, sallyport.Subscribe: true}
	seen := map[string]bool{}
	for _, m := range methods {
		if (m.operation == "") == (m.reason == "") {
			t.Errorf("%s: wants either an operation or a reason, has %q and %q", m.name, m.operation, m.reason)
		}
		if m.operation != "" && !kinds[m.operation] {
			t.Errorf("%s: unknown operation %q", m.name, m.operation)
		}
		if m.eras == 0 || seen[m.name] {
			t.Errorf("%s: of no era, or twice in the table", m.name)
		}
		seen[m.name] = true
	}
}

func TestSessionClock(t *testing.T) {
	opts := Options{SessionIdle: time.Minute, Sessions: 2, SessionsPerPrincipal: 2, CallsPerSession: 1}
	table := newSessionTable(&opts)
	who, now := owner{id: "alice"}, time.Unix(1000, 0)
	id, err := table.open(who, "", sallyport.Abilities{}, now)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // use keeps it alive
		if now = now.Add(59 * time.Second); table.find(id, who, now) == nil {
			t.Fatal("a session in use has expired")
		}
	}
	s := table.find(id, who, now)
	if e := s.begin([]byte("1"), func(error) {}); e != nil {
		t.Fatal(e)
	}
	if now = now.Add(time.Hour); table.find(id, who, now) == nil {
		t.Error("a session with a call in flight has expired")
	}
	s.end([]byte("1"))
	other, _ := table.open(owner{id: "bob"}, "", sallyport.Abilities{}, now)
	if now = now.Add(2 * time.Minute); table.find(id, who, now) != nil {
		t.Error("an idle session has not expired")
	}
	// A full table first loses what has expired.
	if _, err := table.open(who, "", sallyport.Abilities{}, now); err != nil {
		t.Error(err)
	}
	if _, err := table.open(who, "", sallyport.Abilities{}, now); err != nil || table.byID[other] != nil || len(table.byOwner) != 1 {
		t.Errorf("%v, %d owners", err, len(table.byOwner))
	}
}
