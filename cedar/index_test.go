package cedar

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	cedargo "github.com/cedar-policy/cedar-go"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/test/cputime"
)

// The index only leaves out what cannot match: with it and without it the
// verdicts are the same.
func TestIndexChangesNoVerdict(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	pick := func(s ...string) string { return s[rnd.IntN(len(s))] }
	var b strings.Builder
	for range 400 {
		fmt.Fprintf(&b, "%s%s (%s, %s, %s)%s;\n",
			pick("", "", `@approval("required") `, `@network("none") `),
			pick("permit", "permit", "forbid"),
			pick("principal", `principal == Agent::"default/a"`, `principal in Agent::"default/b"`, `principal in Role::"r1"`,
				`principal in Role::"r2"`, `principal in Tenant::"acme"`, `principal is Agent`, `principal is Agent in Role::"r1"`),
			pick("action", `action == Action::"call"`, `action == Action::"list"`, `action in Action::"call"`, `action in [Action::"list", Action::"call"]`),
			pick(`resource == Tool::"s__t"`, `resource in Tool::"s__u"`, `resource in Server::"s"`, `resource is Tool in Server::"builtin"`, `resource is Tool in Tool::"s__v"`, `resource == Tool::"run"`),
			pick("", "", " when { resource.read_only }", ` unless { principal.id == "a" }`))
	}
	text := b.String()
	for i := 0; i < len(text); {
		// A few policies at a time, so that verdicts differ.
		end := i
		for range 1 + rnd.IntN(6) {
			if n := strings.IndexByte(text[end:], '\n'); n >= 0 {
				end += n + 1
			}
		}
		compare(t, text[i:end])
		i = end
	}
}

func compare(t *testing.T, text string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.cedar"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := Load(dir)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	s := e.set.Load()
	var all candidates
	for _, p := range s.byID {
		if p.holds() {
			all.holds.lists = append(all.holds.lists, []*policy{p})
		} else {
			all.rules.lists = append(all.rules.lists, []*policy{p})
		}
	}
	for _, who := range []sallyport.Principal{
		{Tenant: "default", ID: "a"}, {Tenant: "default", ID: "b", Roles: []string{"r1"}},
		{Tenant: "acme", ID: "a", Roles: []string{"r1", "r2"}}, {Tenant: "default", ID: "c", Roles: []string{"r2", "r2"}},
	} {
		for _, name := range []string{"s__t", "s__u", "s__v", "run"} {
			for _, act := range []gateway.Action{gateway.ActionList, gateway.ActionCall} {
				q := gateway.Question{Who: who, Action: act, Tool: sallyport.Tool{Name: name, Origin: sallyport.Origin{Server: "s", Backend: "upstream"}}}
				if name == "run" {
					q.Tool.Origin = sallyport.Origin{}
				}
				got, err := e.Authorize(q)
				if err != nil {
					t.Fatal(err)
				}
				ents, _ := e.entities.of(q)
				ctx, _ := e.contexts.of(q, true)
				want := s.decide(all, ents, cedargo.Request{
					Principal: ents.principal.UID, Action: actions[act].uid, Resource: ents.resource.UID, Context: ctx,
				})
				if sorted(got) != sorted(want) {
					t.Fatalf("%v %v %s: with the index %s, without %s\n%s", who, act, name, sorted(got), sorted(want), text)
				}
			}
		}
	}
}

func sorted(v gateway.Verdict) string {
	slices.Sort(v.Policies)
	slices.Sort(v.Reasons)
	slices.SortFunc(v.Demands, func(a, b sallyport.Demand) int { return strings.Compare(a.Policy, b.Policy) })
	if v.Policies == nil {
		v.Policies = []string{}
	}
	return fmt.Sprintf("%+v", v)
}

func TestExactInt(t *testing.T) {
	for _, tt := range []struct {
		lit  string
		want int64
		ok   bool
	}{
		{"0", 0, true}, {"-0", 0, true}, {"7", 7, true}, {"-7", -7, true},
		{"100.0", 100, true}, {"1e2", 100, true}, {"1E+2", 100, true}, {"1.5e1", 15, true}, {"-1.50e1", -15, true},
		{"1000e-2", 10, true}, {"0e999999", 0, true}, {"0.000", 0, true},
		{"9223372036854775807", 1<<63 - 1, true}, {"-9223372036854775808", -1 << 63, true},
		{"9223372036854775807.0", 1<<63 - 1, true}, {"9.223372036854775807e18", 1<<63 - 1, true},
		{"9223372036854775808", 0, false}, {"-9223372036854775809", 0, false}, {"9.223372036854775808e18", 0, false},
		{"0.5", 0, false}, {"1.5e0", 0, false}, {"1e-1", 0, false}, {"1e19", 0, false}, {"1e400", 0, false},
		{"1e99999999999999999999", 0, false}, {"1e-99999999999999999999", 0, false},
	} {
		got, ok := exactInt(tt.lit)
		if got != tt.want || ok != tt.ok {
			t.Errorf("exactInt(%s) = %d, %v; want %d, %v", tt.lit, got, ok, tt.want, tt.ok)
		}
	}
}

// An array, an object and numbers of every kind, read into a record.
func TestArgsRecord(t *testing.T) {
	values, texts, err := argsRecord([]byte(`{"a":[1,2.5,"x",null],"b":{"c":1.25,"d":2},"e":true}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := texts.String(), `{"a":["2.5"], "b":{"c":"1.25"}}`; got != want {
		t.Errorf("texts %s, want %s", got, want)
	}
	for _, part := range []string{`"e":true`, `"d":2`, `"x"`} {
		if !strings.Contains(values.String(), part) {
			t.Errorf("values %s, want %s in it", values, part)
		}
	}
}

func TestCacheIsBounded(t *testing.T) {
	var c cache[int, int]
	for i := range 3 * cacheSize {
		c.put(i, i)
	}
	if len(c.m) > cacheSize {
		t.Errorf("%d entries", len(c.m))
	}
	if v, ok := c.get(3*cacheSize - 1); !ok || v != 3*cacheSize-1 {
		t.Error("the newest entry is gone")
	}
}

// large returns an engine with n policies about n tools and n agents, beside
// the starter set, and questions that spread over them.
func large(tb testing.TB, n int) (*Engine, []gateway.Question) {
	tb.Helper()
	dir := tb.TempDir()
	if _, err := WriteStarter(dir); err != nil {
		tb.Fatal(err)
	}
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "@id(\"p%d\") permit (principal == Agent::\"default/agent-%d\", action, resource == Tool::\"server-%d__tool-%d\");\n", i, i, i%50, i)
	}
	if err := os.WriteFile(filepath.Join(dir, "many.cedar"), []byte(b.String()), 0o600); err != nil {
		tb.Fatal(err)
	}
	e, err := Load(dir)
	if err != nil {
		tb.Fatal(err)
	}
	qs := make([]gateway.Question, n)
	for i := range qs {
		qs[i] = gateway.Question{
			Who:     sallyport.Principal{Tenant: "default", ID: fmt.Sprintf("agent-%d", i), Roles: []string{"agent"}},
			Action:  gateway.ActionCall,
			Profile: "p", Tier: "gvisor",
			Tool: sallyport.Tool{
				Name: fmt.Sprintf("server-%d__tool-%d", i%50, i), Version: "1",
				Origin: sallyport.Origin{Backend: "upstream", Server: fmt.Sprintf("server-%d", i%50)},
			},
			Args: []byte(`{"code":"print(1)"}`),
			Risk: sallyport.Risk{Level: sallyport.Level(i % 4)},
		}
	}
	return e, qs
}

// perDecision is the best of several short runs, so that neighbours on the
// machine do not count. step spreads over all questions.
func perDecision(tb testing.TB, e *Engine, qs []gateway.Question, step int) time.Duration {
	best := time.Hour
	for range 15 {
		const n = 2000
		best = min(best, cputime.Of(func() {
			for i := range n {
				v, err := e.Authorize(qs[i*step%len(qs)])
				if err != nil || !v.Allow {
					tb.Fatalf("%v %v", v, err)
				}
			}
		})/n)
	}
	return best
}

// Growth from 10 to 10,000 policies, tools and agents: the same ten questions
// cost the same. (Asking all 10,000 in turn also measures the processor's
// caches; the benchmark shows both, and by how much. Looking at each policy would be
// a thousand times as much.)
func TestFlat(t *testing.T) {
	small, few := large(t, 10)
	big, many := large(t, 10_000)
	var a, b time.Duration
	for range 5 { // a noisy machine gets another chance
		a, b = perDecision(t, small, few, 1), perDecision(t, big, many[5000:5010], 1)
		if float64(b) <= 1.2*float64(a) {
			break
		}
	}
	t.Logf("10 policies: %v, 10,000 policies: %v per decision", a, b)
	if b > 2*a {
		t.Errorf("10 policies: %v, 10,000 policies: %v per decision", a, b)
	}
}

func BenchmarkAuthorize(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10_000} {
		e, qs := large(b, n)
		for _, spread := range []struct {
			name string
			qs   []gateway.Question
		}{{"ten", qs[:10]}, {"all", qs}} {
			b.Run(fmt.Sprintf("policies=%d/%s", n, spread.name), func(b *testing.B) {
				for _, q := range spread.qs { // warm
					_, _ = e.Authorize(q)
				}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if v, err := e.Authorize(spread.qs[i*7%len(spread.qs)]); err != nil || !v.Allow {
						b.Fatal(v, err)
					}
				}
			})
		}
	}
}

func BenchmarkAuthorizeReadsArguments(b *testing.B) {
	dir := b.TempDir()
	text := `permit (principal, action, resource); forbid (principal, action == Action::"call", resource) when { context.args has sql && context.args.sql like "DROP *" };`
	if err := os.WriteFile(filepath.Join(dir, "a.cedar"), []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	e, err := Load(dir)
	if err != nil {
		b.Fatal(err)
	}
	_, qs := large(b, 1)
	q := qs[0]
	q.Args = []byte(`{"limit":10,"sql":"SELECT ` + strings.Repeat("x", 960) + `"}`)
	b.ReportAllocs()
	for b.Loop() {
		if v, err := e.Authorize(q); err != nil || !v.Allow {
			b.Fatal(v, err)
		}
	}
}

func TestSchemaAndContextAgree(t *testing.T) {
	c := newChecker()
	for _, action := range []gateway.Action{gateway.ActionCall, gateway.ActionRead} {
		applies := c.schema.Actions[actions[action].uid].AppliesTo
		var cache contextCache
		rec, err := cache.of(gateway.Question{Action: action, Risk: sallyport.Risk{Amounts: []sallyport.Amount{{Value: "1"}}}}, true)
		if err != nil {
			t.Fatal(err)
		}
		var got, want []string
		for k := range rec.Keys() {
			got = append(got, string(k))
		}
		for k := range applies.Context {
			want = append(want, string(k))
		}
		slices.Sort(got)
		slices.Sort(want)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: context %v, schema %v", action, got, want)
		}
	}
	for _, shelf := range append([]sallyport.Shelf{""}, sallyport.Shelves...) {
		tool := newToolEntity(toolFacts{typ: typeOf(shelf), name: "t", server: "s", kind: "upstream", version: "1", trust: "agent"})
		if err := c.plain.Entity(tool.entity); err != nil {
			t.Errorf("%q: %v", shelf, err)
		}
	}
	if err := c.plain.Entity(newAgentEntity(sallyport.Principal{Tenant: "a", ID: "b", Roles: []string{"r"}}).entity); err != nil {
		t.Error(err)
	}
}
