package gvisor_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/gvisor/gvisortest"
)

func script(program, name, text string) gvisor.Request {
	return gvisor.Request{Argv: []string{program, name}, Files: []gvisor.File{{Path: name, Content: []byte(text)}}}
}

// warmHost is a host whose next run of the kind finds a warm sandbox.
func warmHost(t *testing.T, max int) *gvisor.Host {
	return gvisortest.Open(t, func(c *gvisor.Config) { c.Warm = max })
}

// untilWarm runs r until the host has a warm sandbox for it.
func untilWarm(t *testing.T, h *gvisor.Host, r gvisor.Request) {
	t.Helper()
	run(t, h, r)
	for deadline := time.Now().Add(time.Minute); h.Waiting() == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no sandbox became warm")
		}
	}
}

// A program cannot tell a warm sandbox from a cold one by what it prints, how
// it fails or how it ends.
func TestWarmIsLikeCold(t *testing.T) {
	cold, warm := gvisortest.Open(t), warmHost(t, 1)
	for name, r := range map[string]gvisor.Request{
		"python": script("python3", "main.py", `
import sys, os
print(sys.argv, sys.path[0], __name__, __file__, os.getcwd(), sorted(globals()), sys.stdin.read(), sorted(os.environ.items()))
print(os.listdir("/proc/self/fd") == ["0", "1", "2", "3"], os.getuid(), sys.flags, __builtins__.__name__, open("main.py").read()[:8])
import __main__; print(__main__.__file__, hasattr(__main__, "sys"))
sys.stderr.write("err"); sys.exit(3)`),
		"python error":     script("python3", "main.py", "def f():\n    return 1/0\n\ntry:\n    f()\nexcept ZeroDivisionError as e:\n    raise ValueError('two') from e\n"),
		"python syntax":    script("python3", "main.py", "print(1)\nif True print(2)\n"),
		"python message":   script("python3", "main.py", "raise SystemExit('a message')"),
		"python atexit":    script("python3", "main.py", "import atexit, threading, time\natexit.register(print, 'bye')\nthreading.Thread(target=lambda: (time.sleep(.1), print('thread'))).start()\nprint('main')"),
		"python files":     script("python3", "main.py", "import sys\nopen('m.py', 'w').write(\"f = open('c', 'w'); f.write('module')\")\nimport m\nf = open('a', 'w'); f.write('global')\nclass C: pass\nx = C(); x.me = x; x.f = open('b', 'w'); x.f.write('cycle'); del x\nimport atexit, os\npid = os.fork()\nif pid:\n    os.waitpid(pid, 0)\n    print([open(n).read() for n in 'abc'])\n"),
		"python del":       script("python3", "main.py", "class A:\n    def __init__(s, n): s.n = n\n    def __del__(s): print('del', s.n)\na = A('global'); b = A('cycle'); b.b = b\nprint('end')"),
		"python closed":    script("python3", "main.py", "import sys\nprint('out'); sys.stdout.close()"),
		"python replaced":  script("python3", "main.py", "import sys, io\nprint('out', end='')\nsys.stdout = io.StringIO(); print('lost')"),
		"python broken":    script("python3", "main.py", "import sys, os\nprint('x' * 10, end=''); os.close(1)"),
		"python codes":     script("python3", "main.py", "import os, sys\nfor c in (None, 0, 7, 300, -1, True, 'text', 2.5, (1, 2)):\n    sys.stdout.flush(); sys.stderr.flush()\n    pid = os.fork()\n    if pid == 0: sys.exit(c)\n    print(repr(c), os.waitpid(pid, 0)[1])"),
		"python finalize":  script("python3", "main.py", "import tempfile, weakref, logging, threading, concurrent.futures as f\nd = tempfile.TemporaryDirectory(); weakref.finalize(d, print, 'finalized')\nlogging.basicConfig(level=1); logging.info('logged')\np = f.ThreadPoolExecutor(); p.submit(print, 'pooled')\nthreading.Thread(target=lambda: __import__('time').sleep(9), daemon=True).start()"),
		"python multi":     script("python3", "main.py", "import multiprocessing as m\ndef f(q): q.put('child')\nif __name__ == '__main__':\n    q = m.Queue(); p = m.Process(target=f, args=(q,)); p.start(); print(q.get()); p.join(); print(p.exitcode)"),
		"python in atexit": script("python3", "main.py", "import atexit, sys\ndef f(): 1/0\natexit.register(sys.exit, 4)\natexit.register(print, 'bye')\nprint('end')"),
		"python signal":    script("python3", "main.py", "import os; os.kill(os.getpid(), 15)"),
		"python NUL":       script("python3", "main.py", "a\x00b"),
		"python coding":    script("python3", "main.py", "# coding: latin-1\nprint(ascii('\xe9'))"),
		"python class":     script("python3", "main.py", "import pickle, dataclasses\n@dataclasses.dataclass\nclass A:\n    x: int\nprint(pickle.loads(pickle.dumps(A(1))), A.__module__)"),
		"node":             script("node", "main.js", "console.log(process.argv, __filename, require.main === module, process.execArgv, typeof name, process.cwd(), require('fs').readFileSync(0,'utf8')); process.exitCode = 3"),
		"node module":      script("node", "main.mjs", "import fs from 'fs'; console.log(import.meta.url, process.argv, typeof require, fs.readdirSync('.')); process.exit(4)"),
		"node globals":     script("node", "main.js", "console.log(Object.keys(globalThis).sort(), Object.keys(process.env).sort())"),
		"true":             {Argv: []string{"true"}},
		"env":              {Argv: []string{"env"}},
		"python -c":        {Argv: []string{"python3", "-c", "import sys, os; print(sys.argv, __name__, sorted(os.environ), sys.stdin.read())"}},
		"missing":          {Argv: []string{"no-such-program", "x"}},
		"not a program":    {Argv: []string{"/etc/passwd"}},
		"killed":           {Argv: []string{"sh", "-c", "kill -9 $$"}},
		"bash":             script("bash", "main.sh", "echo $0 $# $-; env | sort; cat; exit 5"),
		"bash missing":     {Argv: []string{"bash", "nothing.sh"}},
	} {
		r.Stdin = []byte("input")
		want := run(t, cold, r)
		untilWarm(t, warm, r)
		got := run(t, warm, r)
		clean := func(b []byte) string { return strings.ReplaceAll(string(b), got.ID, want.ID) }
		if clean(got.Stdout) != string(want.Stdout) || clean(got.Stderr) != string(want.Stderr) || got.ExitCode != want.ExitCode || got.Signal != want.Signal {
			t.Errorf("%s:\nwarm %d %s %q %q\ncold %d %s %q %q", name, got.ExitCode, got.Signal, got.Stdout, got.Stderr, want.ExitCode, want.Signal, want.Stdout, want.Stderr)
		}
	}
}

// FO-47: a sandbox is never used twice, and what one run leaves behind no other
// one finds.
func TestFO47_WarmIsTakenOnce(t *testing.T) {
	h := warmHost(t, 3)
	r := script("python3", "main.py", `
import os, glob, random, uuid
found = [p for p in ("/tmp/canary", "/dev/shm/canary", os.path.expanduser("~/canary"), "/run/canary") if os.path.exists(p)]
found += [p for p in glob.glob("/proc/[0-9]*/cmdline") if b"sleep" in open(p, "rb").read()]
for p in ("/tmp/canary", "/dev/shm/canary", os.path.expanduser("~/canary"), "/run/canary"):
    open(p, "w").write("x")
os.environ["CANARY"] = "1"
if os.fork() == 0:
    os.setsid(); os.execvp("sleep", ["sleep", "1000"])
print(found, random.random(), uuid.uuid4(), os.urandom(8).hex())`)
	untilWarm(t, h, r)
	ids, lines := map[string]bool{}, map[string]bool{}
	warm := 0
	for range 8 {
		if h.Waiting() > 0 {
			warm++
		}
		res := run(t, h, r)
		if !strings.HasPrefix(string(res.Stdout), "[] ") || ids[res.ID] || lines[string(res.Stdout)] {
			t.Errorf("run in %s: %s %s", res.ID, res.Stdout, res.Stderr)
		}
		ids[res.ID], lines[string(res.Stdout)] = true, true
	}
	if warm == 0 {
		t.Error("no run found a warm sandbox: the test shows nothing")
	}
}

// What shapes a sandbox is never taken from another kind.
func TestWarmKinds(t *testing.T) {
	h := warmHost(t, 2)
	r := script("python3", "main.py", "import os; print(os.environ.get('SECRET'), os.statvfs('/tmp').f_blocks * os.statvfs('/tmp').f_frsize)")
	untilWarm(t, h, r)
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
	if res := run(t, h, r); res.KilledBy != gvisor.KilledByMemory {
		t.Errorf("another memory limit: %+v", res)
	}
}

// Limits, cancellation and the end of the host hold for warm sandboxes as well.
func TestWarmLimits(t *testing.T) {
	h := warmHost(t, 1)
	r := script("python3", "main.py", "print('x' * 5000)")
	untilWarm(t, h, r)
	r.Limits.Output = 100
	if res := run(t, h, r); !res.Truncated || len(res.Stdout) != 100 {
		t.Errorf("output: %d bytes, truncated %t", len(res.Stdout), res.Truncated)
	}
	untilWarm(t, h, r)
	loop := script("python3", "main.py", "while True: pass")
	loop.Limits.Timeout = 500 * time.Millisecond
	if res := run(t, h, loop); res.KilledBy != gvisor.KilledByTimeout {
		t.Errorf("timeout: %+v", res)
	}
	untilWarm(t, h, r)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	loop.Limits.Timeout = 0
	if _, err := h.Run(ctx, fill(loop)); err == nil || ctx.Err() == nil {
		t.Errorf("cancelled: %v", err)
	}
	untilWarm(t, h, r)
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
