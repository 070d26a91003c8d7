package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.dev/sallyport/test/stage"
)

// talkTo is a program that speaks to process 1 itself.
const talkTo = `
import net from "net";
const s = net.connect("/run/sallyport-talk"); let got = "";
s.on("data", (b) => { got += b; if (got.split("\n").length > LINES) { console.log(got); process.exit(0) } });
s.on("error", (e) => { console.log("gone", e.code); process.exit(0) });
s.write(FRAMES);
setTimeout(() => { console.log("silence", got); process.exit(0) }, 5000);
`

func scriptForged(t *testing.T, g *stage.Gateway, c raw) {
	frames := func(lines int, text string) string {
		return strings.NewReplacer("LINES", fmt.Sprint(lines), "FRAMES", text).Replace(talkTo)
	}
	_, s := c.script(t, keyed("forged"), frames(4, str(
		`{"n":1,"tool":"a__say","args":{"text":"named"}}`+"\n"+`{"n":2,"tool":"a__pay","args":{"to":"forged"}}`+"\n"+
			`{"n":3,"tool":"a__spawn","args":{}}`+"\n"+`{"n":4,"tool":"run_python","args":{"code":"1"}}`+"\n")), []string{"a__say"})
	if n := strings.Count(s.Stdout, `"not_found"`); n != 3 || !strings.Contains(s.Stdout, `"text":"named"`) {
		t.Errorf("%s\n%+v", s.Stdout, s.Calls)
	}
	if out := g.Must("", "audit", "search", "--tool", "a__spawn", "--json").Out; !strings.Contains(out, `"code": "not_found"`) || !strings.Contains(out, `"door": "script"`) {
		t.Errorf("the refusal is not on record: %s", out)
	}
	for name, text := range map[string]string{
		"garbage": str("hello\n"), "a number used again": str(strings.Repeat(`{"n":1,"tool":"a__say","args":{"text":"x"}}`+"\n", 2)),
		"a huge frame": `"x".repeat(3 << 20)`, "a flood": `Array.from({length: 400}, (_, i) => '{"n":' + (i+1) + ',"tool":"a__wait","args":{"n":3000}}\n').join("")`,
		"an endless flood": `"y".repeat(64 << 20)`,
	} {
		a, s := c.script(t, keyed("hostile "+name), frames(1000, text), []string{"a__*"})
		if !a.IsError || s.KilledBy != "caller" || s.Code != "invalid_arguments" && s.Code != "rate_limited" {
			t.Errorf("%s: %s", name, a)
		}
	}
	_, s = c.script(t, keyed("recursion"), `try { await tools.run_javascript({code: "1", tools: ["a__*"]}) } catch (e) { console.log(e.code, e.message) }
console.log((await tools.run_javascript({code: "console.log(typeof tools)"})).stdout)`, []string{"run_javascript"})
	if !strings.Contains(s.Stdout, "denied") || !strings.Contains(s.Stdout, "\nundefined\n") {
		t.Errorf("%+v", s)
	}
}

// scriptHoldsNoToken looks at all that a program can: its environment, every
// process, every file that is not of the image, and its own memory.
func scriptHoldsNoToken(t *testing.T, c raw) {
	a, s := c.script(t, "", `
import fs from "fs"; import path from "path";
process.env.PLANTED = "planted-" + "canary";
await tools.a.say({text: "x"});
const seen = [];
const read = (f) => { try { seen.push(f + ": " + fs.readFileSync(f, "latin1").replaceAll("\0", " ")) } catch (e) { seen.push(f + ": " + e.code) } };
for (const pid of fs.readdirSync("/proc").filter((p) => /^[0-9]+$/.test(p))) {
  for (const f of ["environ", "cmdline", "status"]) read("/proc/" + pid + "/" + f);
  try { for (const fd of fs.readdirSync("/proc/" + pid + "/fd")) seen.push(fd + " -> " + fs.readlinkSync("/proc/" + pid + "/fd/" + fd)) } catch {}
}
const walk = (d) => { try { for (const e of fs.readdirSync(d, {withFileTypes: true})) { const f = path.join(d, e.name); if (e.isDirectory()) walk(f); else read(f) } } catch {} };
["/run", "/tmp", "/home", "/dev/shm"].forEach(walk);
const mem = fs.openSync("/proc/self/mem", "r");
for (const line of fs.readFileSync("/proc/self/maps", "utf8").split("\n").filter((l) => /rw-p.*(heap|stack|00:00 0 *$)/.test(l))) {
  const [from, to] = line.split(" ")[0].split("-").map((x) => Number("0x" + x));
  const b = Buffer.alloc(Math.min(to - from, 4 << 20));
  try { const n = fs.readSync(mem, b, 0, b.length, from); for (const m of b.toString("latin1", 0, n).matchAll(/(script-[A-Z2-7]{20,}[.A-Z2-7]*|eyJ[A-Za-z0-9_-]{20,}|planted-canary)/g)) seen.push("memory: " + m[0]) } catch {}
}
console.log(JSON.stringify(process.env) + "\n" + seen.join("\n"));
`, []string{"a__say"})
	head, _, _ := strings.Cut(c.token, ".")
	for what, secret := range map[string]string{"the agent's token": c.token, "its payload": strings.Split(c.token, ".")[1][:40], "a token": head + ".", "a credential of inner calls": "memory: script-"} {
		if strings.Contains(string(a.Result), secret) {
			t.Errorf("the sandbox holds %s", what)
		}
	}
	if !strings.Contains(s.Stdout, "PLANTED") || !strings.Contains(s.Stdout, "memory: planted-canary") || !strings.Contains(s.Stdout, "/home/agent/main.mjs: ") || s.ExitCode != 0 {
		t.Errorf("it was not looked for: exit %d, %.300s, %.300s", s.ExitCode, s.Stdout, s.Stderr)
	}
	if strings.Contains(s.Stdout, "/home/agent/.tools") {
		t.Errorf("the launcher is still there: %.300s", s.Stdout)
	}
}
func scriptRefused(t *testing.T, g *stage.Gateway, c raw) {
	for _, args := range []string{
		`{"code":"1","tools":["a__*"],"session":"s"}`, `{"code":"1","tools":[]}`, `{"code":"1","tools":"a__*"}`, `{"code":"1","tools":["no__such"]}`,
		`{"code":"1","tools":["a__spawn"]}`, `{"code":"1","tools":["approval_result"]}`, `{"code":"1","tools":["a__*"],"files":{".tools.js":"x"}}`,
	} {
		if a := c.must(t, "run_javascript", args, ""); !a.IsError || a.Code != "invalid_arguments" && a.Code != "not_found" {
			t.Errorf("%s: %s", args, a)
		}
	}
	if a := c.must(t, "run_python", `{"code":"1","tools":["a__*"]}`, ""); !a.IsError || a.Code != "invalid_arguments" {
		t.Errorf("run_python: %s", a)
	}
	g.Write("policies/60-no-scripts.cedar", `@id("no-scripts") forbid (principal, action == Action::"call", resource == Tool::"run_javascript") when { context.args has tools };`+"\n")
	g.Must("", "policy", "reload")
	if a := c.must(t, "run_javascript", `{"code":"1","tools":["a__*"]}`, ""); a.Code != "denied" {
		t.Errorf("where policies forbid scripts: %s", a)
	}
	a := c.must(t, "run_javascript", `{"code":"console.log(typeof tools, require('fs').existsSync('/run/sallyport-talk'))"}`, "")
	if a.Text != "undefined false\n" || strings.Contains(string(a.Result), `"calls"`) {
		t.Errorf("a run without tools: %s", a)
	}
	if err := os.Remove(filepath.Join(g.Data, "policies/60-no-scripts.cedar")); err != nil {
		t.Fatal(err)
	}
	g.Must("", "policy", "reload")
}
