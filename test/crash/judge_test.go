package crash

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Evidence is what clients were told, what the gateway says afterwards, and
// what the target did.
type evidence struct {
	stories      []story
	reservations map[string]string // key → state
	tickets      map[string]string // id → state
	acts         []string          // of the target, in order
}

// judge says what is wrong.
func judge(e evidence) (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	effects, at := map[string]int{}, map[string]int{}
	told := map[string]bool{}
	for i, line := range e.acts {
		switch words := strings.Fields(line); {
		case len(words) == 2 && words[0] == "effect":
			effects[words[1]]++
			at[words[1]] = i
		case len(words) == 3 && words[0] == "told" && words[1] == "decided":
			told[words[2]] = true
		}
	}
	for _, op := range slices.Sorted(maps.Keys(effects)) {
		if effects[op] > 1 {
			bad("%s was executed %d times", op, effects[op])
		}
		name, _, _ := strings.Cut(op, ".")
		if !slices.ContainsFunc(e.stories, func(s story) bool { return s.name == name }) {
			bad("%s was executed, and nobody asked for it", op)
		}
	}
	for _, s := range e.stories {
		for op, end := range s.ends {
			n, state := effects[op], e.reservations[op]
			ok := end == done && n == 1 && state == done || end == failed && n == 0 || end == unknown && state == unknown
			if !ok {
				bad("%s: its client was told %q, the gateway says %q, and it was executed %d times", op, end, state, n)
			}
		}
		for ticket, op := range s.tickets {
			if e.tickets[ticket] != "consumed" {
				bad("ticket %s of %s was approved, and is %q", ticket, op, e.tickets[ticket])
			}
			if !told[ticket] {
				bad("nobody was told that ticket %s was decided", ticket)
			}
		}
		problems = append(problems, judgeSaga(s, effects, at)...)
	}
	for key, state := range e.reservations {
		if state != done && state != failed && state != unknown {
			bad("%s was left %s", key, state)
		}
	}
	return problems
}

// judgeSaga holds the effects of a saga that was undone against each other.
func judgeSaga(s story, effects, at map[string]int) (problems []string) {
	if s.saga != "compensated" {
		return []string{fmt.Sprintf("the saga of %s is %q", s.name, s.saga)}
	}
	one, two := s.name+".saga.one", s.name+".saga.two"
	for _, op := range []string{one, two} {
		if effects[op] != effects[op+".undo"] {
			problems = append(problems, fmt.Sprintf("%s was done %d times, and undone %d times", op, effects[op], effects[op+".undo"]))
		}
	}
	order := []string{one, two, two + ".undo", one + ".undo"}
	for i := range len(order) - 1 {
		if effects[order[i]] > 0 && effects[order[i+1]] > 0 && at[order[i]] > at[order[i+1]] {
			problems = append(problems, fmt.Sprintf("%s came before %s", order[i+1], order[i]))
		}
	}
	return problems
}

// evidence looks into the store, and at the target.
func (h *house) evidence(t *testing.T, stories []story) evidence {
	t.Helper()
	return evidence{
		stories: stories, acts: acts(t, h.dir),
		reservations: h.must("SELECT key, state FROM reservations"),
		tickets:      h.must("SELECT id, state FROM tickets"),
	}
}

// TestJudge shows that each story that must not happen is noticed.
func TestJudge(t *testing.T) {
	fresh := func() evidence {
		return evidence{
			stories:      []story{{name: "a", saga: "compensated", ends: map[string]string{"a.keyed": done, "a.blind": unknown, "a.lost": failed}, tickets: map[string]string{"tk": "a.risky"}}},
			reservations: map[string]string{"a.keyed": done, "a.blind": unknown, "a.lost": failed},
			tickets:      map[string]string{"tk": "consumed"},
			acts: []string{"effect a.keyed", "effect a.blind", "told decided tk", "effect a.saga.one", "effect a.saga.two",
				"effect a.saga.two.undo", "effect a.saga.one.undo"},
		}
	}
	if p := judge(fresh()); p != nil {
		t.Fatalf("the control: %q", p)
	}
	for name, spoil := range map[string]func(*evidence){
		"executed twice":       func(e *evidence) { e.acts = append(e.acts, "effect a.keyed") },
		"unknown, twice":       func(e *evidence) { e.acts = append(e.acts, "effect a.blind") },
		"not executed":         func(e *evidence) { e.acts = e.acts[1:] },
		"failed, and executed": func(e *evidence) { e.acts = append(e.acts, "effect a.lost") },
		"outcome lost":         func(e *evidence) { e.reservations["a.keyed"] = unknown },
		"unknown forgotten":    func(e *evidence) { delete(e.reservations, "a.blind") },
		"left executing":       func(e *evidence) { e.reservations["b"] = "executing" },
		"decision lost":        func(e *evidence) { e.tickets["tk"] = "pending" },
		"not told": func(e *evidence) {
			e.acts = slices.DeleteFunc(e.acts, func(s string) bool { return strings.HasPrefix(s, "told") })
		},
		"asked by nobody":    func(e *evidence) { e.acts = append(e.acts, "effect b.keyed") },
		"not undone":         func(e *evidence) { e.acts = e.acts[:len(e.acts)-1] },
		"undone, never done": func(e *evidence) { e.acts = append(e.acts[:3:3], e.acts[4:]...) },
		"wrong order":        func(e *evidence) { a := e.acts; a[5], a[6] = a[6], a[5] },
		"saga stuck":         func(e *evidence) { e.stories[0].saga = "parked" },
	} {
		e := fresh()
		spoil(&e)
		if judge(e) == nil {
			t.Errorf("%s: not noticed", name)
		}
	}
}

// overlay is a file for go build: sources with one place changed each.
func overlay(t testing.TB, patches map[string][2]string) string {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	for file, change := range patches {
		path, err := filepath.Abs(filepath.Join("../..", file))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(string(b), change[0]) != 1 {
			t.Fatalf("%s does not have %q once: the patch must follow the source", file, change[0])
		}
		replace[path] = filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(replace[path], []byte(strings.Replace(string(b), change[0], change[1], 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
