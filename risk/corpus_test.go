package risk_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk"
)

// An entry is one line of a corpus.
type entry struct {
	line    int
	verdict string
	text    string
}

func corpus(t testing.TB, name string) []entry {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	var out []entry
	for i, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		if strings.HasPrefix(line, "#") || line == "" {
			continue
		}
		verdict, text, ok := strings.Cut(line, "\t")
		if !ok {
			t.Fatalf("%s.txt:%d: want verdict, tab, text", name, i+1)
		}
		out = append(out, entry{i + 1, verdict, strings.ReplaceAll(text, "⏎", "\n")})
	}
	return out
}

// engine returns a warm Engine. All tests share one cache on disk.
func engine(t testing.TB) *risk.Engine {
	t.Helper()
	e, err := risk.New(risk.Options{CacheDir: sharedCache(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e
}

func verdict(r sallyport.Risk) string {
	if r.Irreversible {
		return "irreversible"
	}
	return r.Level.String()
}

func analysers(e *risk.Engine) map[string]func(string) sallyport.Risk {
	return map[string]func(string) sallyport.Risk{
		"postgres": func(s string) sallyport.Risk { return e.SQL("postgres", s) },
		"sqlite":   func(s string) sallyport.Risk { return e.SQL("sqlite", s) },
		"shell":    e.Shell,
		"http":     e.HTTP,
	}
}

// Every line of every corpus gets its verdict. The report is the share of what
// cannot be undone that is stopped, and of harmless lines that are.
func TestCorpora(t *testing.T) {
	e := engine(t)
	total, harmlessTotal := 0, 0
	for kind, judge := range analysers(e) {
		stopped, dangerous, alarms, harmless := 0, 0, 0, 0
		for _, c := range corpus(t, kind) {
			total++
			r := judge(c.text)
			got := verdict(r)
			if got != c.verdict {
				t.Errorf("%s.txt:%d: %q is %s, want %s: %q", kind, c.line, c.text, got, c.verdict, r.Reasons)
			}
			if r.Reasons == nil || r.Objects == nil || len(r.Reasons) == 0 {
				t.Errorf("%s.txt:%d: %q: reasons %#v, objects %#v: want a reason, and no nil", kind, c.line, c.text, r.Reasons, r.Objects)
			}
			if r.Irreversible && r.Level != sallyport.Critical {
				t.Errorf("%s.txt:%d: irreversible, but %s", kind, c.line, r.Level)
			}
			switch c.verdict {
			case "irreversible":
				dangerous++
				if r.Level == sallyport.Critical {
					stopped++
				}
			case "low", "medium":
				harmless++
				if r.Level == sallyport.Critical {
					alarms++
				}
			}
		}
		harmlessTotal += harmless
		t.Logf("%-8s irreversible stopped: %d of %d, false alarms: %d of %d harmless", kind, stopped, dangerous, alarms, harmless)
		if stopped != dangerous || alarms*50 > harmless {
			t.Errorf("%s: want every irreversible line stopped and at most 2 %% of the harmless ones", kind)
		}
	}
	if total < 250 || harmlessTotal < 100 {
		t.Errorf("the corpora have %d lines, %d harmless; want at least 250 and 100", total, harmlessTotal)
	}
}
