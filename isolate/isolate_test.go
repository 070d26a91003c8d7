package isolate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/isolate"
	"sallyport.dev/sallyport/isolate/isolatetest"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/tier"
)

// js is a request for a program.
func js(code string, alter ...func(*tier.Request)) tier.Request {
	r := tier.Request{
		Owner: "owner", Argv: []string{"main.js"}, Limits: sallyport.Limits{Timeout: 2 * time.Minute}.Or(sallyport.DefaultLimits()),
		Module: &tier.Module{Language: "javascript", Code: []byte(code)},
	}
	for _, f := range alter {
		f(&r)
	}
	return r
}

func run(t testing.TB, h *isolate.Host, r tier.Request) tier.Result {
	t.Helper()
	res, err := h.Run(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func stdin(text string) func(*tier.Request) { return func(r *tier.Request) { r.Stdin = []byte(text) } }

func TestPrograms(t *testing.T) {
	h := isolatetest.Open(t)
	for name, c := range map[string]struct {
		code, in  string
		out, errs string // errs is a part of it
		exit      int
	}{
		"script":              {`console.log('hi', {a: 1}, [1, 2]); console.error('bad'); console.log()`, "", "hi { a: 1 } [ 1, 2 ]\n\n", "bad\n", 0},
		"waits":               {`await new Promise(r => setTimeout(r, 5)); console.log('later')`, "", "later\n", "", 0},
		"goes on":             {`setTimeout(() => console.log('timer'), 5); (async () => { await scheduler.wait(10); console.log('wait') })()`, "", "timer\nwait\n", "", 0},
		"input":               {`console.log(stdin.length, argv, process.argv[1])`, "abc", "3 [] main.js\n", "", 0},
		"module":              {`export default (x) => ({...x, b: 2})`, `{"a":1}`, "{\"a\":1,\"b\":2}\n", "", 0},
		"module, waits":       {`export default async function (x) { await scheduler.wait(1); console.log(x); }`, "", "undefined\n", "", 0},
		"module, goes on":     {`export default () => { setTimeout(() => console.log('later'), 5); return 1; }`, "", "1\nlater\n", "", 0},
		"module, no default":  {`export const x = 1; console.log('top')`, "", "top\n", "", 0},
		"looks like a module": {"const s = `\nexport default 1`; console.log(s.length)", "", "17\n", "", 0},
		"throws":              {`throw new Error('no good')`, "", "", "Error: no good\n    at Module.default (main.js:1:7)\n", 1},
		"throws text":         {`throw 'no good'`, "", "", "Uncaught no good\n", 1},
		"throws later":        {`setTimeout(() => { throw new TypeError('late') }, 1)`, "", "", "TypeError: late\n", 1},
		"throws in a task":    {`queueMicrotask(() => { throw new TypeError('task') })`, "", "", "task", 1},
		"throws a trap":       {`console.log('a'); throw new Proxy(new Error('x'), { get() { throw new Error('trap') } })`, "", "a\n", "cannot be shown\n", 1},
		"throws no stack":     {`const e = new Error('x'); Object.defineProperty(e, 'stack', { get() { throw 1 } }); throw e`, "", "", "cannot be shown\n", 1},
		"traces throw":        {`await 1; Error.prepareStackTrace = () => { throw 1 }; throw new Error('x')`, "", "", "cannot be shown\n", 1},
		"breaks its own ways": {`Set.prototype.has = () => true; Number.isInteger = () => { throw 1 }; throw new Error('x')`, "", "", "", 1},
		"rejects":             {`Promise.reject(new Error('nobody cares'))`, "", "", "Error: nobody cares\n", 1},
		"wrong":               {"\n\nconsole.log(", "", "", "SyntaxError: ", 1},
		"no such file":        {`import x from './foo.js'`, "", "", "No such module", 1},
		"bad input":           {`export default (x) => x`, `{`, "", "SyntaxError: ", 1},
		"never":               {`console.log('so far'); await new Promise(() => {})`, "", "so far\n", "waits for what never comes", 13},
		"prints exactly":      {`process.stdout.write('no end'); process.stderr.write('ü\0\u{1f600}')`, "", "no end", "ü\x00\U0001f600", 0},
		"half a character":    {`console.log('\ud800x')`, "", "\ufffdx\n", "", 0},
		"percent":             {`console.log('%s %d'); console.log('%s', 'x')`, "", "%s %d\nx\n", "", 0},
		"pretends":            {`console.log('\x1e' + '0'.repeat(32) + ' x9\n\x1eabc'); console.log('\x1e1 ', 'x')`, "", "\x1e" + strings.Repeat("0", 32) + " x9\n\x1eabc\n\x1e1  x\n", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			res := run(t, h, js(c.code, stdin(c.in)))
			if string(res.Stdout) != c.out || !strings.Contains(string(res.Stderr), c.errs) || strings.Count(string(res.Stderr), "\nError: ") > 0 || res.ExitCode != c.exit || res.KilledBy != "" {
				t.Errorf("exit %d %s, stdout %q, stderr %q", res.ExitCode, res.KilledBy, res.Stdout, res.Stderr)
			}
			if c.errs == "" && c.exit == 0 && len(res.Stderr) > 0 {
				t.Errorf("stderr %q", res.Stderr)
			}
		})
	}
}

func TestFO51_ExitStatuses(t *testing.T) {
	h := isolatetest.Open(t)
	for code, want := range map[string]int{
		`process.exit(0)`: 0, `process.exit(1)`: 1, `process.exit(42)`: 42, `process.exit(255)`: 255, `process.exit(256)`: 0,
		`process.exit(124)`: 124, `process.exit(137)`: 137, `process.exitCode = 7`: 7,
		`process.exitCode = 'x'`: 1, `process.exit(1e20)`: 1, `export default () => () => {}`: 0,
		`try { process.exit(3) } catch {} while (false);`:                  3,
		`setTimeout(() => process.exit(4), 1); setInterval(() => {}, 1e3)`: 4,
		`import('node:process').then((p) => p.exit(5))`:                    5,
	} {
		if res := run(t, h, js(code)); res.ExitCode != want || res.KilledBy != "" || res.Signal != "" || res.Receipt.Exit != "exited" {
			t.Errorf("%s: %d %s %s %s (%s)", code, res.ExitCode, res.KilledBy, res.Signal, res.Receipt.Exit, res.Stderr)
		}
	}
}

// Beyond its time, a program is killed, and what it printed is told.
func TestTO56_LoopsAreKilled(t *testing.T) {
	h := isolatetest.Open(t)
	for name, code := range map[string]string{
		"sort":          `[3,1,2].sort(() => { for (;;); })`,
		"microtasks":    `const f = () => Promise.resolve().then(f); f(); await new Promise(() => {})`,
		"after its end": `setTimeout(() => { for (;;); }, 1)`,
		"in module":     `export default () => { for (;;); }`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var res tier.Result
			await.Longer(700*time.Millisecond, func(d time.Duration) bool {
				res = run(t, h, js(`console.log('so far');`+code, func(r *tier.Request) { r.Limits.Timeout = d; r.Limits.Memory = 1 << 30 }))
				return len(res.Stdout) > 0 || name == "in module"
			})
			if name == "in module" {
				res.Stdout = []byte("so far\n")
			}
			if res.KilledBy != tier.KilledByTimeout || res.ExitCode != 137 || string(res.Stdout) != "so far\n" {
				t.Errorf("%+v", res)
			}
		})
	}
	t.Run("neighbours", func(t *testing.T) {
		t.Parallel()
		for range 20 {
			if res := run(t, h, js(`console.log('well')`, func(r *tier.Request) { r.Owner = "neighbour" })); string(res.Stdout) != "well\n" {
				t.Errorf("%+v", res)
			}
		}
	})
}

// How workerd itself dies is not for whoever made the call: there are addresses in
// its last words.
func TestFO52_LastWordsAreNotTold(t *testing.T) {
	h := isolatetest.Open(t)
	small := func(r *tier.Request) { r.Limits.Memory = 64 << 20 }
	res := run(t, h, js(`console.log('so far'); const a = []; for (;;) a.push(new Array(1e5).fill(a))`, small))
	if res.KilledBy != tier.KilledByMemory || res.ExitCode != 137 || string(res.Stdout) != "so far\n" || len(res.Stderr) != 0 || res.PeakMemory < 16<<20 {
		t.Errorf("exit %d, killed by %q, %q, %q, %d MB", res.ExitCode, res.KilledBy, res.Stdout, res.Stderr, res.PeakMemory>>20)
	}
	// One that V8 ends for a reason of its own is told like one that a signal ended.
	res = run(t, h, js(`try { 'x'.repeat(2 ** 30) } catch { console.log('refused') }`, small))
	if string(res.Stdout) != "refused\n" || res.ExitCode != 0 {
		t.Errorf("%+v", res)
	}
}

func TestTO55_FloodsOfOutput(t *testing.T) {
	h := isolatetest.Open(t)
	few := func(r *tier.Request) { r.Limits.Output = 1000 }
	for code, first := range map[string]string{
		`for (let i = 0; i < 2e5; i++) console.log('line')`:            "line\nline\n",
		`console.log('y'.repeat(5e6))`:                                 "yyyy",
		`console.log('\n'.repeat(1e6))`:                                "\n\n\n",
		`console.log('z', 'y'.repeat(5e6))`:                            "z yyyy",
		`for (let i = 0; i < 1e5; i++) process.stdout.write('\u0001')`: "\x01\x01",
	} {
		res := run(t, h, js(code, few))
		if len(res.Stdout) != 1000 || !bytes.HasPrefix(res.Stdout, []byte(first)) || !res.Truncated || len(res.LimitsHit) != 1 || res.ExitCode != 0 {
			t.Errorf("%s: %d bytes %.20q, %v, %v, exit %d %s", code, len(res.Stdout), res.Stdout, res.Truncated, res.LimitsHit, res.ExitCode, res.KilledBy)
		}
	}
	// What is said of a call beside its output has bounds of its own.
	res := run(t, h, js(`export const x = 1; throw new Error('x'.repeat(3e6))`, few))
	if len(res.Stderr) != 1000 || res.ExitCode != 1 {
		t.Errorf("a long error: exit %d, %.40q", res.ExitCode, res.Stderr)
	}
	res = run(t, h, js(`for (let i = 0; i < 100; i++) await fetch('http://h' + i + '.' + 'abcdefg.'.repeat(1500) + 'test/')`, few))
	if len(res.Connections) != tier.MaxConnections || len(res.Connections[0].Target) > 300 || res.ExitCode != 0 {
		t.Errorf("long names: exit %d, %d connections", res.ExitCode, len(res.Connections))
	}
	await.Longer(time.Second, func(d time.Duration) bool {
		res = run(t, h, js(`for (;;) console.log('for ever')`, few, func(r *tier.Request) { r.Limits.Timeout = d }))
		return len(res.Stdout) == 1000
	})
	if res.KilledBy != tier.KilledByTimeout || len(res.Stdout) != 1000 {
		t.Errorf("for ever: %s, %d bytes", res.KilledBy, len(res.Stdout))
	}
}

// What is printed just before the end is never lost, nor mixed with what an
// earlier call of the same process printed.
func TestFO50_FastPrograms(t *testing.T) {
	h := isolatetest.Open(t)
	for i := range 100 {
		want := fmt.Sprintf("%d ü\nno end", i)
		res := run(t, h, js(fmt.Sprintf(`console.log('%d ü'); process.stderr.write('e'.repeat(9)); process.stdout.write('no end')`, i)))
		if string(res.Stdout) != want || string(res.Stderr) != "eeeeeeeee" {
			t.Fatalf("run %d: %q, %q", i, res.Stdout, res.Stderr)
		}
	}
	if res := run(t, h, js(`console.log('x'.repeat(200000))`)); len(res.Stdout) != 200001 {
		t.Errorf("%d bytes", len(res.Stdout))
	}
}

func TestTold(t *testing.T) {
	h := isolatetest.Open(t)
	var out, errs bytes.Buffer
	first := make(chan time.Time, 8)
	res := run(t, h, js(`console.log('a'); console.error('b'); await scheduler.wait(300); console.log('c')`, func(r *tier.Request) {
		r.Told = func(stderr bool, b []byte) {
			first <- time.Now()
			if stderr {
				errs.Write(b)
			} else {
				out.Write(b)
			}
		}
	}))
	if out.String() != "a\nc\n" || errs.String() != "b\n" || !bytes.Equal(res.Stdout, out.Bytes()) {
		t.Errorf("%q, %q", out.String(), errs.String())
	}
}

func TestCallerEndsIt(t *testing.T) {
	h := isolatetest.Open(t)
	for _, c := range []struct {
		cause error
		want  func(tier.Result, error) bool
	}{
		{nil, func(_ tier.Result, err error) bool { return errors.Is(err, context.Canceled) }},
		{tier.ErrStopped, func(r tier.Result, err error) bool {
			return err == nil && r.KilledBy == tier.KilledByCaller && string(r.Stdout) == "on\n"
		}},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		r := js(`console.log('on'); for (;;);`)
		r.Told = func(bool, []byte) { cancel(c.cause) }
		if res, err := h.Run(ctx, r); !c.want(res, err) {
			t.Errorf("%v: %+v, %v", c.cause, res, err)
		}
	}
	r := js(`console.log('on'); for (;;);`)
	r.CallID = "call"
	var once sync.Once
	r.Told = func(bool, []byte) {
		once.Do(func() {
			go func() {
				if l := h.List(); len(l) != 1 || l[0].CallID != "call" || !h.Kill(l[0].ID) {
					t.Errorf("%+v", l)
				}
			}()
		})
	}
	if _, err := h.Run(t.Context(), r); sallyport.CodeOf(err) != sallyport.Canceled {
		t.Errorf("killed: %v", err)
	}
	if h.Kill("iso-nothing") || len(h.List()) != 0 {
		t.Error("something is left")
	}
}

func TestRefused(t *testing.T) {
	h := isolatetest.Open(t)
	for name, alter := range map[string]func(*tier.Request){
		"no module":  func(r *tier.Request) { r.Module = nil },
		"python":     func(r *tier.Request) { r.Module.Language = "python" },
		"GPU":        func(r *tier.Request) { r.GPU = true },
		"image":      func(r *tier.Request) { r.Image = "sha256-1" },
		"not text":   func(r *tier.Request) { r.Module.Code = []byte("\xff") },
		"no limits":  func(r *tier.Request) { r.Limits.Timeout = 0 },
		"file names": func(r *tier.Request) { r.Files = []tier.File{{Path: "../x"}} },
		"its name":   func(r *tier.Request) { r.Argv[0] = "sallyport:guest" },
	} {
		if _, err := h.Run(t.Context(), js("", alter)); sallyport.CodeOf(err) != sallyport.Invalid || !errors.Is(err, sallyport.ErrNotExecuted) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := js("", func(r *tier.Request) { r.Way.Reach = []string{"a.test:80"} })
	if _, err := h.Run(t.Context(), r); sallyport.CodeOf(err) != sallyport.Unavailable {
		t.Errorf("without a broker: %v", err)
	}
}
