package cedar_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/cedar"
	"sallyport.dev/sallyport/gateway"
)

const good = "@id(\"ok\")\npermit (principal, action, resource == Tool::\"db__q\");\n"

// Every way in which a folder of policies can be broken or empty. want is part
// of the message; "a.cedar:2:1" in it is the position.
var brokenPolicies = []struct{ name, text, want string }{
	{"empty file", "", "a.cedar:1:1: the file holds no policy"},
	{"white space", " \n\t\n", "holds no policy"},
	{"only comments", "// permit (principal, action, resource);\n", "holds no policy"},
	{"cut short in the head", good + "permit (principal, act", "a.cedar:3"},
	{"cut short in a condition", good + "permit (principal, action, resource) when { context.", "a.cedar:3"},
	{"cut short in a string", good + "@id(\"x", "a.cedar:3"},
	{"no semicolon", "permit (principal, action, resource)", `a.cedar:1:37: the file ends where ";" should stand`},
	{"no closing brace", good + "permit (principal, action, resource) when { true ;\n", `a.cedar:3:50: ";" stands where "}" should stand`},
	{"no closing quote", "permit (principal, action, resource == Tool::\"x);\n", "a.cedar:1:46: a text in quotes does not end on its line"},
	{"no comma", "permit (principal action, resource);", `a.cedar:1:19: "action" stands where "," should stand`},
	{"no value", "permit (principal, action, resource) when { 1 == };", `a.cedar:1:50: "}" stands where a value`},
	{"no name", "permit (principal, action, resource) when { context.1 == 2 };", `a.cedar:1:53: "1" stands where a name`},
	{"no policy language", "allow everything", "a.cedar:1"},
	{"JSON", `{"permit": true}`, "a.cedar:1"},
	{"null", "null", "a.cedar:1"},
	{"empty list", "[]", "a.cedar:1"},
	{"YAML", "- permit: all\n", "a.cedar:1"},
	{"not UTF-8", "permit (principal, action, resource == Tool::\"\xff\");", "UTF-8"},
	{"NUL", "permit (principal, action, resource);\x00", "a.cedar:1:38: the file holds a NUL byte"},
	{"UTF-16", "p\x00e\x00r\x00m\x00i\x00t\x00", "NUL"},
	{"nested too deep", "permit (principal, action, resource) when { " + strings.Repeat("(", 1000) + "true", "nested deeper"},
	{"wrong effect", "allow (principal, action, resource);", `a.cedar:1:1: "allow" stands where permit or forbid should stand`},
	{"unknown action", `permit (principal, action == Action::"cal", resource);`, "a.cedar:1:1"},
	{"unknown entity type", `permit (principal in Rolle::"agent", action, resource);`, "Rolle"},
	{"unknown resource type", `permit (principal, action, resource in Host::"x");`, "Host"},
	{"impossible principal", `permit (principal == Tool::"x", action, resource);`, "a.cedar:1:1"},
	{"misspelt attribute", good + `forbid (principal, action == Action::"call", resource) when { context.rsik.level > 2 };`, "a.cedar:3:1"},
	{"misspelt nested attribute", `forbid (principal, action == Action::"call", resource) when { context.risk.irreversable };`, "irreversable"},
	{"wrong type", `forbid (principal, action == Action::"call", resource) when { context.risk.level < "3" };`, "a.cedar:1:1"},
	{"condition is no bool", `permit (principal, action == Action::"call", resource) when { context.risk.level };`, "a.cedar:1:1"},
	{"risk of a list", `permit (principal, action, resource) when { context.risk.level < 3 };`, "risk"},
	{"unknown kind", `permit (principal, action, resource) when { resource.kind == "upstrem" };`, `resource.kind is never "upstrem"`},
	{"unknown level", `forbid (principal, action == Action::"call", resource) when { ["critcal"].contains(context.risk.level_name) };`, `is never "critcal"`},
	{"unguarded argument", `forbid (principal, action == Action::"call", resource) when { context.args.n > 1 };`, "args"},
	{"argument of two types", `forbid (principal, action == Action::"call", resource) when { context.args has n && (context.args.n > 1 || context.args.n like "x") };`, "context.args.n is used as Long and as String"},
	{"arguments as a whole", `forbid (principal, action == Action::"call", resource) when { context.args == {} };`, "used as a whole"},
	{"unknown annotation", `@aproval("required") permit (principal, action, resource);`, "unknown annotation @aproval"},
	{"approvers of nothing", `@approvers("finance") permit (principal, action, resource);`, "@approvers and @quorum say who approves"},
	{"quorum of nothing", `@quorum("2") permit (principal, action, resource);`, `need @approval("required")`},
	{"quorum too large", `@approval("required") @quorum("21") permit (principal, action, resource);`, `@quorum("21"): want a number from 1 to 20`},
	{"quorum of none", `@approval("required") @quorum("0") permit (principal, action, resource);`, `want a number from 1 to 20`},
	{"quorum in words", `@approval("required") @quorum("two") permit (principal, action, resource);`, `want a number from 1 to 20`},
	{"quorum with a sign", `@approval("required") @quorum("+2") permit (principal, action, resource);`, `want a number from 1 to 20`},
	{"no approvers", `@approval("required") @approvers("") permit (principal, action, resource);`, `want names of groups`},
	{"approvers by semicolon", `@approval("required") @approvers("a;b") permit (principal, action, resource);`, `want names of groups`},
	{"approvers twice", `@approval("required") @approvers("a, a") permit (principal, action, resource);`, "a is there twice"},
	{"approver", `@approval("required") @approver("a") permit (principal, action, resource);`, "unknown annotation @approver"},
	{"unknown approval", `@approval("yes") permit (principal, action, resource);`, `want @approval("required")`},
	{"unknown network", `@network("") permit (principal, action, resource);`, `want @network("none")`},
	{"duplicate annotation", `@id("a") @id("b") permit (principal, action, resource);`, "a.cedar:1"},
	{"empty id", `@id("") permit (principal, action, resource);`, "want a name"},
	{"duplicate id", good + good, "a.cedar:3:1: policy \"ok\": the id is already used at"},
	{"template slot", `permit (principal == ?principal, action, resource);`, "a.cedar:1"},
	{"unknown function", `permit (principal, action, resource) when { allow(principal) };`, "a.cedar"},
	{"empty set of actions", `permit (principal, action in [], resource);`, "action"},
}

func TestTO59_BrokenOrEmptyPolicyIsRefusedAtStart(t *testing.T) {
	for _, tt := range brokenPolicies {
		dir := write(t, tt.text)
		e, err := cedar.Load(dir)
		if err == nil || e != nil {
			t.Errorf("%s: loaded", tt.name)
			continue
		}
		ours, ok := errors.AsType[*sallyport.Error](err)
		if !ok || !strings.Contains(ours.Message, tt.want) || ours.Hint == "" {
			t.Errorf("%s: error %q (hint %q), want one with %q and a hint", tt.name, ours.Message, ours.Hint, tt.want)
		}
		if ps := cedar.Check(dir); len(ps) == 0 || ps[0].File == "" || ps[0].Message == "" {
			t.Errorf("%s: Check says %v", tt.name, ps)
		}
	}
}

func TestTO59_BrokenFolder(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		make       func(dir string) error
	}{
		{"no folder", "cannot be read", func(dir string) error { return os.Remove(dir) }},
		{"empty folder", "has no policies", func(string) error { return nil }},
		{"only a README", "has no policies", func(dir string) error { return os.WriteFile(dir+"/README.md", []byte(good), 0o600) }},
		{"a folder named like a policy", "not a regular file", func(dir string) error { return os.Mkdir(dir+"/a.cedar", 0o700) }},
		{"dangling link", "no such file", func(dir string) error { return os.Symlink(dir+"/gone", dir+"/a.cedar") }},
		{"a device", "not a regular file", func(dir string) error { return os.Symlink("/dev/zero", dir+"/a.cedar") }},
		{"misspelt file name", "b.ceder: not a policy file", func(dir string) error {
			return errors.Join(os.WriteFile(dir+"/a.cedar", []byte(good), 0o600),
				os.WriteFile(dir+"/b.ceder", []byte("forbid (principal, action, resource);"), 0o600))
		}},
		{"a folder inside", "more: not a policy file", func(dir string) error {
			return errors.Join(os.WriteFile(dir+"/a.cedar", []byte(good), 0o600), os.Mkdir(dir+"/more", 0o700))
		}},
		{"one good, one empty", "b.cedar:1:1: the file holds no policy", func(dir string) error {
			return errors.Join(os.WriteFile(dir+"/a.cedar", []byte(good), 0o600), os.WriteFile(dir+"/b.cedar", nil, 0o600))
		}},
		{"the same id in two files", "already used at", func(dir string) error {
			return errors.Join(os.WriteFile(dir+"/a.cedar", []byte(good), 0o600), os.WriteFile(dir+"/b.cedar", []byte(good), 0o600))
		}},
		{"too large", "larger than", func(dir string) error {
			return os.WriteFile(dir+"/a.cedar", []byte(good+strings.Repeat("/", 9<<20)), 0o600)
		}},
	} {
		dir := t.TempDir()
		if err := tt.make(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := cedar.Load(dir); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want an error with %q", tt.name, err, tt.want)
		}
	}
}

// The same breakage at reload keeps the last good policies, raises the alarm,
// and is over when the files are good again.
func TestTO59_BrokenReloadKeepsTheLastGoodSet(t *testing.T) {
	dir := write(t, good)
	e, err := cedar.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	gen, version := e.Generation(), e.Version()
	allowed, other := call(agent("a"), upstream("db", "q"), low, ""), call(agent("a"), upstream("db", "other"), low, "")
	check := func(name string) {
		t.Helper()
		if !decide(t, e, allowed).Allow || decide(t, e, other).Allow {
			t.Errorf("%s: the last good policies do not decide", name)
		}
		if e.Generation() != gen || e.Version() != version {
			t.Errorf("%s: generation %d, version %s", name, e.Generation(), e.Version())
		}
	}
	file := filepath.Join(dir, "a.cedar")
	for _, tt := range brokenPolicies {
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := e.Reload(); err == nil || e.Err() == nil {
			t.Errorf("%s: reload %v, alarm %v", tt.name, err, e.Err())
		}
		check(tt.name)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := e.Reload(); err == nil {
		t.Error("reload of an empty folder succeeded")
	}
	check("empty folder")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := e.Reload(); err == nil {
		t.Error("reload of a missing folder succeeded")
	}
	check("missing folder")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(file, []byte(good), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := e.Reload(); err != nil || e.Err() != nil {
		t.Errorf("reload of good files: %v, alarm %v", err, e.Err())
	}
	check("good again")
}

// A policy that fails while it is evaluated refuses the call, whatever else
// allows it, and the verdict names it.
func TestTO59_EvaluationErrorDenies(t *testing.T) {
	for name, broken := range map[string]string{
		"forbid": `forbid (principal, action == Action::"call", resource) when`,
		"permit": `permit (principal, action == Action::"call", resource) when`,
		"hold":   `@approval("required") forbid (principal, action == Action::"call", resource) when`,
	} {
		e := engine(t, `@id("all") permit (principal, action, resource);
@id("broken") `+broken+` { context.args has n && context.args.n * 2 > 10 };`)
		if v := decide(t, e, call(agent("a"), upstream("db", "q"), low, `{"n":1}`)); !v.Allow {
			t.Errorf("%s: the control is refused: %v", name, v.Reasons)
		}
		v := decide(t, e, call(agent("a"), upstream("db", "q"), low, `{"n":9223372036854775807}`))
		if v.Allow || len(v.Policies) != 1 || v.Policies[0] != "broken" || !strings.Contains(v.Reasons[0], "broken") {
			t.Errorf("%s: %s", name, text(v))
		}
	}
}

// Nothing but a permit ever allows: not forbids, not obligations on forbids,
// and not permits about something else, in any number and mixture.
func TestTO59_NoSetWithoutAMatchingPermitAllows(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	pick := func(s ...string) string { return s[rnd.IntN(len(s))] }
	q := call(agent("a", "agent"), upstream("db", "q"), critical, `{"n":1}`)
	list := gateway.Question{Who: q.Who, Action: gateway.ActionList, Tool: q.Tool}
	allowed := 0
	for range 300 {
		var b strings.Builder
		for range 1 + rnd.IntN(8) {
			note := pick("", "", `@approval("required") `, `@network("none") `, `@message("m") `)
			who := pick("principal", `principal == Agent::"default/a"`, `principal in Role::"agent"`, `principal in Tenant::"default"`)
			act := pick("action", `action == Action::"call"`, `action in [Action::"list", Action::"call"]`)
			res := pick("resource", `resource == Tool::"db__q"`, `resource in Server::"db"`)
			if rnd.IntN(3) > 0 {
				fmt.Fprintf(&b, "%sforbid (%s, %s, %s);\n", note, who, act, res)
				continue
			}
			if rnd.IntN(2) > 0 { // a name with a typo
				who = pick(`principal == Agent::"default/A"`, `principal == Agent::"a"`, `principal in Role::"Agent"`, `principal in Role::"agent "`, `principal in Tenant::"default/a"`)
			} else {
				res = pick(`resource == Tool::"db__Q"`, `resource == Tool::"db"`, `resource in Server::"db_"`, `resource in Server::"db__q"`, `resource == Tool::"DB__q"`)
			}
			fmt.Fprintf(&b, "%spermit (%s, %s, %s);\n", note, who, act, res)
		}
		e := engine(t, b.String())
		if decide(t, e, q).Allow || decide(t, e, list).Allow {
			t.Fatalf("allowed by\n%s", b.String())
		}
		// The control: with a permit that matches, and no plain forbid, it is allowed.
		if e := engine(t, b.String()+"permit (principal, action, resource);"); decide(t, e, q).Allow {
			allowed++
		}
	}
	if allowed == 0 {
		t.Error("the control never allowed: this test cannot fail")
	}
}

// While policies are swapped under load, every verdict is that of one whole set.
func TestConcurrentReloadAndDecide(t *testing.T) {
	dir := write(t, good)
	e, err := cedar.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	sets := []string{
		`@id("p1") permit (principal, action, resource); @id("f1") forbid (principal, action, resource == Tool::"db__q");`,
		`@id("p2") permit (principal, action, resource == Tool::"x__y"); @id("f2") forbid (principal, action, resource == Tool::"db__q");`,
		"permit (principal, act",
		"",
	}
	if err := os.WriteFile(dir+"/a.cedar", []byte(sets[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := e.Reload(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			q := call(agent("a"), upstream("db", "q"), low, `{}`)
			for n := 0; ; n++ {
				select {
				case <-done:
					if n < 100 {
						t.Errorf("only %d decisions", n)
					}
					return
				default:
				}
				if v, err := e.Authorize(q); err != nil || v.Allow {
					t.Errorf("allowed in mid-reload: %v %v", v, err)
					return
				}
			}
		})
	}
	for i := range 200 {
		if err := os.WriteFile(dir+"/a.cedar", []byte(sets[i%len(sets)]), 0o600); err != nil {
			t.Fatal(err)
		}
		_ = e.Reload()
	}
	close(done)
	wg.Wait()
}

// Whatever the file holds, loading it ends in an error or in policies, and
// what does not contain a permit allows nothing.
func FuzzLoad(f *testing.F) {
	for _, tt := range brokenPolicies {
		f.Add([]byte(tt.text))
	}
	f.Add([]byte(good))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<16 {
			return
		}
		e, err := cedar.Load(write(t, string(text)))
		if err != nil {
			return
		}
		v, _ := e.Authorize(call(agent("a", "agent"), upstream("db", "q"), critical, `{"n":1.5}`))
		if v.Allow && !strings.Contains(string(text), "permit") {
			t.Fatalf("allowed by %q", text)
		}
	})
}
