package asked_test

import (
	"encoding/json"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/upstream/asked"
	"sallyport.dev/sallyport/wire"
)

// A question that names a task is that call's. Where a server gave two calls the same
// task, nobody knows whose it is, and neither client is asked.
func TestQuestionsOfATask(t *testing.T) {
	of := func(id string) wire.Message {
		return wire.Message{Params: json.RawMessage(`{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"` + id + `"}}}`)}
	}
	for range 20 { // calls have no order
		var r asked.Room
		a, b := r.Open(t.Context(), sallyport.Job{}), r.Open(t.Context(), sallyport.Job{})
		a.Task("a")
		b.Task("b")
		if r.Of(of("a")) != a || r.Of(of("b")) != b || r.Of(of("c")) != nil || r.Of(wire.Message{}) != nil {
			t.Fatal("a question goes to another call than the one that it names")
		}
		b.Task("a")
		if r.Of(of("a")) != nil {
			t.Fatal("a question of two calls' task goes to one of them")
		}
		b.Close()
		if r.Of(of("a")) != a {
			t.Fatal("a call does not get its question")
		}
	}
}
