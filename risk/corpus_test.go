package risk_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk"
)

// An entry is one line of a corpus.
type entry struct {
	line    int
	verdict string
	effect  string // what executing it was seen to do, "" if nobody looked
	text    string
}

// every is whether all lines of the corpora are executed, and not one of
// several: `make corpus` and `make soak` ask for that.
var every = os.Getenv("SALLYPORT_CORPUS") != "" || os.Getenv("SALLYPORT_SOAK") != ""

// sample is one line of each few of a corpus, unless every is set.
func sample(lines []entry, few int) []entry {
	if every {
		return lines
	}
	out := make([]entry, 0, len(lines)/few+1)
	for i := 0; i < len(lines); i += few {
		out = append(out, lines[i])
	}
	return out
}

// corpus reads testdata/NAME.txt. A line is the verdict, for SQL also the
// effect after a space, a tab, and the text. In the text ⏎ stands for a line
// break, ␀ for NUL, and \u2028 and the like for characters that nobody can see.
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
		label, text, ok := strings.Cut(line, "\t")
		if !ok {
			t.Fatalf("%s.txt:%d: want verdict, tab, text", name, i+1)
		}
		verdict, effect, _ := strings.Cut(label, " ")
		out = append(out, entry{i + 1, verdict, effect, unseen.Replace(text)})
	}
	return out
}

var unseen = strings.NewReplacer("⏎", "\n", "␀", "\x00", `\u2028`, "\u2028", `\u2029`, "\u2029", `\u0085`, "\u0085", `\u200b`, "\u200b",
	`\ufeff`, "\ufeff", `\u00a0`, "\u00a0", `\x0b`, "\v", `\x0c`, "\f", `\x0d`, "\r", `\xff`, "\xff", `\xc0\xa7`, "\xc0\xa7", `\xbf\x5c`, "\xbf\\")

// engine returns a warm Engine that has time, so that no pause of a busy machine
// changes a verdict. All tests share one cache on disk.
func engine(t testing.TB) *risk.Engine {
	t.Helper()
	return engineWith(t, time.Minute)
}

// hurried returns a warm Engine with the time that calls have.
func hurried(t testing.TB) *risk.Engine {
	t.Helper()
	return engineWith(t, 0)
}

func engineWith(t testing.TB, limit time.Duration) *risk.Engine {
	t.Helper()
	e, err := risk.New(risk.Options{CacheDir: sharedCache(t), Internal: []string{"example.com"}, Time: limit})
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
		"mysql":    func(s string) sallyport.Risk { return e.SQL("mysql", s) },
		"shell":    e.Shell,
		"http":     e.HTTP,
		"cloud":    e.Cloud,
		"money": func(s string) sallyport.Risk {
			args, reversible := strings.CutPrefix(s, "REVERSIBLE ")
			return e.Args(payTool(reversible), []byte(args))
		},
		"messages":   func(s string) sallyport.Risk { return e.Args(mailTool, []byte(s)) },
		"undeclared": func(s string) sallyport.Risk { return e.Args(undeclared, []byte(s)) },
	}
}

// A tally counts, for one corpus or all of them, what became of its lines.
type tally struct {
	lines, irreversible, stopped, harmless, alarms int
}

func (a *tally) add(b tally) {
	a.lines += b.lines
	a.irreversible += b.irreversible
	a.stopped += b.stopped
	a.harmless += b.harmless
	a.alarms += b.alarms
}

func (a tally) log(t *testing.T, name string) {
	t.Helper()
	t.Logf("%-9s %4d lines · irreversible stopped %3d of %3d (%5.1f %%) · harmless %3d, false alarms %d (%.1f %%)", name, a.lines,
		a.stopped, a.irreversible, 100*float64(a.stopped)/float64(max(a.irreversible, 1)),
		a.harmless, a.alarms, 100*float64(a.alarms)/float64(max(a.harmless, 1)))
	if a.stopped != a.irreversible || a.alarms*50 > a.harmless {
		t.Errorf("%s: want every irreversible line stopped and at most 2 %% of the harmless ones", name)
	}
}

// Every line of every corpus gets its verdict. The report is the share of what
// cannot be undone that is stopped, and of harmless lines that are.
func TestCorpora(t *testing.T) {
	e := engine(t)
	var all, sql tally
	judges := analysers(e)
	for _, kind := range slices.Sorted(maps.Keys(judges)) {
		var one tally
		for _, c := range corpus(t, kind) {
			r := judges[kind](c.text)
			checkEntry(t, kind, c, r)
			one.count(c, r)
		}
		one.log(t, kind)
		all.add(one)
		if slices.Contains(dialects, kind) {
			sql.add(one)
		}
	}
	sql.log(t, "SQL")
	all.log(t, "all")
	if all.lines < 600 || all.harmless < 250 || sql.lines < 400 || sql.harmless < 200 {
		t.Errorf("the corpora are too small: %+v, of it SQL %+v", all, sql)
	}
}

func (a *tally) count(c entry, r sallyport.Risk) {
	a.lines++
	switch {
	case c.verdict == "irreversible" || c.effect == "lost":
		a.irreversible++
		if r.Level == sallyport.Critical {
			a.stopped++
		}
	case c.verdict == "low" || c.verdict == "medium":
		a.harmless++
		if r.Level == sallyport.Critical {
			a.alarms++
		}
	}
}

func checkEntry(t *testing.T, kind string, c entry, r sallyport.Risk) {
	t.Helper()
	if got := verdict(r); got != c.verdict {
		t.Errorf("%s.txt:%d: %q is %s, want %s: %q", kind, c.line, c.text, got, c.verdict, r.Reasons)
	}
	if r.Reasons == nil || r.Objects == nil || len(r.Reasons) == 0 {
		t.Errorf("%s.txt:%d: %q: reasons %#v, objects %#v: want a reason, and no nil", kind, c.line, c.text, r.Reasons, r.Objects)
	}
	if r.Irreversible && r.Level != sallyport.Critical {
		t.Errorf("%s.txt:%d: irreversible, but %s", kind, c.line, r.Level)
	}
	if !slices.Contains(dialects, kind) {
		return
	}
	if r.Level >= sallyport.High && len(r.Effects) == 0 {
		t.Errorf("%s.txt:%d: %q is %s and has no effect", kind, c.line, c.text, c.verdict)
	}
	if r.Irreversible && len(r.Parts) == 0 {
		t.Errorf("%s.txt:%d: %q is irreversible and shows no part of it", kind, c.line, c.text)
	}
}
