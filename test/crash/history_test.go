package crash

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// What clients and operators saw of a key, held against what a key may do: there
// must be an order of all requests that explains every answer, kills included.
// Nobody's answer means that the request may have got to any point.

// A wish is a request that concerns one key.
type wish struct {
	key  string
	what string // call, approve, resolve; look: the store, at the end
	word string // of resolve
}

// asksHuman reports whether a human must approve what runs under a key.
func (a wish) asksHuman() bool { return strings.HasSuffix(a.key, ".risky") }

// How a key stands, and what is answered about it; see also done, failed, unknown.
const (
	fresh    = ""
	pending  = "pending"
	approved = "approved"
	nobody   = "no answer"
)

// after is how a key that stands so may stand when a request was answered so.
func (a wish) after(state, answer string) (next []string) {
	runnable := state == approved || !a.asksHuman() && (state == fresh || state == failed)
	opens := a.asksHuman() && (state == fresh || state == failed || state == pending)
	switch a.what {
	case "call":
		switch answer {
		case nobody:
			next = []string{state}
			if runnable {
				next = append(next, done, failed, unknown)
			}
			if opens {
				next = append(next, pending)
			}
		case pending:
			if opens {
				next = []string{pending}
			}
		default: // it ran, or had run
			if runnable || state == answer {
				next = []string{answer}
			}
		}
	case "approve":
		if state == pending || state == approved {
			next = []string{approved}
		}
	case "resolve":
		if state == unknown {
			next = []string{a.word}
		}
	case "look":
		if state == answer {
			next = []string{state}
		}
	}
	return next
}

var keys = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{fresh} },
	Step: func(state, input, output any) (next []any) {
		for _, s := range input.(wish).after(state.(string), output.(string)) {
			next = append(next, s)
		}
		return next
	},
}).ToModel()

// A history is what was asked and answered, in time.
type sights struct {
	mu    sync.Mutex
	began time.Time
	all   map[string][]porcupine.Operation // by key
}

// note returns what records the answer to a request that is made now.
func (h *sights) note(a wish) (answered func(answer string, more ...any)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all, h.began = map[string][]porcupine.Operation{}, time.Now()
	}
	call := time.Since(h.began)
	return func(answer string, more ...any) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.all[a.key] = append(h.all[a.key], porcupine.Operation{Input: a, Output: answer, Metadata: more, Call: int64(call), Return: int64(time.Since(h.began))})
	}
}

// judge says which keys did what a key may not do.
func (h *sights) judge(states map[string]string) (problems []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, seen := range h.all {
		now := int64(time.Since(h.began))
		seen = append(slices.Clone(seen), porcupine.Operation{Input: wish{key: key, what: "look"}, Output: states[key], Call: now, Return: now + 1})
		for i := range seen {
			seen[i].ClientId = i // each request is somebody's own
		}
		if porcupine.CheckOperationsTimeout(keys, seen, time.Minute) == porcupine.Illegal {
			problems = append(problems, fmt.Sprintf("no order explains what was seen of %s: %s", key, tellAll(seen)))
		}
	}
	return problems
}

func tellAll(seen []porcupine.Operation) string {
	var b strings.Builder
	for _, o := range seen {
		a := o.Input.(wish)
		fmt.Fprintf(&b, "\n  %d-%d ms %s %s→ %s %v", o.Call/1e6, o.Return/1e6, a.what, a.word, o.Output, o.Metadata)
	}
	return b.String()
}

// TestKeys shows that each history that must not happen is noticed.
func TestKeys(t *testing.T) {
	type seen = []string // what → answer
	check := func(key, end string, all seen) []string {
		var h sights
		for _, s := range all {
			what, answer, _ := strings.Cut(s, " → ")
			what, word, _ := strings.Cut(what, " ")
			h.note(wish{key: key, what: what, word: word})(answer)
		}
		return h.judge(map[string]string{key: end})
	}
	for name, c := range map[string]struct {
		key, end string
		all      seen
	}{
		"run, and replayed":               {"a.keyed", done, seen{"call → done", "call → done"}},
		"killed, settled and run again":   {"a.keyed", done, seen{"call → no answer", "call → unknown", "resolve failed → ok", "call → done"}},
		"killed before it began":          {"a.keyed", done, seen{"call → no answer", "call → done"}},
		"approved and run":                {"a.risky", done, seen{"call → pending", "approve → ok", "call → no answer", "call → done"}},
		"killed, and nobody knew":         {"a.blind", unknown, seen{"call → no answer", "call → unknown"}},
		"killed before anybody was asked": {"a.risky", done, seen{"call → no answer", "call → pending", "approve → ok", "call → done"}},
	} {
		if p := check(c.key, c.end, c.all); p != nil {
			t.Errorf("the control %s: %q", name, p)
		}
	}
	for name, c := range map[string]struct {
		key, end string
		all      seen
	}{
		"an outcome is forgotten":        {"a.keyed", done, seen{"call → done", "call → unknown", "resolve done → ok"}},
		"unknown is run again":           {"a.keyed", done, seen{"call → unknown", "call → done"}},
		"a decision is lost":             {"a.risky", done, seen{"call → pending", "approve → ok", "call → pending", "approve → ok", "call → done"}},
		"it runs and nobody approved it": {"a.risky", done, seen{"call → pending", "call → done"}},
		"a settled outcome turns":        {"a.blind", unknown, seen{"call → unknown", "resolve done → ok", "call → unknown"}},
		"the key is forgotten":           {"a.keyed", fresh, seen{"call → done"}},
		"unknown becomes known alone":    {"a.blind", done, seen{"call → unknown"}},
	} {
		if check(c.key, c.end, c.all) == nil {
			t.Errorf("%s: not noticed", name)
		}
	}
}
