package asked_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/upstream/asked"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/wire"
)

// A scene is a connection whose server asks, and what comes of it.
type scene struct {
	t    *testing.T
	room asked.Room
	said chan string // responses to the server
	put  chan string // "NAME ID" of each question that a client was asked
}

func newScene(t *testing.T) *scene {
	return &scene{t: t, said: make(chan string, 100), put: make(chan string, 100)}
}

// call opens a call of a principal; its client accepts what it is asked.
func (s *scene) call(who, name string) *asked.Desk {
	return s.room.Open(s.t.Context(), sallyport.Job{
		Who: sallyport.Principal{Tenant: "t", ID: who},
		Ask: func(_ context.Context, q []sallyport.Question) ([]sallyport.Answer, error) {
			text, _ := wire.String(wire.Member(q[0].Params, "message"))
			s.put <- name + " " + text
			return []sallyport.Answer{{Result: json.RawMessage(`{"action":"accept"}`)}}, nil
		},
	})
}

// asks has the server ask, with _meta or without.
func (s *scene) asks(id int, meta string) {
	s.room.Put(wire.Message{
		ID: json.RawMessage(fmt.Sprint(id)), Method: sallyport.AskUser, Params: json.RawMessage(fmt.Sprintf(`{"message":"%d"%s}`, id, meta)),
	}, func(_ context.Context, m wire.Message) error {
		text := string(m.ID) + " " + string(m.Result)
		if m.Error != nil {
			text = string(m.ID) + " refused: " + m.Error.Message
		}
		s.said <- text
		return nil
	})
}

func (s *scene) want(from chan string, part string) {
	s.t.Helper()
	select {
	case got := <-from:
		if !strings.Contains(got, part) {
			s.t.Errorf("got %q, want %q", got, part)
		}
	case <-time.After(await.Patience):
		s.t.Errorf("nothing came, want %q", part)
	}
}

// silent is for the end: nobody was asked, and nothing said, beside what was wanted.
func (s *scene) silent() {
	s.t.Helper()
	if len(s.said)+len(s.put) > 0 {
		s.t.Errorf("also: %d responses, %d questions", len(s.said), len(s.put))
	}
}

func TestAQuestionOfTheOnlyCall(t *testing.T) {
	s := newScene(t)
	told := 0
	s.room.Asked = func() { told++ }
	s.asks(1, "")
	s.want(s.said, "1 refused: nobody knows which call this belongs to: no call")
	a := s.call("ann", "a")
	s.asks(2, "")
	s.want(s.put, "a 2")
	s.want(s.said, `2 {"action":"accept"}`)
	a.Close()
	b := s.call("ann", "b")
	defer b.Close()
	s.asks(3, "") // of the same principal
	s.want(s.put, "b 3")
	s.want(s.said, "3 {")
	if told != 2 { // the first was in no call
		t.Errorf("told %d times that it asks", told)
	}
	s.silent()
}

// A server that asks for folders when it starts is none that asks in the middle of calls.
func TestFoldersAreAskedForAtTheStart(t *testing.T) {
	s := newScene(t)
	told := 0
	s.room.Asked = func() { told++ }
	for i, want := range []int{0, 1} {
		d := s.call("ann", "a")
		s.room.Put(wire.Message{ID: json.RawMessage(fmt.Sprint(i)), Method: sallyport.AskRoots, Params: json.RawMessage(`{}`)}, func(context.Context, wire.Message) error { return nil })
		s.want(s.put, "a ")
		d.Close()
		if told != want {
			t.Errorf("call %d: told %d times that it asks", i, told)
		}
	}
}

// While several calls of one principal are under way, a question waits until only
// one can have asked it.
func TestAQuestionIsHeldBack(t *testing.T) {
	s := newScene(t)
	a, b, c := s.call("ann", "a"), s.call("ann", "b"), s.call("ann", "c")
	s.asks(1, "")
	s.asks(2, "")
	s.room.Notice(wire.Message{Method: "notifications/cancelled", Params: json.RawMessage(`{"requestId":2}`)})
	b.Close()
	s.silent()
	a.Close()
	s.want(s.put, "c 1")
	s.want(s.said, "1 {")
	d := s.call("ann", "d")
	s.asks(3, "")
	for i := range 17 { // 16 wait at most
		s.asks(100+i, "")
	}
	s.want(s.said, "refused: nobody knows which call this belongs to: several calls of the same caller")
	s.want(s.said, "refused: nobody knows which call this belongs to: several calls of the same caller")
	c.Close()
	d.Close() // they may be put to d just before
	for range 16 {
		select {
		case <-s.said:
		case <-time.After(await.Patience):
			t.Fatal("a question has no response")
		}
	}
}

func TestAQuestionIsHeldBackForSoLong(t *testing.T) {
	s := newScene(t)
	s.room.Hold = time.Millisecond
	a, b := s.call("ann", "a"), s.call("ann", "b")
	defer a.Close()
	defer b.Close()
	s.asks(1, "")
	s.want(s.said, "1 refused: nobody knows which call this belongs to: several calls of the same caller")
	s.silent()
}

// On a connection that others use, or have used, no question is put to anybody: it
// could be of a call that is over.
func TestAQuestionNeverCrossesToAnotherPrincipal(t *testing.T) {
	s := newScene(t)
	a := s.call("ann", "a")
	b := s.call("ann", "a2")
	s.asks(1, "") // held back
	other := s.call("bob", "b")
	s.want(s.said, "1 refused: nobody knows which call this belongs to: several callers")
	s.asks(2, "")
	s.want(s.said, "2 refused: nobody knows which call this belongs to: several callers")
	a.Close()
	b.Close()
	s.asks(3, "") // ann's call was given up, and bob's is the only one
	s.want(s.said, "3 refused: nobody knows which call this belongs to: several callers")
	other.Close()
	last := s.call("ann", "c")
	defer last.Close()
	s.asks(4, "")
	s.want(s.said, "4 refused: nobody knows which call this belongs to: several callers")
	last.Task("tk")
	s.asks(5, `,"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"tk"}}`) // what is named is certain
	s.want(s.put, "c 5")
	s.want(s.said, "5 {")
	s.silent()
}

// A user on whose behalf an agent works, and a tenant, are parts of who a principal is.
func TestWhoseAConnectionIs(t *testing.T) {
	ann := sallyport.Principal{Tenant: "t", ID: "ann"}
	for _, other := range []sallyport.Principal{{Tenant: "t2", ID: "ann"}, {Tenant: "t", ID: "bob"}, {Tenant: "t", ID: "ann", OnBehalfOf: "cy"}} {
		var r asked.Room
		for range 2 {
			if !r.Keep(asked.Whose(ann)) {
				t.Fatal("the first does not keep it")
			}
		}
		if r.Keep(asked.Whose(other)) {
			t.Errorf("%+v has it, too", other)
		}
		r.Open(t.Context(), sallyport.Job{Who: other}).Close()
		if r.Keep(asked.Whose(ann)) {
			t.Errorf("it is ann's alone after a call of %+v", other)
		}
	}
}

func TestWhatSpeaksOfAsking(t *testing.T) {
	for def, want := range map[string]bool{
		`{"name":"trigger-elicitation-request"}`: true, `{"name":"x","description":"Trigger a Request from the Server for LLM Sampling"}`: true,
		`{"name":"get-roots-list","description":"Lists the current MCP roots; calls roots/list"}`:       true,
		`{"name":"sample","description":"Draws a random sample; also finds the roots of a polynomial"}`: false,
		`{"name":"echo"}`: false, `{}`: false,
	} {
		if got := asked.Speaks(json.RawMessage(def)); got != want {
			t.Errorf("%s: %t", def, got)
		}
	}
}
