package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/npm"
	"sallyport.dev/sallyport/test/stage"
)

// A scripted is what a script's result says of its calls.
type scripted struct {
	Stdout, Stderr, Code, Message, Hint, Ticket string
	KilledBy                                    string `json:"killed_by"`
	ExitCode                                    int    `json:"exit_code"`
	Receipt                                     struct{ Warm bool }
	Calls                                       []scriptCall
}

type scriptCall struct {
	N          int
	Tool, Code string
	CallID     string `json:"call_id"`
	Replay     bool
	Ticket     string
	IsError    bool `json:"is_error"`
}

// script runs a program that may call tools; more are members of its arguments.
func (c raw) script(t *testing.T, meta, code string, tools []string, more ...any) (answer, scripted) {
	t.Helper()
	in := map[string]any{"code": code, "tools": tools}
	for i := 0; i+1 < len(more); i += 2 {
		in[more[i].(string)] = more[i+1]
	}
	args, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	a := c.must(t, "run_javascript", string(args), meta)
	var s scripted
	if a.Structured != nil {
		if err := json.Unmarshal(a.Structured, &s); err != nil {
			t.Fatalf("%v in %s", err, a)
		}
	}
	return a, s
}

// Programs in real sandboxes call the tools of a real gateway.
func TestCodeMode(t *testing.T) {
	t.Parallel()
	g, l := ledgered(t, "approvals: {cooldown: 0s}\nprofiles: {few: {tools: [a__say, run_javascript], search: true, search_above: 0}}\n")
	g.Write("policies/50-hidden.cedar", `@id("hidden") forbid (principal, action, resource == Tool::"a__spawn");`+"\n")
	g.Must("", "policy", "reload")
	c := newRaw(t, g)
	g.Login()
	run := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			g.In(t)
			f(t)
		})
	}
	run("Functions", func(t *testing.T) { scriptFunctions(t, c, l) })
	run("Pending", func(t *testing.T) { scriptPending(t, g, c, l) })
	run("Forged", func(t *testing.T) { scriptForged(t, g, c) })
	run("NoToken", func(t *testing.T) { scriptHoldsNoToken(t, c) })
	run("Killed", func(t *testing.T) { scriptSandboxKilled(t, c, l) })
	run("Cancelled", func(t *testing.T) { scriptCancelled(t, g, c, l) })
	run("Profile", func(t *testing.T) { scriptInProfile(t, g) })
	run("CommandLine", func(t *testing.T) {
		args := `{"tools":["a__*"],"code":"try { await tools.a.refuse({text:'nope'}) } catch (e) { console.log(e.stack) }\nawait tools.a.transfer({to: 'cli'})"}`
		r := g.Run("", "call", "run_javascript", args)
		if r.Code != 4 || !strings.Contains(r.Err, "approval_pending: a human must approve call 2 of the script") || !strings.Contains(r.Out, "at async file:///home/agent/main.mjs:1:7") {
			t.Errorf("%s", r)
		}
	})
	run("Saga", func(t *testing.T) { scriptInSaga(t, g, c, l) })
	run("Refused", func(t *testing.T) { scriptRefused(t, g, c) })
	run("Strangers", func(t *testing.T) { scriptReadsStrangers(t, g, c) })
	run("Warm", func(t *testing.T) { scriptWarm(t, g, c) })
	if r := g.Run("", "audit", "verify"); r.Code != 0 {
		t.Errorf("audit verify: %s", r)
	}
}

func scriptFunctions(t *testing.T, c raw, l *stage.Ledger) {
	a, s := c.script(t, keyed("functions"), `
console.log(tools.$list("a__p*") + "|" + tools.$describe("a__say"));
console.log(await tools.a.say({text: "hello"}), JSON.stringify(await tools.a.echo({x: [1.50, "é"]})));
console.log((await Promise.all([1, 2, 3].map((to) => tools.a.pay({to})))).join());
try { await tools.a.fail({text: "no"}) } catch (e) { console.log(e instanceof tools.$error, e.code, e.message) }
console.log((await tools.$call("a__fail", {text: "raw"})).isError, typeof tools.a.spawn, require("os").EOL === "\n");
const big = await Promise.all(Array.from({length: 100}, (_, i) => tools.a.say({text: String(i)})));
console.log(big.join("") === Array.from({length: 100}, (_, i) => i).join(""));
try { await tools.a.say([]) } catch (e) { console.log(e.name) }
`, []string{"a__*"})
	want := `tools.a.pay - does it|// does it
tools.a.say(arguments?: Record<string, any>): Promise<string | object>
hello {"x":[1.5,"é"]}
paid {"to":1},paid {"to":2},paid {"to":3}
true tool_error a__fail: no
true undefined true
true
TypeError
`
	if s.Stdout != want || s.ExitCode != 0 || a.IsError || len(s.Calls) != 107 {
		t.Errorf("%s\n%d calls, stderr %s", s.Stdout, len(s.Calls), s.Stderr)
	}
	for n := 1; n <= 3; n++ {
		if l.Count(fmt.Sprintf(`{"to":%d}`, n)) != 1 {
			t.Errorf("%q", l.Lines())
		}
	}
	if !strings.Contains(string(a.Result), `"receipt"`) {
		t.Error("no receipt")
	}
}

// waits makes five calls, the third of which needs a human.
const fiveCalls = `
const out = [];
out.push(await tools.a.pay({of: TAG, i: 1}));
out.push(await tools.a.say({text: "two"}));
out.push(await tools.a.transfer({of: TAG, i: 3}));
out.push(...await Promise.all([tools.a.pay({of: TAG, i: 4, n: PAUSE}), tools.a.pay({of: TAG, i: 5, n: PAUSE})]));
console.log(out.length);
`

func five(tag string, pause int) string {
	return strings.NewReplacer("TAG", str(tag), "PAUSE", fmt.Sprint(pause)).Replace(fiveCalls)
}

// effects counts, by the number of the call, what the ledger knows of a tag.
func effects(t *testing.T, l *stage.Ledger, tag string) map[int]int {
	t.Helper()
	count := map[int]int{}
	for _, line := range l.Lines() {
		var e struct {
			Of string
			I  int
		}
		if json.Unmarshal([]byte(line), &e) == nil && e.Of == tag {
			count[e.I]++
		}
	}
	return count
}

func scriptPending(t *testing.T, g *stage.Gateway, c raw, l *stage.Ledger) {
	for _, key := range []string{"pending", ""} {
		meta, tag := "", "pending "+key
		if key != "" {
			meta = keyed(key)
		}
		a, s := c.script(t, meta, five(tag, 0), []string{"a__*"})
		if !a.IsError || s.Code != "approval_pending" || s.Ticket == "" || s.KilledBy != "caller" || len(s.Calls) != 3 || s.Calls[2].Ticket != s.Ticket {
			t.Fatalf("%s\n%+v", a, s)
		}
		if key == "" { // the id of the first run is a key; the hint says so
			_, rest, _ := strings.Cut(s.Hint, `idempotency key "`)
			key, _, _ = strings.Cut(rest, `"`)
		}
		if _, again := c.script(t, keyed(key), five(tag, 0), []string{"a__*"}); again.Ticket != s.Ticket || len(effects(t, l, tag)) != 1 {
			t.Errorf("run again before it is decided: %+v", again)
		}
		g.Must("", "approvals", "approve", s.Ticket)
		a, s = c.script(t, keyed(key), five(tag, 0), []string{"a__*"})
		if a.IsError || s.Stdout != "5\n" || len(s.Calls) != 5 || !s.Calls[0].Replay || !s.Calls[1].Replay || s.Calls[2].Replay {
			t.Errorf("%s\n%+v", a, s)
		}
		a, s = c.script(t, keyed(key), five(tag, 0), []string{"a__*"})
		if a.IsError || s.Stdout != "5\n" || !strings.Contains(string(a.Result), `"dev.sallyport/replay":true`) {
			t.Errorf("its result, once more: %s", a)
		}
		if got := effects(t, l, tag); fmt.Sprint(got) != "map[1:1 3:1 4:1 5:1]" {
			t.Errorf("%v", got)
		}
		var out struct {
			Entries []struct {
				Payload struct {
					Parent, Door, Principal, Key, Operation string
					CallID                                  string `json:"call_id"`
				}
			}
		}
		if err := json.Unmarshal([]byte(g.Must("", "audit", "search", "--tool", "a__transfer", "--json").Out), &out); err != nil {
			t.Fatal(err)
		}
		found := slices.ContainsFunc(out.Entries, func(e struct {
			Payload struct {
				Parent, Door, Principal, Key, Operation string
				CallID                                  string `json:"call_id"`
			}
		}) bool {
			return e.Payload.CallID == s.Calls[2].CallID && strings.HasPrefix(e.Payload.Parent, "call_") && e.Payload.Door == "script" && strings.HasPrefix(e.Payload.Key, "script_")
		})
		if !found {
			t.Errorf("call %s is not on record with its parent", s.Calls[2].CallID)
		}
	}
	// Chains of calls beside each other, which take turns by how long each takes, are
	// the same calls when most of them come from the record.
	chains := `await Promise.all([0, 1, 2, 3, 4].map(async (i) => {
  await tools.a.wait({n: 40 * (5 - i)});
  for (let k = 0; k <= i; k++) await tools.a.pay({of: "chains", i: 10 * i + k});
}));
await tools.a.transfer({of: "chains", i: 99});
console.log("end")`
	_, s := c.script(t, keyed("chains"), chains, []string{"a__*"})
	if s.Code != "approval_pending" || len(s.Calls) != 21 {
		t.Fatalf("%+v", s)
	}
	if out := g.Must("", "approvals", "show", s.Ticket).Out; !strings.Contains(out, "the script of call call_") {
		t.Errorf("the approver is not told of the script: %s", out)
	}
	g.Must("", "approvals", "approve", s.Ticket)
	if _, s = c.script(t, keyed("chains"), chains, []string{"a__*"}); s.Stdout != "end\n" {
		t.Errorf("%+v", s)
	}
	for i, n := range effects(t, l, "chains") {
		if n != 1 {
			t.Errorf("call %d: %d times", i, n)
		}
	}
	// A script that is not the same is stopped where it differs.
	_, s = c.script(t, "", `await tools.a.pay({of: "changed", i: 1}); await tools.a.transfer({of: "changed"})`, []string{"a__*"})
	_, rest, _ := strings.Cut(s.Hint, `idempotency key "`)
	key, _, _ := strings.Cut(rest, `"`)
	_, s = c.script(t, keyed(key), `await tools.a.pay({of: "changed", i: 2})`, []string{"a__*"})
	if s.Code != "conflict" || !strings.Contains(s.Message, "call 1") || fmt.Sprint(effects(t, l, "changed")) != "map[1:1]" {
		t.Errorf("%+v, %v", s, effects(t, l, "changed"))
	}
}

// A sandbox that is killed in the middle of an inner call leaves that with the
// outcome that it has.
func scriptSandboxKilled(t *testing.T, c raw, l *stage.Ledger) {
	code := `await tools.a.pay({of: "killed", i: 1}); await tools.a.pay({of: "killed", i: 2, n: 7000}); console.log("end")`
	a, s := c.script(t, keyed("killed"), code, []string{"a__*"}, "timeout_seconds", 5)
	if s.KilledBy != "timeout" || len(s.Calls) != 2 || fmt.Sprint(effects(t, l, "killed")) != "map[1:1 2:1]" {
		t.Errorf("%s, %v", a, effects(t, l, "killed"))
	}
	a, s = c.script(t, keyed("killed"), code, []string{"a__*"}, "timeout_seconds", 5)
	if a.IsError || s.Stdout != "end\n" || !s.Calls[0].Replay || !s.Calls[1].Replay || fmt.Sprint(effects(t, l, "killed")) != "map[1:1 2:1]" {
		t.Errorf("run again: %s, %v", a, effects(t, l, "killed"))
	}
}

func scriptCancelled(t *testing.T, g *stage.Gateway, c raw, l *stage.Ledger) {
	c = c.legacy(t)
	done := make(chan answer, 1)
	go func() {
		a, _ := c.call(str("outer"), "run_javascript", `{"code":"await tools.a.hang({text: 'inner'})","tools":["a__hang"]}`, "")
		done <- a
	}()
	g.Eventually(stage.Patience, "the inner call is on its way", func() error { return told(l, `{"text":"inner"}`) })
	if h, body, err := c.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"outer"}}`, nil); err != nil || h.Get("Status") != "202" {
		t.Fatalf("%s %v", body, err)
	}
	g.Eventually(stage.Patience, "the server is told", func() error { return told(l, `cancelled a {"text":"inner"}`) })
	g.Eventually(stage.Patience, "it is on record", func() error { return cancelledBy(g, "a__hang", "client") })
	select {
	case <-done:
	case <-time.After(stage.Patience):
		t.Error("the script does not end")
	}
}

// A sandbox that waits serves scripts, too.
func scriptWarm(t *testing.T, g *stage.Gateway, c raw) {
	g.Eventually(stage.Patience, "a script runs in a sandbox that waited", func() error {
		_, s := c.script(t, "", `console.log(await tools.a.say({text: "warm"}), process.argv.length, import.meta.url)`, []string{"a__say"})
		if s.Stdout != "warm 2 file:///home/agent/main.mjs\n" {
			t.Fatalf("%+v", s)
		}
		if !s.Receipt.Warm {
			return fmt.Errorf("cold")
		}
		return nil
	})
}

// npm's memory and filesystem servers: what a script does is in their files, outside
// of the gateway.
func TestCodeModeNpm(t *testing.T) {
	t.Parallel()
	n := npm.Find(t).Open(t)
	dir := stage.OpenDir(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	memory := n.Server("server-memory")
	memory.Env = map[string]string{"MEMORY_FILE_PATH": filepath.Join(dir, "memory.jsonl")}
	g := stage.New(t)
	g.Write("sallyport.yaml", g.Config(roomy+"approvals: {cooldown: 0s}\n"+stage.Servers(map[string]stage.Server{"memory": memory, "files": n.Server("server-filesystem", dir)})))
	g.Write("tools/move.yaml", "server: files\ntool: move_file\nrisk: critical\n")
	g.Start("memory", "files")
	c := newRaw(t, g)
	g.Login()
	code := `
await tools.memory.create_entities({entities: [{name: "ada", entityType: "person", observations: ["wrote a program"]}]});
await tools.memory.add_observations({observations: [{entityName: "ada", contents: ["twice?"]}]});
const graph = await tools.memory.read_graph();
await tools.files.write_file({path: DIR + "/a.txt", content: graph.entities[0].observations.join("+")});
await tools.files.move_file({source: DIR + "/a.txt", destination: DIR + "/b.txt"});
console.log(await tools.files.read_text_file({path: DIR + "/b.txt"}).then((r) => r.content ?? r));
console.log(tools.$describe("files__move_file"));
`
	code = strings.ReplaceAll(code, "DIR", str(dir))
	a, s := c.script(t, keyed("npm"), code, []string{"memory__*", "files__*"})
	if s.Code != "approval_pending" || len(s.Calls) != 5 {
		t.Fatalf("%s\n%s", a, s.Stderr)
	}
	g.Must("", "approvals", "approve", s.Ticket)
	a, s = c.script(t, keyed("npm"), code, []string{"memory__*", "files__*"})
	if a.IsError || !strings.HasPrefix(s.Stdout, "wrote a program+twice?\n") || !strings.Contains(s.Stdout, "tools.files.move_file(arguments: { destination: string; source: string; }): Promise<{ content: string; }>") {
		t.Errorf("%s\n%s", s.Stdout, a)
	}
	b, err := os.ReadFile(filepath.Join(dir, "b.txt"))
	if err != nil || string(b) != "wrote a program+twice?" {
		t.Errorf("b.txt: %q, %v", b, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "a.txt")); err == nil {
		t.Error("a.txt is still there")
	}
}
