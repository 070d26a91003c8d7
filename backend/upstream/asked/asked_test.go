package asked_test

import (
	"fmt"
	"testing"
)

// A question that names a task is that call's. Where a server gave two calls the same
// task, nobody knows whose it is, and neither client is asked.
func TestQuestionsOfATask(t *testing.T) {
	of := func(id string) string {
		return `,"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"` + id + `"}}`
	}
	for range 20 { // calls have no order
		s := newScene(t)
		a, b := s.call("ann", "a"), s.call("bob", "b")
		a.Task("a")
		b.Task("b")
		for i, id := range []string{"a", "b"} {
			s.asks(i, of(id))
			s.want(s.put, fmt.Sprint(id, " ", i))
			s.want(s.said, "{")
		}
		s.asks(2, of("c"))
		s.want(s.said, "refused")
		b.Task("a")
		s.asks(3, of("a"))
		s.want(s.said, "refused")
		b.Close()
		s.asks(4, of("a"))
		s.want(s.put, "a 4")
		s.want(s.said, "{")
		a.Close()
		s.silent()
	}
}
