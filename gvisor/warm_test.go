package gvisor_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/tier"
)

func script(program, name, text string) tier.Request {
	return tier.Request{Argv: []string{program, name}, Files: []tier.File{{Path: name, Content: []byte(text)}}}
}

// warmHost is a host whose next run of the kind finds a warm sandbox.
func warmHost(t *testing.T, max int) *gvisor.Host {
	return gvisortest.Open(t, func(c *gvisor.Config) { c.Warm = max })
}

// runWarm runs r, again and again until it finds a warm sandbox, and returns when
// there is one again.
func runWarm(t *testing.T, h *gvisor.Host, r tier.Request) tier.Result {
	t.Helper()
	deadline := time.Now().Add(5 * time.Minute)
	for {
		res := run(t, h, r)
		for h.Waiting() == 0 {
			if time.Now().After(deadline) {
				t.Fatal("no sandbox became warm")
			}
			time.Sleep(5 * time.Millisecond)
		}
		if res.Receipt.Warm {
			return res
		}
	}
}

// below are the calls of Node.js itself, and of ours, that a stack ends with.
var below = regexp.MustCompile(`(?m)^    at .*(\(node:internal/modules/run_main|node:internal/main|\.ahead\.js|processImmediate).*\n`)

// A program cannot tell a warm sandbox from a cold one by what it prints, how
// it fails or how it ends.
func TestWarmIsLikeCold(t *testing.T) {
	cold, warm := gvisortest.Open(t), warmHost(t, 1)
	cases := map[string]tier.Request{
		"python": script("python3", "main.py", `
import sys, os
print(sys.argv, sys.path[0], __name__, __file__, os.getcwd(), sorted(globals()), sys.stdin.read(), sorted(os.environ.items()))
print(os.listdir("/proc/self/fd") == ["0", "1", "2", "3"], os.getuid(), sys.flags, __builtins__.__name__, open("main.py").read()[:8])
import __main__; print(__main__.__file__, hasattr(__main__, "sys"))
sys.stderr.write("err"); sys.exit(3)`),
		"python error":      script("python3", "main.py", "def f():\n    return 1/0\n\ntry:\n    f()\nexcept ZeroDivisionError as e:\n    raise ValueError('two') from e\n"),
		"python syntax":     script("python3", "main.py", "print(1)\nif True print(2)\n"),
		"python message":    script("python3", "main.py", "raise SystemExit('a message')"),
		"python atexit":     script("python3", "main.py", "import atexit, threading, time\natexit.register(print, 'bye')\ne = threading.Event()\nthreading.Thread(target=lambda: (e.wait(), time.sleep(.1), print('thread'))).start()\nprint('main'); e.set()"),
		"python files":      script("python3", "main.py", "import sys\nopen('m.py', 'w').write(\"f = open('c', 'w'); f.write('module')\")\nimport m\nf = open('a', 'w'); f.write('global')\nclass C: pass\nx = C(); x.me = x; x.f = open('b', 'w'); x.f.write('cycle'); del x\nimport atexit, os\npid = os.fork()\nif pid:\n    os.waitpid(pid, 0)\n    print([open(n).read() for n in 'abc'])\n"),
		"python del":        script("python3", "main.py", "class A:\n    def __init__(s, n): s.n = n\n    def __del__(s): print('del', s.n)\na = A('global'); b = A('cycle'); b.b = b\nprint('end')"),
		"python closed":     script("python3", "main.py", "import sys\nprint('out'); sys.stdout.close()"),
		"python replaced":   script("python3", "main.py", "import sys, io\nprint('out', end='')\nsys.stdout = io.StringIO(); print('lost')"),
		"python broken":     script("python3", "main.py", "import sys, os\nprint('x' * 10, end=''); os.close(1)"),
		"python codes":      script("python3", "main.py", "import os, sys\nfor c in (None, 0, 7, 300, -1, True, 'text', 2.5, (1, 2)):\n    sys.stdout.flush(); sys.stderr.flush()\n    pid = os.fork()\n    if pid == 0: sys.exit(c)\n    print(repr(c), os.waitpid(pid, 0)[1])"),
		"python finalize":   script("python3", "main.py", "import tempfile, weakref, logging, threading, concurrent.futures as f\nd = tempfile.TemporaryDirectory(); weakref.finalize(d, print, 'finalized')\nlogging.basicConfig(level=1); logging.info('logged')\np = f.ThreadPoolExecutor(); p.submit(print, 'pooled')\nthreading.Thread(target=lambda: __import__('time').sleep(9), daemon=True).start()"),
		"python multi":      script("python3", "main.py", "import multiprocessing as m\ndef f(q): q.put('child')\nif __name__ == '__main__':\n    q = m.Queue(); p = m.Process(target=f, args=(q,)); p.start(); print(q.get()); p.join(); print(p.exitcode)"),
		"python in atexit":  script("python3", "main.py", "import atexit, sys\ndef f(): 1/0\natexit.register(sys.exit, 4)\natexit.register(print, 'bye')\nprint('end')"),
		"python signal":     script("python3", "main.py", "import os; os.kill(os.getpid(), 15)"),
		"python NUL":        script("python3", "main.py", "a\x00b"),
		"python coding":     script("python3", "main.py", "# coding: latin-1\nprint(ascii('\xe9'))"),
		"python in module":  script("python3", "main.py", "import json, sys, csv\ndef g(): yield 1\nclass A:\n    __slots__ = ()\n    def __del__(s): print('del')\njson.a = A()\njson.f = open('/proc/self/fd/1', 'w'); json.f.write('in a module')\nw = csv.writer(open('/proc/self/fd/1', 'w')); w.writerow(['in a writer'])\nsys.path[:] = []"),
		"python last":       script("python3", "main.py", "import atexit, sys\nclass A:\n    def __del__(s): print('del')\natexit.register(lambda: print(sys.last_type, sys.last_traceback.tb_lineno))\ndef f():\n    a = A()\n    1/0\nf()"),
		"python hook":       script("python3", "main.py", "import sys\ndef hook(*a): print(a[0], a[2].tb_lineno); sys.exit(9)\nsys.excepthook = hook\n1/0"),
		"python interrupt":  script("python3", "main.py", "try: raise KeyboardInterrupt\nexcept KeyboardInterrupt: print('caught')\nraise KeyboardInterrupt('again')"),
		"python large code": script("python3", "main.py", "raise SystemExit(2**70)"),
		"python last words": script("python3", "main.py", "import os\nclass A:\n    def __del__(s): os.write(1, b'z'); s.leave(4)\n    leave = os._exit\na = A()"),
		"python C buffer":   script("python3", "main.py", "import ctypes\nctypes.CDLL(None).printf(b'from C')"),
		"python names":      script("python3", "main.py", "import builtins, gc, os, sys\nbuiltins.list = builtins.type = builtins.all = builtins.map = None\ngc.collect = gc.get_objects = os._exit = None\nprint('all names taken')"),
		"python traced":     script("python3", "main.py", "import sys\ndef t(f, e, a):\n    print(e, f.f_code.co_name)\n    return t\nsys.settrace(t)\ndef f(): pass\nf()"),
		"python unicode":    {Argv: []string{"python3", "main.py"}, Files: []tier.File{{Path: "main.py", Content: []byte("print('\xff')")}}},
		"python shadow": {Argv: []string{"python3", "main.py"}, Files: []tier.File{
			{Path: "main.py", Content: []byte("import json, string; print(json.x, string.y)")}, {Path: "json.py", Content: []byte("x = 1")}, {Path: "string/__init__.py", Content: []byte("y = 2")},
		}},
		"python frames": script("python3", "main.py", "import inspect, sys\nprint(open('/proc/self/cmdline', 'rb').read(), sys.orig_argv, sys.path, inspect.stack()[0].function, inspect.stack()[-1].filename)"),
		"python named":  script("python3", "json.py", "import random, collections, sys; print(sys.argv, __file__, open('/proc/self/cmdline', 'rb').read())"),
		"python class":  script("python3", "main.py", "import pickle, dataclasses\n@dataclasses.dataclass\nclass A:\n    x: int\nprint(pickle.loads(pickle.dumps(A(1))), A.__module__)"),
		"node":          script("node", "main.js", "console.log(process.argv, __filename, require.main === module, process.execArgv, typeof name, process.cwd(), require('fs').readFileSync(0,'utf8')); process.exitCode = 3"),
		"node module":   script("node", "main.mjs", "import fs from 'fs'; console.log(import.meta.url, process.argv, typeof require, fs.readdirSync('.')); process.exit(4)"),
		"node globals":  script("node", "main.js", "console.log(Object.keys(globalThis).sort(), Object.keys(process.env).sort())"),
		"true":          {Argv: []string{"true"}},
		"env":           {Argv: []string{"env"}},
		"python -c":     {Argv: []string{"python3", "-c", "import sys, os; print(sys.argv, __name__, sorted(os.environ), sys.stdin.read())"}},
		"missing":       {Argv: []string{"no-such-program", "x"}},
		"not a program": {Argv: []string{"/etc/passwd"}},
		"killed":        {Argv: []string{"sh", "-c", "kill -9 $$"}},
		"bash":          script("bash", "main.sh", "echo $0 $# $-; env | sort; cat; exit 5"),
		"bash missing":  {Argv: []string{"bash", "nothing.sh"}},
		"bash state":    script("bash", "main.sh", "echo \"$_ $((SECONDS < 3600)) $LINENO $? $! ${BASH_SOURCE[@]} ${FUNCNAME[@]} $BASH_ENV $REPLY\"\ndeclare -p | grep -v -e PID -e RANDOM -e EPOCH -e SECONDS -e BASH_ARGC\nset -o; shopt; trap -p; alias; ulimit -a; ls -l /proc/$$/fd | grep -c pipe; ls -A; echo ${BASH_VERSINFO[0]} $SHLVL $0\n"),
		"bash stdin":    script("bash", "main.sh", "read -r a; echo \"got $a\"; return 3 2>/dev/null; false; set -e; false; echo never"),
		"bash exec":     script("bash", "main.sh", "trap 'echo bye' EXIT\nf() { caller; exec python3 -c 'import os; print(sorted(os.environ), os.listdir(\"/proc/self/fd\"))'; }\nf"),
		"bash syntax":   script("bash", "main.sh", "echo one\nif then\n"),
		"python empty":  script("python3", "main.py", ""),
		"python large":  script("python3", "main.py", "print(open(__file__).read().count('#'))\n"+strings.Repeat("# a comment\n", 5000)),
		"python beside": {Argv: []string{"python3", "main.py"}, Files: []tier.File{
			{Path: "main.py", Content: []byte("import m, os\nprint(m.x, sorted(os.listdir('.')), oct(os.stat('main.py').st_mode), os.stat('main.py').st_uid)\n")}, {Path: "m.py", Content: []byte("x = 1")},
		}},
		"python umask": script("python3", "main.py", "import os\ns = os.stat('main.py')\nprint(os.listdir('.'), oct(s.st_mode), s.st_uid, oct(os.umask(0)), os.getsid(0) == os.getpid(), os.getcwd())"),
		"node beside": {Argv: []string{"node", "main.js"}, Files: []tier.File{
			{Path: "main.js", Content: []byte("console.log(require('./m').x, require('fs').readdirSync('.').sort(), Object.keys(require.cache), module.children.length)")}, {Path: "m.js", Content: []byte("exports.x = 1")},
		}},
		"node ends":    script("node", "main.js", "process.emit('exit', 0); process.on('exit', (c) => { console.log('exit', c); process.exitCode = 6 }); setTimeout(() => console.log('later'), 20)"),
		"node throws":  script("node", "main.js", "process.on('exit', (c) => console.log('exit', c)); throw new Error('x')"),
		"node rejects": script("node", "main.js", "Promise.reject(new Error('x'))"),
		"node much":    script("node", "main.js", "process.stdout.write('x'.repeat(300000)); process.stderr.write('y'.repeat(200000))"),
	}
	for _, name := range slices.Sorted(maps.Keys(cases)) { // of one kind after each other
		r := cases[name]
		r.Stdin = []byte("input")
		want := run(t, cold, r)
		got := runWarm(t, warm, r)
		clean := func(b []byte) string {
			return below.ReplaceAllString(strings.ReplaceAll(string(b), got.ID, want.ID), "")
		}
		if clean(got.Stdout) != clean(want.Stdout) || clean(got.Stderr) != clean(want.Stderr) || got.ExitCode != want.ExitCode || got.Signal != want.Signal {
			t.Errorf("%s:\nwarm %d %s %q %q\ncold %d %s %q %q", name, got.ExitCode, got.Signal, got.Stdout, got.Stderr, want.ExitCode, want.Signal, want.Stdout, want.Stderr)
		}
	}
}

// What shapes a sandbox is never taken from another kind.
func TestWarmKinds(t *testing.T) {
	h := warmHost(t, 2)
	r := script("python3", "main.py", "import os; print(os.environ.get('SECRET'), os.statvfs('/tmp').f_blocks * os.statvfs('/tmp').f_frsize)")
	runWarm(t, h, r)
	r.Limits.Disk = 1 << 20
	if res := run(t, h, r); string(res.Stdout) != "None 1048576\n" {
		t.Errorf("another disk limit: %s", res.Stdout)
	}
	r.Limits.Disk, r.Env = 0, []string{"SECRET=x"}
	if res := run(t, h, r); !strings.HasPrefix(string(res.Stdout), "x ") {
		t.Errorf("a variable: %s", res.Stdout)
	}
	r.Env = nil
	r.Limits.Memory = 64 << 20
	r.Files[0].Content = []byte("b = bytearray(1 << 30)")
	if res := run(t, h, r); res.KilledBy != tier.KilledByMemory {
		t.Errorf("another memory limit: %+v", res)
	}
}

// Limits, cancellation and the end of the host hold for warm sandboxes as well.
func TestWarmLimits(t *testing.T) {
	h := warmHost(t, 1)
	r := script("python3", "main.py", "print('x' * 5000)")
	runWarm(t, h, r)
	r.Limits.Output = 100
	if res := run(t, h, r); !res.Truncated || len(res.Stdout) != 100 {
		t.Errorf("output: %d bytes, truncated %t", len(res.Stdout), res.Truncated)
	}
	runWarm(t, h, r)
	loop := script("python3", "main.py", "while True: pass")
	loop.Limits.Timeout = 500 * time.Millisecond
	if res := run(t, h, loop); res.KilledBy != tier.KilledByTimeout {
		t.Errorf("timeout: %+v", res)
	}
	alone := script("bash", "main.sh", "echo one")
	alone.Limits.Processes = 1
	if res := runWarm(t, h, alone); string(res.Stdout) != "one\n" || len(res.Stderr) > 0 || len(res.LimitsHit) > 0 {
		t.Errorf("one process: %+v", res)
	}
	runWarm(t, h, r)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	loop.Limits.Timeout = 0
	if _, err := h.Run(ctx, fill(loop)); err == nil || ctx.Err() == nil {
		t.Errorf("cancelled: %v", err)
	}
	runWarm(t, h, r)
	if list := h.List(); len(list) != 0 {
		t.Errorf("what waits is listed: %v", list)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	left, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range left {
		if b, _ := os.ReadFile(p); strings.Contains(string(b), t.TempDir()[:20]) && strings.Contains(string(b), "runsc") {
			t.Errorf("%s is left: %q", p, b)
		}
	}
}

func BenchmarkWarm(b *testing.B) {
	for _, warm := range []int{0, 2} {
		b.Run(fmt.Sprint("warm=", warm), func(b *testing.B) {
			h := gvisortest.Open(b, func(c *gvisor.Config) { c.Warm = warm })
			r := script("python3", "main.py", "print(1)")
			run(b, h, r)
			for b.Loop() {
				b.StopTimer()
				for warm > 0 && h.Waiting() == 0 {
					time.Sleep(5 * time.Millisecond)
				}
				b.StartTimer()
				run(b, h, r)
			}
		})
	}
}
