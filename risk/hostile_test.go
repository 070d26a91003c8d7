package risk_test

import (
	"context"
	"encoding/json"
	"maps"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

// A long text is made of a beginning, what is repeated until the text is as
// long as may be, what closes each of that again, and an end. # is its number.
type long struct{ name, begin, again, closing, end string }

func (l long) text(size int) string {
	var open, shut strings.Builder
	for i := 0; ; i++ {
		number := strconv.Itoa(i)
		more, less := strings.ReplaceAll(l.again, "#", number), strings.ReplaceAll(l.closing, "#", number)
		if len(l.begin)+open.Len()+len(more)+shut.Len()+len(less)+len(l.end) > size {
			return l.begin + open.String() + shut.String() + l.end
		}
		open.WriteString(more)
		shut.WriteString(less)
	}
}

// hostileSQL and hostileShell take judges long, by how they are made.
var hostileSQL = []long{
	{"parentheses", "SELECT ", "(", ")", ""},
	{"subqueries", "SELECT * FROM ", "(SELECT * FROM ", ") t#", ""},
	{"functions", "SELECT ", "lower(", ")", ""},
	{"IN list", "DELETE FROM orders WHERE id IN (0", ",#", "", ")"},
	{"statements", "", "SELECT 1;", "", ""},
	{"deletes", "", "DELETE FROM t# WHERE id=1;", "", ""},
	{"updates", "", "UPDATE t# SET a=1 WHERE id=1 AND b=2;", "", ""},
	{"joins", "SELECT * FROM a", " JOIN a# ON a.x=a#.x", "", ""},
	{"cross joins", "SELECT * FROM a", ",a#", "", ""},
	{"columns", "SELECT a", ",c#", "", " FROM t"},
	{"new columns", "CREATE TABLE t (a int", ",c# int", "", ")"},
	{"rows", "INSERT INTO t VALUES (1)", ",(#)", "", ""},
	{"unions", "SELECT 1", " UNION SELECT #", "", ""},
	{"ORs", "DELETE FROM t WHERE a=1", " OR a=#", "", ""},
	{"NOTs", "SELECT ", "NOT ", "", "1"},
	{"minuses", "SELECT ", "- ", "", "1"},
	{"CTEs", "WITH c AS (SELECT 1)", ",c# AS (SELECT 1)", "", " SELECT 1"},
	{"nested CTEs", "", "WITH c# AS (", ") SELECT 1", ""},
	{"quotes", "SELECT 'b'", " || 'a'", "", ""},
	{"open quotes", "SELECT ", "'", "", ""},
	{"double quotes", "SELECT ", `"a".`, "", "b"},
	{"backslashes", "SELECT '", `\'`, "", "'"},
	{"open comments", "", "/*", "", ""},
	{"nested comments", "", "/*", "*/", "SELECT 1"},
	{"comments", "", "/* */ -- x\n", "", "SELECT 1"},
	{"comments that are code", "", "/*! ", " */", ""},
	{"dollar quotes", "SELECT 1", ",$a#$x$a#$", "", ""},
	{"semicolons", "", ";", "", ""},
	{"blanks", "", " ", "", ""},
	{"dashes", "", "--\n", "", ""},
	{"name", "SELECT ", "a", "", ""},
	{"string", "SELECT '", "😀", "", "'"},
	{"number", "SELECT ", "9", "", ""},
	{"CASE", "SELECT ", "CASE WHEN a THEN ", " END", "1"},
	{"arrays", "SELECT ", "ARRAY[", "]", ""},
	{"PREPARE", "", "PREPARE p AS ", "", "SELECT 1"},
	{"EXPLAIN", "", "EXPLAIN ", "", "SELECT 1"},
	{"aliases", "SELECT 1", ",1 x", "", " update"},
	{"queries in a literal", "SELECT query_to_xml('", "SELECT 1;", "", "', true, true, '')"},
	{"casts", "SELECT 1", "::int", "", ""},
	{"subscripts", "SELECT a", "[1]", "", ""},
	{"expressions", "SELECT 1", ",a# + b# * #", "", " FROM t"},
	{"function in a function", "DO $$BEGIN ", "PERFORM 1;", "", "END$$"},
}

var hostileShell = []long{
	{"commands", "", "ls;", "", ""},
	{"pipes", "ls", "|wc", "", ""},
	{"substitutions", "echo ", "$(echo ", ")", ""},
	{"backquotes", "", "`", "", ""},
	{"quoted substitutions", "", `"$(`, `)"`, ""},
	{"braces", "echo ", "{a,b}", "", ""},
	{"nested braces", "echo ", "{a,", "}", ""},
	{"here documents", "", "cat <<X\nx\nX\n", "", ""},
	{"variables", "", "a#=$a#$a#;", "", ""},
	{"functions", "", "f#() { ls; }\n", "", ""},
	{"arithmetic", "echo $((1", "+1", "", "))"},
	{"parentheses", "echo $((", "(", ")", "))"},
	{"ifs", "", "if true;then ", "ls;fi;", ""},
	{"subshells", "", "(", ")", ""},
	{"word", "echo ", "a", "", ""},
	{"quotes", "echo ", "''", "", ""},
	{"sh -c", "sh -c '", "sh -c ", "", "'"},
	{"xargs", "", "xargs ", "", "ls"},
	{"env", "", "env ", "", "ls"},
	{"find -exec", "find . ", "-exec rm {} + ", "", ""},
	{"ssh", "ssh h ", "'rm -rf x' ", "", ""},
	{"unknown", "frob ", "rm ", "", ""},
	{"sed", "sed '", "s/a/b/;", "", "'"},
	{"awk", "awk '{", "print $1;", "", "}'"},
	{"statements for sqlite3", "sqlite3 x.db '", "SELECT 1;", "", "'"},
	{"calls of sqlite3", "", "sqlite3 x.db 'SELECT * FROM a JOIN b#';", "", ""},
	{"calls of psql", "", "psql -c 'SELECT * FROM a JOIN b#';", "", ""},
	{"calls of mysql", "", "mysql -e 'SELECT * FROM a JOIN b#';", "", ""},
	{"calls of curl", "", "curl http://a#.example/;", "", ""},
	{"calls of kubectl", "", "kubectl get pod#;", "", ""},
	{"cases", "case x in ", "a#) ls;; ", "", "esac"},
	{"patterns", "ls ", "*?[a] ", "", ""},
	{"background", "", "ls & ", "", ""},
	{"expansions", "echo ", "${a:-", "}", ""},
	{"redirections", "ls ", "> a# ", "", ""},
	{"comments", "", "# x\n", "", "ls"},
}

// hostileArgs are the arguments of calls, a megabyte of them.
var hostileArgs = []long{
	{"strings", `{"a":["x"`, `,"some words here #"`, "", `]}`},
	{"members", `{"a":1`, `,"b#":"update x"`, "", `}`},
	{"lists", `{"a":`, `[`, `]`, `}`},
	{"statements", `{"a":["x"`, `,"DELETE FROM t# WHERE a = 1"`, "", `]}`},
	{"commands", `{"a":["x"`, `,"git push -f; rm -rf x#"`, "", `]}`},
	{"words and lists", `{"l":["-rf","/"]`, `,"w#":"rm"`, "", `}`},
	{"addresses", `{"a":["x"`, `,"https://a#.example/delete"`, "", `]}`},
	{"methods", `{"u":"https://a.example/"`, `,"m#":"DELETE"`, "", `}`},
	{"mail", `{"b":"hello there","a":["x"`, `,"a#@evil.example"`, "", `]}`},
	{"amounts", `{"c":"EUR","a":[1`, `,"#.00"`, "", `]}`},
	{"JSON in strings", `{"a":["x"`, `,"{\"b\":\"[\\\"DROP TABLE t#\\\"]\"}"`, "", `]}`},
	{"a long statement", `{"a":"DROP TABLE t`, `,t#`, "", `"}`},
	{"a long request", `{"method":"POST","url":"https://a.example/","body":{"a":["x"`, `,"mutation { a# { b } }"`, "", `]}}`},
	{"a manifest", `{"a":"apiVersion: v1\nkind: List\nitems:\n`, `- {kind: Pod, metadata: {name: p#}}\n`, "", `"}`},
}

// trials calls yield with each hostile text, and what makes it and returns what
// judges it.
func trials(tb testing.TB, yield func(name string, ready func() (judge func() sallyport.Risk))) {
	e := hurried(tb)
	judges := analysers(e)
	for _, kind := range []string{"postgres", "sqlite", "mysql", "shell"} {
		list := hostileSQL
		if kind == "shell" {
			list = hostileShell
		}
		for _, l := range list {
			yield(kind+"/"+l.name, func() func() sallyport.Risk {
				text := l.text(finding.MaxText)
				return func() sallyport.Risk { return judges[kind](text) }
			})
		}
	}
	for _, l := range hostileArgs {
		for name, tool := range map[string]sallyport.Tool{"undeclared/": undeclared, "declared/": fieldTool(sallyport.RiskField{Path: "/a", Kind: "sql", Dialect: "postgres"})} {
			yield(name+l.name, func() func() sallyport.Risk {
				args := []byte(l.text(1 << 20))
				return func() sallyport.Risk { return e.Args(tool, args) }
			})
		}
	}
}

// No text stalls a verdict, or fills the memory. The deadline is generous: how
// long it takes is BenchmarkHostile's to say.
func TestHostileTexts(t *testing.T) {
	n := 0
	trials(t, func(name string, ready func() func() sallyport.Risk) {
		if n++; n%5 != 0 && !every {
			return
		}
		judge := ready()
		runtime.GC()
		peak := heapPeak()
		start := time.Now()
		r := judge()
		if d := time.Since(start); d > time.Minute {
			t.Errorf("%s: %s", name, d)
		}
		if mb := peak() >> 20; mb > 1024 {
			t.Errorf("%s: %d MB at once", name, mb)
		}
		if len(r.Reasons) == 0 {
			t.Errorf("%s: no reason", name)
		}
	})
}

// heapPeak watches how large the heap becomes, until it is asked.
func heapPeak() (peak func() uint64) {
	const name = "/memory/classes/heap/objects:bytes"
	heap := func() uint64 {
		sample := []metrics.Sample{{Name: name}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	before, most := heap(), uint64(0)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			most = max(most, heap())
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() uint64 {
		close(stop)
		<-stopped
		return most - min(most, before)
	}
}

// How long the longest verdict takes, of all that are hostile.
func BenchmarkHostile(b *testing.B) {
	took := map[string]time.Duration{}
	for b.Loop() {
		trials(b, func(name string, ready func() func() sallyport.Risk) {
			judge := ready()
			start := time.Now()
			judge()
			took[name] = max(took[name], time.Since(start))
		})
	}
	names := slices.SortedFunc(maps.Keys(took), func(x, y string) int { return int(took[y] - took[x]) })
	b.ReportMetric(float64(took[names[0]].Milliseconds()), "ms/worst")
	b.ReportMetric(float64(took[names[len(names)/2]].Milliseconds()), "ms/median")
	for _, name := range names[:8] {
		b.Logf("%-40s %s", name, took[name].Round(time.Millisecond))
	}
}

// A text that is longer than the bound is critical and says so; as long as the
// bound it is judged.
func TestTooLong(t *testing.T) {
	e := engine(t)
	judges := analysers(e)
	for kind, c := range map[string]struct{ text, pad string }{
		"postgres": {"SELECT 1", " "}, "sqlite": {"SELECT 1", " "}, "mysql": {"SELECT 1", " "}, "shell": {"ls", " "},
	} {
		text := c.text + strings.Repeat(c.pad, finding.MaxText-len(c.text))
		if r := judges[kind](text); verdict(r) != "low" {
			t.Errorf("%s: as long as may be: %s %q", kind, verdict(r), r.Reasons)
		}
		r := judges[kind](text + c.pad)
		if verdict(r) != "critical" || !strings.Contains(r.Reasons[0], "too long to judge") {
			t.Errorf("%s: too long: %s %q", kind, verdict(r), r.Reasons)
		}
	}
	pad := strings.Repeat("x", finding.MaxText)
	for text, want := range map[string]string{
		"DROP TABLE orders -- " + pad:         "critical",
		"/* " + pad + " */ DROP TABLE orders": "critical",
		"rm -rf /srv\n: " + pad:               "irreversible",
		": " + pad + "\nrm -rf /srv\n":        "irreversible",
		"a long letter, to delete: " + pad:    "high",
	} {
		args, _ := json.Marshal(map[string]string{"x": text})
		if r := e.Args(undeclared, args); verdict(r) != want {
			t.Errorf("%.40q: %s, want %s: %q", text, verdict(r), want, r.Reasons)
		}
	}
}

// A call that ended is not judged any further, whatever its arguments are; nor
// is more judged than there is time for.
func TestJudgedInTime(t *testing.T) {
	e := hurried(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	tool := sqlTool("postgres")
	args := json.RawMessage(`{"sql":"SELECT 1"}`)
	if r := e.Assess(t.Context(), tool, args); verdict(r) != "low" {
		t.Errorf("in time: %s %q", verdict(r), r.Reasons)
	}
	if r := e.Assess(ended, tool, args); verdict(r) != "critical" || !strings.Contains(strings.Join(r.Reasons, " "), "ended before it was judged") {
		t.Errorf("after the call's end: %s %q", verdict(r), r.Reasons)
	}
	slow := long{"", "SELECT a", "[1]", "", ""}.text(finding.MaxText)
	many, _ := json.Marshal(map[string]any{"sql": slices.Repeat([]string{slow}, 64)})
	if r := e.Assess(t.Context(), tool, many); verdict(r) != "critical" || !strings.Contains(strings.Join(r.Reasons, " "), "too") {
		t.Errorf("64 long texts: %s %q", verdict(r), r.Reasons)
	}
}
