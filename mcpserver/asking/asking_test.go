package asking_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/mcpserver/asking"
	"sallyport.dev/sallyport/wire"
)

// A response is good once, for one question, whichever order they come in.
func TestResponsesAreGoodOnce(t *testing.T) {
	var d asking.Desk
	sent := make(chan wire.Message, 10)
	write := func(b []byte) bool {
		m, err := wire.ParseMessage(b)
		if err != nil {
			t.Errorf("%s: %v", b, err)
		}
		sent <- m
		return true
	}
	done := make(chan string, 1)
	go func() {
		a, err := d.Ask(t.Context(), wire.Version2025_11_25, []sallyport.Question{{Method: sallyport.AskRoots}, {Method: sallyport.AskRoots}}, nil, write)
		done <- fmt.Sprintf("%s %s %v", a[0].Result, a[1].Refusal, err)
	}()
	first, second := <-sent, <-sent
	one := wire.Message{ID: first.ID, Result: json.RawMessage(`{"n":1}`)}
	if !d.Take(one) || d.Take(one) {
		t.Error("a response is not good once")
	}
	if d.Take(wire.Message{ID: json.RawMessage(`"ask-x"`), Result: json.RawMessage(`{}`)}) || d.Take(wire.Message{ID: json.RawMessage("1"), Result: json.RawMessage(`{}`)}) {
		t.Error("a response to nothing is taken")
	}
	if !d.Take(wire.Message{ID: second.ID, Error: &wire.Error{Code: -1, Message: "no"}}) {
		t.Error("the second is not taken")
	}
	if got := <-done; got != `{"n":1} no <nil>` {
		t.Errorf("%s", got)
	}
}

// Where the question cannot be written, or nobody waits any more, there is no answer.
func TestNobodyToAsk(t *testing.T) {
	var d asking.Desk
	q := []sallyport.Question{{Method: sallyport.AskRoots}}
	if _, err := d.Ask(t.Context(), "", q, nil, func([]byte) bool { return false }); err == nil {
		t.Error("a question that was not written is answered")
	}
	ctx, cancel := context.WithCancel(t.Context())
	var id json.RawMessage
	var told []string
	_, err := d.Ask(ctx, "", q, nil, func(b []byte) bool {
		m, _ := wire.ParseMessage(b)
		if m.IsRequest() {
			id = m.ID
			cancel()
		}
		told = append(told, m.Method)
		return true
	})
	if !errors.Is(err, context.Canceled) || len(told) != 2 || told[1] != "notifications/cancelled" || d.Take(wire.Message{ID: id, Result: json.RawMessage(`{}`)}) {
		t.Errorf("%v, told %q", err, told)
	}
	full := make([]sallyport.Question, 65)
	if _, err := d.Ask(t.Context(), "", full, nil, func([]byte) bool { return true }); err == nil {
		t.Error("65 questions at once")
	}
}
