package isolate_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/isolate/isolatetest"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/tier"
)

// looks is a program that evaluates each expression and prints what came of it.
func looks(t *testing.T, expressions ...string) string {
	t.Helper()
	var b strings.Builder
	for _, e := range expressions {
		name, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "try { console.log(%s, '=', String(await (async () => (%s))())) } catch (e) { console.log(%s, '!', String(e).split('\\n')[0]) }\n", name, e, name)
	}
	return b.String()
}

// Nothing of the host's files can be named. That nothing is there to be named even
// for the process is shown by TestTO40_RootOfAProcess.
func TestTO40_FilesOfTheHost(t *testing.T) {
	canary := filepath.Join(t.TempDir(), "canary.js")
	if err := os.WriteFile(canary, []byte("export default 'canary of the host'"), 0o644); err != nil {
		t.Fatal(err)
	}
	h := isolatetest.Open(t)
	asked := []string{
		"fetch('file://" + canary + "').then((r) => r.text())", "import('" + canary + "')", "import('file://" + canary + "')", "import('../../../../../.." + canary + "')",
		"import('/host.js')", "import('sallyport:guest/../host')", "import('node:fs')", "import('fs')", "require('fs')", "Deno.readTextFile('/etc/passwd')", "Bun",
		"process.getBuiltinModule('node:fs')", "(await import('node:process')).default.getBuiltinModule('node:fs')", "(await import('node:process')).getBuiltinModule('fs').readFileSync('" + canary + "')",
		"new Worker('data:text/javascript,1')", "importScripts('" + canary + "')", "navigator.storage.getDirectory()", "caches.default.match('file://" + canary + "')", "(await caches.open('x')).match('file://" + canary + "')",
	}
	res := run(t, h, js(looks(t, asked...)))
	for _, line := range strings.Split(strings.TrimSpace(string(res.Stdout)), "\n") {
		if strings.Contains(line, " = ") && !strings.HasSuffix(line, "= undefined") && !strings.HasSuffix(line, `"hint":"this is a rule, not a fault: do not look for another way; an operator can allow HOST:PORT in the tool's egress list"}`) {
			t.Errorf("%s", line)
		}
	}
	if got := strings.Count(string(res.Stdout), "\n"); got < len(asked) || strings.Contains(string(res.Stdout), "canary of the host") {
		t.Errorf("%d answers to %d questions: %s %s", got, len(asked), res.Stdout, res.Stderr)
	}
	// Control: what is given can be read and imported.
	res = run(t, h, js("import x from './canary.js'; console.log(x, files['canary.js'].length, bytes['b'][0])", func(r *tier.Request) {
		r.Files = []tier.File{{Path: "canary.js", Content: []byte("export default 'canary of the host'")}, {Path: "b", Content: []byte{0xff}}}
	}))
	if string(res.Stdout) != "canary of the host 35 255\n" {
		t.Errorf("control: %q %q", res.Stdout, res.Stderr)
	}
}

// Whatever code could be made of text, and whatever outlives a call, is not there.
func TestCapabilities(t *testing.T) {
	h := isolatetest.Open(t)
	res := run(t, h, js(looks(t,
		"eval('1')", "new Function('return 1')()", "(async () => {}).constructor('return 1')()", "setTimeout('1')",
		"WebAssembly.compile(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]))", "new WebAssembly.Module(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]))",
		"import('workerd:unsafe')", "import('workerd:unsafe-eval')", "import('cloudflare-internal:http')", "import('node-internal:process')", "import('internal:unsafe-eval')",
		"(await import('cloudflare:workers')).waitUntil(1)", "(await import('cloudflare:workers')).abortIsolate()", "(await import('cloudflare:workers')).exports.default.fetch",
		"(await import('cloudflare:sockets')).connect('127.0.0.1:80').opened", "(await import('cloudflare:sockets')).internalNewHttpClient.name",
		"(await import('cloudflare:workers')).env.LOADER.load", "LOADER", "env",
		"new WebSocket('ws://127.0.0.1:1/').readyState === 0 && await new Promise((r, j) => 0)",
	)))
	if strings.Contains(string(res.Stdout), "=") {
		for line := range strings.Lines(string(res.Stdout)) {
			if !strings.Contains(line, " ! ") {
				t.Errorf("%s", line)
			}
		}
	}
}

// A call's program learns this of its machine, and no more; docs/threat-model.md
// lists it.
func TestTO48_WhatAnIsolateLearns(t *testing.T) {
	h := isolatetest.Open(t)
	res := run(t, h, js(looks(t, "navigator.userAgent", "navigator.hardwareConcurrency", "navigator.language", "new Date().getTimezoneOffset()", "Intl.DateTimeFormat().resolvedOptions().timeZone",
		"performance.timeOrigin", "performance.memory", "process.version", "process.platform", "Object.keys(process.env).length", "argv.length", "typeof gc", "location", "origin")))
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, own := range []string{host + " ", "linux", os.Getenv("HOME") + "/", os.TempDir()} {
		if strings.Contains(string(res.Stdout), own) {
			t.Errorf("%q is told:\n%s", own, res.Stdout)
		}
	}
	t.Logf("%s", res.Stdout)
}

// What one call changes in its world the next one, in the same process, finds as it
// was.
func TestFO47_NothingIsLeftInTheProcess(t *testing.T) {
	h := isolatetest.Open(t)
	spoil := `
globalThis.canary = 1; Object.prototype.canary = 1; Array.prototype[Symbol.iterator] = function* () { yield 'canary' };
String.prototype.toString = () => 'canary'; JSON.stringify = () => '"canary"'; JSON.parse = () => ({ canary: 1 });
Promise.prototype.then = function () { return 'canary' }; globalThis.fetch = () => 'canary'; Reflect.apply = () => 'canary';
console.log = () => {}; Request.prototype.arrayBuffer = () => 'canary'; Response = class {}; Map.prototype.set = () => 'canary';
Error.prepareStackTrace = () => 'canary'; TextDecoder.prototype.decode = () => 'canary'; Uint8Array.prototype.subarray = () => [];
setTimeout(() => { console.error('late canary') }, 1);
process.stdout.write('spoilt\n')`
	look := looks(t, "globalThis.canary", "({}).canary", "[...[1]][0]", "JSON.stringify(1)", "JSON.parse('2')", "fetch.name", "new Map([[1, 2]]).size", "files['a']", "new Error('x').stack.split('\\n')[0]")
	want := ""
	again := 0
	for i := range 8 {
		res := run(t, h, js(spoil))
		if res.Receipt.Warm {
			again++
		}
		got := string(run(t, h, js(look, func(r *tier.Request) { r.Files = []tier.File{{Path: "a", Content: []byte("content")}} })).Stdout)
		if i == 0 {
			want = got
		}
		if got != want || strings.Contains(got, "canary\" = canary") || !strings.Contains(got, "files['a'] = content") || !strings.Contains(got, "[...[1]][0] = 1\n") {
			t.Fatalf("after %d: %s", i, got)
		}
	}
	if again == 0 {
		t.Error("no process was used again: the test shows nothing")
	}
}

// What is not listed is denied in words, and told.
func TestFO57_DenialInWords(t *testing.T) {
	h := isolatetest.Open(t)
	res := run(t, h, js(`for (const u of ['http://example.com/', 'https://1.2.3.4:8443/x', 'http://example.com/']) {
  const r = await fetch(u);
  console.log(r.status, r.headers.get('Sallyport-Egress'), (await r.json()).reason);
}
const ws = new WebSocket('wss://example.com/'); await new Promise((r) => ws.addEventListener('error', r)); console.log('no socket')`))
	if string(res.Stdout) != strings.Repeat("403 denied; reason=not_listed not_listed\n", 3)+"no socket\n" {
		t.Errorf("%q %q", res.Stdout, res.Stderr)
	}
	want := []sallyport.Connection{{Target: "example.com:80", Reason: "not_listed", Count: 2}, {Target: "1.2.3.4:8443", Reason: "not_listed", Count: 1}, {Target: "example.com:443", Reason: "not_listed", Count: 1}}
	if fmt.Sprint(res.Connections) != fmt.Sprint(want) {
		t.Errorf("told: %+v", res.Connections)
	}
	// A body that nobody takes keeps nobody waiting, and an end that comes from outside
	// makes nothing of it unknown.
	for code, killed := range map[string]tier.KilledBy{"": "", "for (;;);": tier.KilledByTimeout} {
		await.Longer(time.Second, func(d time.Duration) bool {
			res = run(t, h, js(`const r = await fetch('http://example.com/', { method: 'POST', body: new Uint8Array(1e6) }); console.log(r.status);`+code, func(r *tier.Request) { r.Limits.Timeout = d }))
			return len(res.Stdout) > 0
		})
		if res.KilledBy != killed || string(res.Stdout) != "403\n" || fmt.Sprint(res.Connections) != fmt.Sprint([]sallyport.Connection{{Target: "example.com:80", Reason: "not_listed", Count: 1}}) {
			t.Errorf("with a body, then %q: %q %s %+v", code, res.Stdout, res.KilledBy, res.Connections)
		}
	}
	// An earlier call's attempts are not this one's.
	if res = run(t, h, js(`console.log(1)`)); len(res.Connections) != 0 {
		t.Errorf("told again: %+v", res.Connections)
	}
}

// add is (module (func (export "add") (param i32 i32) (result i32) local.get 0
// local.get 1 i32.add) (func (export "big") (param i64) (result i64) local.get 0)).
var add = []byte{
	0, 'a', 's', 'm', 1, 0, 0, 0, 1, 12, 2, 0x60, 2, 0x7f, 0x7f, 1, 0x7f, 0x60, 1, 0x7e, 1, 0x7e, 3, 3, 2, 0, 1,
	7, 13, 2, 3, 'a', 'd', 'd', 0, 0, 3, 'b', 'i', 'g', 0, 1, 10, 14, 2, 7, 0, 0x20, 0, 0x20, 1, 0x6a, 0x0b, 4, 0, 0x20, 0, 0x0b,
}

func TestWasm(t *testing.T) {
	h := isolatetest.Open(t)
	wasi := append([]byte{0, 'a', 's', 'm', 1, 0, 0, 0, 1, 4, 1, 0x60, 0, 0, 2, 9, 1, 3, 'e', 'n', 'v', 1, 'f', 0, 0}, 0)
	wasi = wasi[:len(wasi)-1]
	for name, c := range map[string]struct {
		code      []byte
		args      []string
		out, errs string
	}{
		"numbers":    {add, []string{"add", "40", "2"}, "42\n", ""},
		"64 bits":    {add, []string{"big", "9007199254740993"}, "9007199254740993\n", ""},
		"no name":    {add, nil, "", "the module exports no function _start or main; it exports: add, big"},
		"wrong name": {add, []string{"sub"}, "", "the module exports no function sub"},
		"imports":    {wasi, nil, "", "the module imports env.f"},
		"no module":  {[]byte("text"), nil, "", "CompileError"},
	} {
		res := run(t, h, js("", func(r *tier.Request) {
			r.Module = &tier.Module{Language: "wasm", Code: c.code}
			r.Argv = append([]string{"m.wasm"}, c.args...)
		}))
		if string(res.Stdout) != c.out || !strings.Contains(string(res.Stderr), c.errs) || (c.errs != "") != (res.ExitCode == 1) {
			t.Errorf("%s: exit %d, %q, %q", name, res.ExitCode, res.Stdout, res.Stderr)
		}
	}
	// A module of a file that a program imports.
	res := run(t, h, js("import m from './m.wasm'; console.log(new WebAssembly.Instance(m).exports.add(1, 2))", func(r *tier.Request) { r.Files = []tier.File{{Path: "m.wasm", Content: add}} }))
	if string(res.Stdout) != "3\n" && !strings.Contains(string(res.Stderr), "global scope") {
		t.Errorf("imported: %q %q", res.Stdout, res.Stderr)
	}
}
