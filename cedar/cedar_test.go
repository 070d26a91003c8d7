package cedar_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/cedar"
	"sallyport.dev/sallyport/gateway"
)

var _ gateway.Authorizer = (*cedar.Engine)(nil)

// write puts one file with policies into a new folder.
func write(t testing.TB, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.cedar"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func engine(t testing.TB, text string) *cedar.Engine {
	t.Helper()
	e, err := cedar.Load(write(t, text))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func agent(id string, roles ...string) sallyport.Principal {
	return sallyport.Principal{Tenant: "default", ID: id, Roles: roles}
}

func builtin(name string) sallyport.Tool {
	return sallyport.Tool{Name: name, Version: "1", Origin: sallyport.Origin{Backend: "sandbox", Name: name}, Code: &sallyport.Script{Language: "python"}}
}

func upstream(server, name string) sallyport.Tool {
	return sallyport.Tool{Name: server + "__" + name, Version: "1", Origin: sallyport.Origin{Backend: "upstream", Server: server, Name: name}}
}

func call(who sallyport.Principal, tool sallyport.Tool, risk sallyport.Risk, args string) gateway.Question {
	q := gateway.Question{Who: who, Action: gateway.ActionCall, Tool: tool, Risk: risk}
	if args != "" {
		q.Args = json.RawMessage(args)
	}
	return q
}

func decide(t testing.TB, e *cedar.Engine, q gateway.Question) gateway.Verdict {
	t.Helper()
	v, err := e.Authorize(q)
	if err != nil {
		t.Fatalf("Authorize: %v", err)
	}
	return v
}

var (
	low          = sallyport.Risk{Level: sallyport.Low}
	high         = sallyport.Risk{Level: sallyport.High}
	critical     = sallyport.Risk{Level: sallyport.Critical}
	irreversible = sallyport.Risk{Level: sallyport.Critical, Irreversible: true}
)

func TestStarterPolicies(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "policies")
	written, err := cedar.WriteStarter(dir)
	if err != nil || len(written) != 3 {
		t.Fatalf("WriteStarter: %v, %v", written, err)
	}
	if again, err := cedar.WriteStarter(dir); err != nil || len(again) != 0 {
		t.Fatalf("a second WriteStarter wrote %v, %v", again, err)
	}
	if ps := cedar.Check(dir); len(ps) != 0 {
		t.Fatalf("the starter set has problems: %v", ps)
	}
	e, err := cedar.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	script := sallyport.Tool{Name: "report", Code: &sallyport.Script{Language: "python", Source: "print(1)"}, Origin: sallyport.Origin{Backend: "sandbox"}}
	a, stranger := agent("claude", "agent"), agent("claude")
	for _, tt := range []struct {
		name            string
		who             sallyport.Principal
		tool            sallyport.Tool
		risk            sallyport.Risk
		allow, approval bool
	}{
		{"sandbox tool", a, builtin("run_python"), low, true, false},
		{"approval_result", a, builtin("approval_result"), low, true, false},
		{"another builtin", a, builtin("admin_thing"), low, false, false},
		{"upstream tool", a, upstream("db", "query"), high, true, false},
		{"script", a, script, low, true, false},
		{"critical", a, upstream("db", "query"), critical, true, true},
		{"irreversible", a, upstream("db", "query"), irreversible, true, true},
		{"irreversible, level not raised", a, upstream("db", "query"), sallyport.Risk{Irreversible: true}, true, true},
		{"no role", stranger, builtin("run_python"), low, false, false},
		{"no role, critical", stranger, upstream("db", "query"), critical, false, false},
		{"other role", agent("claude", "agents"), builtin("run_python"), low, false, false},
		{"a role called like the tenant", agent("claude", "default"), builtin("run_python"), low, false, false},
	} {
		v := decide(t, e, call(tt.who, tt.tool, tt.risk, `{}`))
		if v.Allow != tt.allow || (len(v.Demands) > 0) != tt.approval {
			t.Errorf("%s: allow %v approval %v (%v); want %v, %v", tt.name, v.Allow, v.Demands, v.Reasons, tt.allow, tt.approval)
		}
		l := decide(t, e, gateway.Question{Who: tt.who, Action: gateway.ActionList, Tool: tt.tool})
		if l.Allow != tt.allow || len(l.Demands) > 0 {
			t.Errorf("%s: listed %v, approval %v; want %v, false", tt.name, l.Allow, l.Demands, tt.allow)
		}
	}
}

func TestVerdicts(t *testing.T) {
	e := engine(t, `
@id("all") permit (principal, action, resource in Server::"db");
@id("one") permit (principal == Agent::"default/a", action == Action::"call", resource == Tool::"files__read");
@id("t") permit (principal in Tenant::"acme", action, resource == Tool::"files__read");
@id("no-writes") @message("writes are not for you") @hint("use SELECT")
forbid (principal in Role::"reader", action == Action::"call", resource) when { context.risk.mutating };
@id("quiet") forbid (principal, action, resource == Tool::"db__secret");
@id("ask") @approval("required") @message("a human looks at this")
permit (principal in Role::"ops", action == Action::"call", resource == Tool::"ops__restart");
@id("offline") @network("none") forbid (principal, action == Action::"call", resource) when { resource.trust == "untrusted" };
@id("behalf") permit (principal, action == Action::"call", resource == Tool::"mail__send") when { context.on_behalf_of == "ann" && context.profile == "mail" && context.tier == "gvisor" };
`)
	untrusted := upstream("db", "query")
	untrusted.Manifest.Trust = "untrusted"
	behalf := call(agent("a"), upstream("mail", "send"), high, "")
	behalf.Who.OnBehalfOf, behalf.Profile, behalf.Tier = "ann", "mail", "gvisor"
	other := behalf
	other.Who.OnBehalfOf = "bob"
	acme := sallyport.Principal{Tenant: "acme", ID: "a"}

	for _, tt := range []struct {
		name string
		q    gateway.Question
		want string
	}{
		{"by server", call(agent("x"), upstream("db", "query"), high, ""), "allow [all]"},
		{"forbid wins", call(agent("x", "reader"), upstream("db", "query"), high, ""), "deny [no-writes] writes are not for you (hint: use SELECT)"},
		{"forbid's condition", call(agent("x", "reader"), upstream("db", "query"), low, ""), "allow [all]"},
		{"forbid without a message", call(agent("x"), upstream("db", "secret"), low, ""), `deny [quiet] policy "quiet" forbids this`},
		{"by agent and tool", call(agent("a"), upstream("files", "read"), low, ""), "allow [one]"},
		{"another agent", call(agent("b"), upstream("files", "read"), low, ""), "deny [] no policy allows this"},
		{"same id, other tenant", call(acme, upstream("files", "read"), low, ""), "allow [t]"},
		{"another tool", call(agent("a"), upstream("files", "write"), low, ""), "deny [] no policy allows this"},
		{"approval by a permit", call(agent("a", "ops"), upstream("ops", "restart"), low, ""), "allow [ask] approval [ask] a human looks at this"},
		{"network taken away", call(agent("a"), untrusted, low, ""), "allow [all offline] no network"},
		{"context", behalf, "allow [behalf]"},
		{"another user", other, "deny [] no policy allows this"},
	} {
		if got := text(decide(t, e, tt.q)); got != tt.want {
			t.Errorf("%s: %s; want %s", tt.name, got, tt.want)
		}
	}
}

func policiesOf(demands []sallyport.Demand) (ids []string) {
	for _, d := range demands {
		ids = append(ids, d.Policy)
	}
	return ids
}

func text(v gateway.Verdict) string {
	s := "deny"
	if v.Allow {
		s = "allow"
	}
	slices.Sort(v.Policies)
	s += fmt.Sprintf(" %v", v.Policies)
	if len(v.Demands) > 0 {
		s += fmt.Sprintf(" approval %v", policiesOf(v.Demands))
	}
	if v.NoNetwork {
		s += " no network"
	}
	if len(v.Reasons) > 0 {
		s += " " + strings.Join(v.Reasons, "; ")
	}
	return s
}

// Arguments reach policies exactly; what Cedar cannot hold is never rounded,
// and never looks as if it were not there.
func TestArguments(t *testing.T) {
	const allow = `@id("ok") permit (principal, action == Action::"call", resource);`
	for _, tt := range []struct {
		name, rule, args, want string
	}{
		{"long", `context.args has n && context.args.n > 100`, `{"n":101}`, "deny"},
		{"long, below", `context.args has n && context.args.n > 100`, `{"n":100}`, "allow"},
		{"absent", `context.args has n && context.args.n > 100`, `{}`, "allow"},
		{"no arguments", `context.args has n && context.args.n > 100`, ``, "allow"},
		{"2^53+1 is not 2^53", `context.args has n && context.args.n == 9007199254740992`, `{"n":9007199254740993}`, "allow"},
		{"2^53+1", `context.args has n && context.args.n == 9007199254740993`, `{"n":9007199254740993}`, "deny"},
		{"largest", `context.args has n && context.args.n == 9223372036854775807`, `{"n":9223372036854775807}`, "deny"},
		{"smallest", `context.args has n && context.args.n == -9223372036854775808`, `{"n":-9223372036854775808}`, "deny"},
		{"1e2 is 100", `context.args has n && context.args.n == 100`, `{"n":1e2}`, "deny"},
		{"100.0 is 100", `context.args has n && context.args.n == 100`, `{"n":100.0}`, "deny"},
		{"fraction cannot slip past", `context.args has n && context.args.n > 100`, `{"n":100.5}`, "error"},
		{"large number cannot slip past", `context.args has n && context.args.n > 100`, `{"n":1e400}`, "error"},
		{"2^63 cannot slip past", `context.args has n && context.args.n > 100`, `{"n":9223372036854775808}`, "error"},
		{"null cannot slip past", `context.args has n && context.args.n > 100`, `{"n":null}`, "error"},
		{"text cannot slip past", `context.args has n && context.args.n > 100`, `{"n":"500"}`, "error"},
		{"exact text", `context.args_text has n && context.args_text.n == "100.50"`, `{"n":100.50}`, "deny"},
		{"exact text of another", `context.args_text has n && context.args_text.n == "100.50"`, `{"n":100.5}`, "allow"},
		{"no text of a long", `context.args_text has n && context.args_text.n like "*"`, `{"n":7}`, "allow"},
		{"string", `context.args has s && context.args.s like "DROP *"`, `{"s":"DROP TABLE x"}`, "deny"},
		{"bool", `context.args has b && context.args.b`, `{"b":true}`, "deny"},
		{"bool, false", `context.args has b && context.args.b`, `{"b":false}`, "allow"},
		{"array", `context.args has l && context.args.l.contains("orders")`, `{"l":["a","orders"]}`, "deny"},
		{"array without", `context.args has l && context.args.l.contains("orders")`, `{"l":["a"]}`, "allow"},
		{"nested", `context.args has a && context.args.a has b && context.args.a.b == 1`, `{"a":{"b":1}}`, "deny"},
		{"nested text", `context.args_text has a && context.args_text.a has b && context.args_text.a.b == "1.5"`, `{"a":{"b":1.5}}`, "deny"},
		{"quoted name", `context.args has "user-id" && context.args["user-id"] == 7`, `{"user-id":7}`, "deny"},
		{"compared with each other", `context.args has a && context.args has b && context.args.a == context.args.b && context.args.a > 0`, `{"a":3,"b":3}`, "deny"},
		{"profile as an argument", `context.args has p && context.args.p != context.profile`, `{"p":"x"}`, "deny"},
		{"overflow", `context.args has n && context.args.n + 1 > 0`, `{"n":9223372036854775807}`, "error"},
		{"unless", `!(context.args has ok && context.args.ok == "yes")`, `{"ok":"no"}`, "deny"},
	} {
		e := engine(t, allow+"\n@id(\"no\") forbid (principal, action == Action::\"call\", resource) when { "+tt.rule+" };")
		got := "allow"
		v := decide(t, e, call(agent("a"), upstream("db", "q"), low, tt.args))
		if !v.Allow {
			got = "deny"
			if strings.Contains(v.Reasons[0], "could not be evaluated") {
				got = "error"
			}
		}
		if got != tt.want {
			t.Errorf("%s: %s with %s: %s (%v), want %s", tt.name, tt.rule, tt.args, got, v.Reasons, tt.want)
		}
	}
}

// A question that makes no sense is refused, and says so.
func TestMalformedQuestions(t *testing.T) {
	e := engine(t, `permit (principal, action, resource);
@id("reads") permit (principal, action == Action::"call", resource) when { context.args has a && context.args.a == 1 };`)
	good := call(agent("a"), upstream("db", "q"), low, `{}`)
	if v := decide(t, e, good); !v.Allow {
		t.Fatal("the control is refused")
	}
	bad := map[string]func(*gateway.Question){
		"no agent":            func(q *gateway.Question) { q.Who.ID = "" },
		"no tenant":           func(q *gateway.Question) { q.Who.Tenant = "" },
		"tenant with a slash": func(q *gateway.Question) { q.Who.Tenant = "a/b" },
		"no tool":             func(q *gateway.Question) { q.Tool = sallyport.Tool{} },
		"server builtin":      func(q *gateway.Question) { q.Tool.Origin.Server = "builtin" },
		"server scripts":      func(q *gateway.Question) { q.Tool.Origin.Server = "scripts" },
		"upstream, no server": func(q *gateway.Question) { q.Tool.Origin.Server = "" },
		"no action":           func(q *gateway.Question) { q.Action = "" },
		"unknown action":      func(q *gateway.Question) { q.Action = "delete" },
		"level too high":      func(q *gateway.Question) { q.Risk.Level = 4 },
		"level below zero":    func(q *gateway.Question) { q.Risk.Level = -1 },
		"args no object":      func(q *gateway.Question) { q.Args = json.RawMessage(`[1]`) },
		"args cut short":      func(q *gateway.Question) { q.Args = json.RawMessage(`{"a":1`) },
		"args twice":          func(q *gateway.Question) { q.Args = json.RawMessage(`{"a":1}{}`) },
		"args duplicate name": func(q *gateway.Question) { q.Args = json.RawMessage(`{"a":1,"a":2}`) },
	}
	for name, change := range bad {
		q := good
		change(&q)
		v, err := e.Authorize(q)
		if v.Allow || err == nil || sallyport.CodeOf(err) != sallyport.Denied {
			t.Errorf("%s: allow %v, error %v; want a refusal with code denied", name, v.Allow, err)
		}
	}
}

// A tool or an agent that changed is judged as it is now.
func TestNoStaleFacts(t *testing.T) {
	e := engine(t, `permit (principal in Role::"r", action, resource) when { resource.read_only };`)
	tool, who := upstream("db", "q"), agent("a", "r")
	for range 2 {
		for _, ro := range []bool{true, false} {
			tool.Manifest.ReadOnly = ro
			if v := decide(t, e, call(who, tool, low, "")); v.Allow != ro {
				t.Errorf("read_only %v: allow %v", ro, v.Allow)
			}
		}
		tool.Manifest.ReadOnly = true
		if v := decide(t, e, call(agent("a"), tool, low, "")); v.Allow {
			t.Error("a lost role still counts")
		}
	}
}

func TestReload(t *testing.T) {
	dir := write(t, `permit (principal, action, resource == Tool::"db__q");`)
	e, err := cedar.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	q := call(agent("a"), upstream("db", "q"), low, "")
	gen, version := e.Generation(), e.Version()
	if err := e.Reload(); err != nil || e.Generation() != gen || e.Version() != version {
		t.Errorf("a reload of the same files: %v, generation %d → %d", err, gen, e.Generation())
	}
	if err := os.WriteFile(filepath.Join(dir, "b.cedar"), []byte(`forbid (principal, action, resource);`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := e.Reload(); err != nil || e.Generation() == gen || e.Version() == version {
		t.Errorf("a reload of other files: %v, generation %d → %d, version %s → %s", err, gen, e.Generation(), version, e.Version())
	}
	if decide(t, e, q).Allow {
		t.Error("the new forbid does not count")
	}
}
