package risk_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"
)

// The labels of a SQL line are no opinion: it is executed in a throw-away
// database, and its effect is what differs afterwards.
//
//	none     nothing differs
//	held     locks, a transaction or the session's settings
//	added    there is more than before: rows, objects, files
//	changed  values differ, nothing is gone
//	lost     rows, columns, objects or files are gone
//	refused  the server does not execute it
//	unrun    it is not executed here: it would leave the machine or stop the server
//
// What is harmless changes nothing, and what loses something is at least
// critical; anything else is an error of the analysers.

// A state is what a database holds: for each thing its contents.
type state map[string][]string

func (s state) set(key string, lines ...string) { s[key] = append(s[key], lines...) }

// effectOf compares two states.
func effectOf(before, after state) (effect, detail string) {
	gone, fresh, other, held := []string{}, []string{}, []string{}, []string{}
	keys := slices.Sorted(maps.Keys(before))
	for _, k := range keys {
		now, still := after[k]
		old := before[k]
		sort.Strings(old)
		sort.Strings(now)
		switch {
		case slices.Equal(old, now) && still:
		case strings.HasPrefix(k, "session:"):
			held = append(held, k)
		case !still && moved(k, old, before, after):
			other = append(other, k)
		case !still || strings.HasPrefix(k, "rows:") && len(now) < len(old):
			gone = append(gone, k)
		case strings.HasPrefix(k, "rows:") && contains(now, old):
			fresh = append(fresh, k)
		default:
			other = append(other, fmt.Sprintf("%s: %q → %q", k, old, now))
		}
	}
	for k := range after {
		if _, was := before[k]; !was {
			if strings.HasPrefix(k, "session:") {
				held = append(held, k)
			} else {
				fresh = append(fresh, k)
			}
		}
	}
	detail = fmt.Sprintf("gone %q, changed %q, new %q, session %q", gone, other, fresh, held)
	switch {
	case len(gone) > 0:
		return "lost", detail
	case len(other) > 0:
		return "changed", detail
	case len(fresh) > 0:
		return "added", detail
	case len(held) > 0:
		return "held", detail
	}
	return "none", detail
}

// moved tells whether something only bears another name now.
func moved(key string, value []string, before, after state) bool {
	kind, _, _ := strings.Cut(key, ":")
	for k, v := range after {
		if _, was := before[k]; !was && strings.HasPrefix(k, kind+":") {
			sort.Strings(v)
			if slices.Equal(v, value) {
				return true
			}
		}
	}
	return false
}

// contains tells whether all of part is in list, as often.
func contains(list, part []string) bool {
	count := map[string]int{}
	for _, s := range list {
		count[s]++
	}
	for _, s := range part {
		if count[s]--; count[s] < 0 {
			return false
		}
	}
	return true
}

// A laboratory executes one text, on what was planted, and says what it did.
type laboratory interface {
	plant(t *testing.T, seed string)
	observe(t *testing.T, text string) (effect, detail string)
}

// label writes what is seen into the corpora, for lines that were added. What it
// writes is to be read: a line that is said to be harmless and is not stays an error.
var label = flag.Bool("label", false, "write the effects that are seen into the SQL corpora")

// checkEffects executes each line of a dialect's corpora.
func checkEffects(t *testing.T, dialect string, lab laboratory) {
	t.Helper()
	seen := map[string]int{}
	for _, kind := range []string{dialect, heldOut + dialect, doors + dialect} {
		executeAll(t, kind, lab, seen)
	}
	lab.plant(t, data(t, heldOut2+dialect+".sql"))
	executeAll(t, heldOut2+dialect, lab, seen)
	t.Logf("%s: %v", dialect, seen)
	for _, effect := range []string{"none", "added", "changed", "lost"} { // the positive control
		if seen[effect] < 5 {
			t.Errorf("%s: only %d lines were %s: this test does not see effects", dialect, seen[effect], effect)
		}
	}
}

func executeAll(t *testing.T, kind string, lab laboratory, seen map[string]int) {
	t.Helper()
	labels := map[int]string{}
	few := 4
	if strings.HasSuffix(kind, "sqlite") || *label {
		few = 1 // they take no time
	}
	for _, c := range sample(corpus(t, kind), few) {
		if c.effect == "unrun" {
			seen["unrun"]++
			continue
		}
		effect, detail := lab.observe(t, c.text)
		if effect != c.effect && !*label { // a server has work of its own, such as vacuuming, that can be seen once
			effect, detail = lab.observe(t, c.text)
		}
		seen[effect]++
		labels[c.line] = c.verdict + " " + effect
		if effect != c.effect && !*label {
			t.Errorf("%s.txt:%d: %q is labelled %q, but executing it shows %q: %s", kind, c.line, c.text, c.effect, effect, detail)
		}
		harmless := c.verdict == "low" || c.verdict == "medium"
		if harmless && effect != "none" && effect != "refused" {
			t.Errorf("%s.txt:%d: %q is said to be %s, but it %s: %s", kind, c.line, c.text, c.verdict, effect, detail)
		}
		if effect == "lost" && c.verdict != "irreversible" && c.verdict != "critical" {
			t.Errorf("%s.txt:%d: %q is said to be %s, but something is lost: %s", kind, c.line, c.text, c.verdict, detail)
		}
	}
	if *label {
		relabel(t, kind, labels)
	}
}

func relabel(t *testing.T, kind string, labels map[int]string) {
	t.Helper()
	path := filepath.Join("testdata", kind+".txt")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(data), "\n")
	for n, l := range labels {
		_, text, _ := strings.Cut(lines[n-1], "\t")
		lines[n-1] = l + "\t" + text
	}
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestEffectOfStates(t *testing.T) {
	base := func() state {
		return state{"rows:a": {"1", "2"}, "object:table a": {"x"}, "session:role": {"r"}, "file:f": {"c"}}
	}
	for want, change := range map[string]func(state){
		"none":    func(state) {},
		"held":    func(s state) { s["session:lock"] = []string{"x"} },
		"added":   func(s state) { s["rows:a"] = []string{"2", "3", "1"} },
		"changed": func(s state) { s["rows:a"] = []string{"1", "3"} },
		"lost":    func(s state) { s["rows:a"] = []string{"2"} },
	} {
		after := base()
		change(after)
		if got, detail := effectOf(base(), after); got != want {
			t.Errorf("%s, want %s: %s", got, want, detail)
		}
	}
	renamed := base()
	delete(renamed, "object:table a")
	renamed["object:table b"] = []string{"x"}
	if got, _ := effectOf(base(), renamed); got != "changed" {
		t.Errorf("a new name is %s", got)
	}
	dropped := base()
	delete(dropped, "file:f")
	if got, _ := effectOf(base(), dropped); got != "lost" {
		t.Errorf("a file that is gone is %s", got)
	}
}
