package crash

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sallyport.dev/sallyport/failpoint"
)

// An operator's word is heard and gets no answer, for the gateway dies. What it
// is about, an undo that did not act, is tried again at the next start, acts, and
// is unknown once more when that gateway dies, too. The operator says the same
// again: nothing may be undone a second time for that.
func TestWordSaidTwice(t *testing.T) {
	h := newHouse(t, programs(t, nil), nil)
	c := &client{house: h, story: story{name: "w"}}
	dies := func(point string, meanwhile func()) {
		t.Helper()
		ended, _ := h.run(point)
		meanwhile()
		<-ended
	}
	undo := func() (n int) {
		for _, line := range acts(t, h.dir) {
			if line == "effect w.saga.one.undo" {
				n++
			}
		}
		return n
	}
	// saga_run, three steps, the undo of the second: the sixth call is that of the first.
	dies(failpoint.Begun+":6", func() {
		for h.killed() == 0 {
			c.call("saga_run", c.plan(), "w.saga", "")
		}
	})
	id := c.find()
	var s toldSaga
	unknown := func(attempt int) {
		t.Helper()
		h.Eventually(enough, fmt.Sprintf("undo %d is unknown", attempt), func() error {
			s = c.status(id)
			if i := slices.IndexFunc(s.Steps, func(st toldStep) bool { return st.State == "undo_unknown" }); i < 0 || s.Steps[i].attempt() != attempt {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
	}
	word := []string{"saga", "resolve", id, "one", "failed", "--reason", "the target says so"}
	dies(failpoint.Resolved, func() {
		unknown(1)
		if n := undo(); n != 0 {
			t.Errorf("undone %d times", n)
		}
		if r := h.Run("", word...); r.Code == 0 {
			t.Errorf("the gateway died, and answered: %s", r)
		}
	})
	dies(failpoint.Finish, func() {})
	h.run("")
	defer h.end()
	unknown(2)
	if r := h.Run("", word...); r.Code == 0 || !strings.Contains(r.Err, "--attempt 2") {
		t.Errorf("the same word on another attempt: %s", r)
	}
	if n := undo(); n != 1 {
		t.Errorf("undone %d times", n)
	}
	h.Must("", "saga", "resolve", id, "one", "done", "--attempt", "2", "--reason", "the target says so")
	h.Eventually(enough, "it is undone", func() error {
		if s = c.status(id); s.State != "compensated" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if n := undo(); n != 1 {
		t.Errorf("undone %d times", n)
	}
}
