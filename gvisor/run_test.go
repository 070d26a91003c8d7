package gvisor_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/gvisor/gvisortest"
)

// soak asks for many more iterations: `make soak`.
var soak = os.Getenv("SALLYPORT_SOAK") != ""

func run(t testing.TB, h *gvisor.Host, r gvisor.Request) gvisor.Result {
	t.Helper()
	res, err := h.Run(context.Background(), fill(r))
	if err != nil {
		t.Fatalf("%q: %v", r.Argv, err)
	}
	return res
}

func fill(r gvisor.Request) gvisor.Request {
	if r.Image == "" {
		r.Image = "default"
	}
	d := sallyport.DefaultLimits()
	l := &r.Limits
	l.Timeout, l.Memory, l.Processes = cmpOr(l.Timeout, d.Timeout), cmpOr(l.Memory, d.Memory), cmpOr(l.Processes, d.Processes)
	l.Disk, l.Output, l.CPUs = cmpOr(l.Disk, d.Disk), cmpOr(l.Output, d.Output), cmpOr(l.CPUs, d.CPUs)
	return r
}

func cmpOr[T comparable](v, or T) T {
	var zero T
	if v == zero {
		return or
	}
	return v
}

func sh(script string) gvisor.Request { return gvisor.Request{Argv: []string{"bash", "-c", script}} }
func py(script string) gvisor.Request { return gvisor.Request{Argv: []string{"python3", "-c", script}} }

// What a program prints arrives whole, however soon it ends.
func TestFO50_ExactOutput(t *testing.T) {
	h := gvisortest.Open(t)
	big := strings.Repeat("0123456789abcdef", 200<<10/16)
	n := 12
	if soak {
		n = 200
	}
	for _, tt := range []struct {
		name     string
		r        gvisor.Request
		out, err string
	}{
		{"one line", gvisor.Request{Argv: []string{"echo", "hello"}}, "hello\n", ""},
		{"200 KB", gvisor.Request{Argv: []string{"cat", "big"}, Files: []gvisor.File{{Path: "big", Content: []byte(big)}}}, big, ""},
		{"no newline", gvisor.Request{Argv: []string{"printf", "%s", "end"}}, "end", ""},
		{"both streams in turn", sh(`for i in 1 2 3; do echo o$i; echo e$i >&2; done`), "o1\no2\no3\n", "e1\ne2\ne3\n"},
		{"echo stdin", gvisor.Request{Argv: []string{"cat"}, Stdin: []byte(big)}, big, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for i := range n {
				res := run(t, h, tt.r)
				if string(res.Stdout) != tt.out || string(res.Stderr) != tt.err || res.ExitCode != 0 || res.Truncated {
					t.Fatalf("run %d: exit %d, %d bytes out (want %d), stderr %.200q", i, res.ExitCode, len(res.Stdout), len(tt.out), res.Stderr)
				}
			}
		})
	}
}

// Exit statuses, signals and timeouts are told apart.
func TestFO51_HowItEnded(t *testing.T) {
	h := gvisortest.Open(t)
	for _, tt := range []struct {
		name   string
		r      gvisor.Request
		code   int
		signal string
		killed gvisor.KilledBy
	}{
		{"exit 0", sh("exit 0"), 0, "", ""},
		{"exit 1", sh("exit 1"), 1, "", ""},
		{"exit 42", sh("exit 42"), 42, "", ""},
		{"exit 255", sh("exit 255"), 255, "", ""},
		{"exit 256 is 0", sh("exit 256"), 0, "", ""},
		{"own 124", sh("exit 124"), 124, "", ""},
		{"own 137", sh("exit 137"), 137, "", ""},
		{"TERM", sh("kill -TERM $$"), 143, "SIGTERM", ""},
		{"KILL", sh("kill -KILL $$"), 137, "SIGKILL", ""},
		{"SEGV", sh("kill -SEGV $$"), 139, "SIGSEGV", ""},
		{"XCPU", sh("kill -XCPU $$"), 152, "SIGXCPU", ""},
		{"PIPE", sh("kill -PIPE $$"), 141, "SIGPIPE", ""},
		{"real fault", py("import ctypes; ctypes.string_at(0)"), 139, "SIGSEGV", ""},
		{"a shell's 128+n", sh("bash -c 'kill -TERM $$'; exit $?"), 143, "", ""},
		{"not found", gvisor.Request{Argv: []string{"nothing-of-that-name"}}, 127, "", ""},
		{"not executable", gvisor.Request{Argv: []string{"/etc/passwd"}}, 126, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			res := run(t, h, tt.r)
			if res.ExitCode != tt.code || res.Signal != tt.signal || res.KilledBy != tt.killed {
				t.Errorf("exit %d %q killed by %q; want %d %q %q (stderr %.200q)", res.ExitCode, res.Signal, res.KilledBy, tt.code, tt.signal, tt.killed, res.Stderr)
			}
		})
	}
	t.Run("timeout keeps the output so far", func(t *testing.T) {
		r := sh("echo so far; trap '' TERM INT; kill -STOP $$; sleep 60")
		r.Limits.Timeout = time.Second
		began := time.Now()
		res := run(t, h, r)
		if res.KilledBy != gvisor.KilledByTimeout || string(res.Stdout) != "so far\n" || res.ExitCode != 137 {
			t.Errorf("got %+v", res)
		}
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("took %v", d)
		}
	})
}

// Going beyond the memory limit is said so, whoever of the program did it.
func TestFO52_Memory(t *testing.T) {
	h := gvisortest.Open(t)
	const limit = 192 // MiB
	const take = "x = bytearray(%d << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\n"
	child := "import os, sys\np = os.fork()\nif p == 0:\n  " + strings.ReplaceAll(fmt.Sprintf(take, 260), "\n", "\n  ") + "\n  os._exit(0)\nos.waitpid(p, 0)\n"
	for _, tt := range []struct {
		name   string
		r      gvisor.Request
		killed gvisor.KilledBy
	}{
		{"main process", py(fmt.Sprintf(take, 260)), gvisor.KilledByMemory},
		{"a child only", py(child), gvisor.KilledByMemory},
		{"shared mapping", py("import mmap\nm = mmap.mmap(-1, 260 << 20)\nfor i in range(0, len(m), 4096): m[i] = 1\n"), gvisor.KilledByMemory},
		{"many small processes", py("import os, time\nfor i in range(40):\n  if os.fork() == 0:\n    x = bytearray(8 << 20)\n    for j in range(0, len(x), 4096): x[j] = 1\n    time.sleep(60)\ntime.sleep(20)\n"), gvisor.KilledByMemory},
		{"tmpfs counts", sh("head -c 260M /dev/zero >/tmp/x; exit 0"), gvisor.KilledByMemory},
		{"V8 heap", gvisor.Request{Argv: []string{"node", "--max-old-space-size=4096", "-e", "const a = []; for (;;) a.push(new Array(1e5).fill(a.length))"}}, gvisor.KilledByMemory},
		{"within", py(fmt.Sprintf(take, 170)), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "tmpfs counts" {
				tt.r.Limits.Disk = 1 << 30
			}
			tt.r.Limits.Memory = limit << 20
			res := run(t, h, tt.r)
			if res.KilledBy != tt.killed || (tt.killed == "") != (res.ExitCode == 0) {
				t.Errorf("exit %d, killed by %q, peak %d MiB, stderr %.300q; want %q", res.ExitCode, res.KilledBy, res.PeakMemory>>20, res.Stderr, tt.killed)
			}
			if res.PeakMemory < 170<<20 || res.PeakMemory > 242<<20 {
				t.Errorf("peak %d MiB", res.PeakMemory>>20)
			}
		})
	}
}

// Nothing that a program leaves behind keeps a run from ending, or outlives it.
func TestFO53_BackgroundChildren(t *testing.T) {
	h := gvisortest.Open(t)
	const daemon = "import os, signal, time\n" +
		"if os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n  for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(s, signal.SIG_IGN)\n  time.sleep(3600)\n os._exit(0)\n" +
		"print('main', flush=True)\n"
	t.Run("main exits at once", func(t *testing.T) {
		began := time.Now()
		res := run(t, h, py(daemon))
		if res.ExitCode != 0 || string(res.Stdout) != "main\n" || res.KilledBy != "" {
			t.Errorf("got %+v", res)
		}
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("took %v", d)
		}
	})
	t.Run("main never exits", func(t *testing.T) {
		r := py(daemon + "time.sleep(3600)\n")
		r.Limits.Timeout = 2 * time.Second
		began := time.Now()
		res := run(t, h, r)
		if res.KilledBy != gvisor.KilledByTimeout || string(res.Stdout) != "main\n" {
			t.Errorf("got %+v", res)
		}
		if d := time.Since(began); d > 6*time.Second {
			t.Errorf("took %v", d)
		}
	})
	t.Run("a child that ends within the drain window is heard", func(t *testing.T) {
		if res := run(t, h, sh("(sleep 0.05; echo late) & echo main")); string(res.Stdout) != "main\nlate\n" {
			t.Errorf("stdout %q", res.Stdout)
		}
	})
	if left := h.List(); len(left) != 0 {
		t.Errorf("sandboxes left: %v", left)
	}
}

// Text is UTF-8 and time is UTC, unless asked otherwise; bytes pass untouched.
func TestFO54_Locale(t *testing.T) {
	h := gvisortest.Open(t)
	word := "日本語 é e\u0301 🚀"
	r := py("import sys, os, time, locale\nopen('" + word + "', 'w').write(sys.stdin.read())\nprint(os.listdir('.'), sys.argv[1], os.environ['W'], time.strftime('%Z'), locale.getpreferredencoding())\nprint(open('" + word + "').read())")
	r.Argv, r.Stdin, r.Env = append(r.Argv, word), []byte(word), []string{"W=" + word}
	res := run(t, h, r)
	if want := "['" + word + "'] " + word + " " + word + " UTC UTF-8\n" + word + "\n"; !strings.EqualFold(string(res.Stdout), want) {
		t.Errorf("stdout %q, want %q (stderr %s)", res.Stdout, want, res.Stderr)
	}
	r = py("import time; print(time.strftime('%H', time.gmtime(0)), time.strftime('%H', time.localtime(0)))")
	r.Env = []string{"TZ=Asia/Tokyo"}
	if res = run(t, h, r); string(res.Stdout) != "00 09\n" {
		t.Errorf("TZ is not settable: %q", res.Stdout)
	}
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	if res = run(t, h, gvisor.Request{Argv: []string{"cat"}, Stdin: all}); !bytes.Equal(res.Stdout, all) {
		t.Errorf("bytes changed: %q", res.Stdout)
	}
}

// What libraries expect to be writable is, on one bounded tmpfs; all else is
// read-only, and nothing stays.
func TestFO55_ReadOnlyRoot(t *testing.T) {
	h := gvisortest.Open(t)
	res := run(t, h, py(`
import os, tempfile, sqlite3, multiprocessing, compileall, sys
for v in ('HOME', 'TMPDIR', 'XDG_CACHE_HOME', 'MPLCONFIGDIR', 'XDG_RUNTIME_DIR'):
    d = os.environ[v]; os.makedirs(d, exist_ok=True); open(d + '/probe', 'w').write('x')
open('/dev/shm/probe', 'w').write('x')
tempfile.NamedTemporaryFile().write(b'x')
c = sqlite3.connect('/tmp/t.db'); c.execute('create table t(a)'); c.execute('insert into t values (1)'); c.commit()
open('m.py', 'w').write('x = 1\n'); sys.path.insert(0, '.'); import m
assert os.path.exists('__pycache__')
q = multiprocessing.Queue(); p = multiprocessing.Process(target=q.put, args=(7,)); p.start(); assert q.get() == 7; p.join()
bad = []
for d in ('/', '/etc', '/usr', '/usr/lib', '/var', '/var/tmp', '/opt', '/root', '/home', '/dev', '/proc', '/sys'):
    try:
        open(d + '/canary', 'w').write('x'); bad.append(d)
    except OSError: pass
assert not bad, bad
print('ok')
`))
	if string(res.Stdout) != "ok\n" {
		t.Fatalf("stdout %q, stderr %s", res.Stdout, res.Stderr)
	}
	res = run(t, h, sh("ls -A /tmp /dev/shm /home/agent /home/output /run; touch /etc/x"))
	if want := "/dev/shm:\n\n/home/agent:\n\n/home/output:\n\n/run:\n\n/tmp:\n"; string(res.Stdout) != want {
		t.Errorf("left from an earlier run: %q", res.Stdout)
	}
	if !strings.Contains(string(res.Stderr), "Read-only file system") {
		t.Errorf("touch /etc/x: %q", res.Stderr)
	}
}

// Each limit acts, and is named.
func TestLimitsByName(t *testing.T) {
	h := gvisortest.Open(t)
	t.Run("processes", func(t *testing.T) {
		r := py("import os, time\nn = 0\ntry:\n  while True:\n    if os.fork() == 0: time.sleep(60); os._exit(0)\n    n += 1\nexcept OSError as e: print(n, e.errno)")
		r.Limits.Processes = 10
		if res := run(t, h, r); string(res.Stdout) != "9 11\n" || !slices.Equal(res.LimitsHit, []string{gvisor.LimitProcesses}) {
			t.Errorf("stdout %q, limits %v, stderr %s", res.Stdout, res.LimitsHit, res.Stderr)
		}
		r = sh("for i in 1 2 3 4 5; do sleep 1 & done; wait")
		if res := run(t, h, r); len(res.LimitsHit) != 0 {
			t.Errorf("control: %v", res.LimitsHit)
		}
	})
	t.Run("disk is one for all folders", func(t *testing.T) {
		r := sh("for d in /tmp /dev/shm /home/agent /run; do head -c 3M /dev/zero >$d/x 2>/dev/null || echo full $d; done; du -cb /tmp /dev/shm /home/agent /run | tail -1 | cut -f1")
		r.Limits.Disk = 8 << 20
		res := run(t, h, r)
		if !strings.HasPrefix(string(res.Stdout), "full /home/agent\nfull /run\n") || !slices.Equal(res.LimitsHit, []string{gvisor.LimitDisk}) {
			t.Errorf("stdout %q, limits %v", res.Stdout, res.LimitsHit)
		}
		r = sh("head -c 3M /dev/zero >/tmp/x")
		if res := run(t, h, r); len(res.LimitsHit) != 0 {
			t.Errorf("control: %v", res.LimitsHit)
		}
	})
	t.Run("inodes", func(t *testing.T) {
		r := py("n = 0\ntry:\n  while True: open('/tmp/%d' % n, 'w').close(); n += 1\nexcept OSError as e: print(n < 2100, e.errno)")
		r.Limits.Disk = 8 << 20
		if res := run(t, h, r); string(res.Stdout) != "True 28\n" || !slices.Equal(res.LimitsHit, []string{gvisor.LimitDisk}) {
			t.Errorf("stdout %q, limits %v", res.Stdout, res.LimitsHit)
		}
	})
	t.Run("output", func(t *testing.T) {
		r := sh("yes | head -c 5000; yes n | head -c 5000 >&2; echo went on >&1; touch done; ls")
		r.Limits.Output = 100
		res := run(t, h, r)
		if string(res.Stdout) != strings.Repeat("y\n", 50) || string(res.Stderr) != strings.Repeat("n\n", 50) ||
			!res.Truncated || res.ExitCode != 0 || !slices.Equal(res.LimitsHit, []string{gvisor.LimitOutput}) {
			t.Errorf("got %+v", res)
		}
		r = sh("printf %100s x")
		r.Limits.Output = 100
		if res := run(t, h, r); res.Truncated || len(res.Stdout) != 100 {
			t.Errorf("control: %+v", res)
		}
	})
	t.Run("cpu", func(t *testing.T) {
		if n := throttled(t, h, 0.2); n == 0 {
			t.Error("a busy program with 0.2 CPUs was never held back")
		}
		if n := throttled(t, h, 64); n != 0 {
			t.Errorf("control: with 64 CPUs it was held back %d times", n)
		}
	})
}

// throttled counts how often the kernel held a busy program back.
func throttled(t *testing.T, h *gvisor.Host, cpus float64) (n int) {
	r := sh("while :; do :; done")
	r.Limits.CPUs, r.Limits.Timeout = cpus, 2*time.Second
	done := make(chan struct{})
	go func() { defer close(done); run(t, h, r) }()
	for {
		select {
		case <-done:
			return n
		case <-time.After(100 * time.Millisecond):
		}
		for _, s := range h.List() {
			files, _ := filepath.Glob("/sys/fs/cgroup/cpu*/sallyport/*/" + s.ID + "/cpu.stat")
			unified, _ := filepath.Glob("/sys/fs/cgroup/sallyport/*/" + s.ID + "/cpu.stat")
			for _, f := range append(files, unified...) {
				b, _ := os.ReadFile(f)
				if _, after, ok := strings.Cut(string(b), "nr_throttled "); ok {
					fmt.Sscan(after, &n)
				}
			}
		}
	}
}

// The program has no privileges, sees its own limits, and knows nothing of the
// host by name.
func TestIdentityInside(t *testing.T) {
	h := gvisortest.Open(t)
	res := run(t, h, py(`
import os, re
s = open('/proc/self/status').read()
print(os.getresuid(), os.getresgid(), os.getgroups(), os.getcwd(), os.uname().nodename)
print(sorted(set(re.findall(r'Cap(?:Inh|Prm|Eff|Bnd|Amb):\s*(\w+)', s))), re.findall(r'NoNewPrivs:\s*(\d)', s))
print(re.findall(r'MemTotal:\s*(\d+)', open('/proc/meminfo').read()))
try: os.kill(1, 9)
except PermissionError: print('init is safe')
`))
	want := "(1000, 1000, 1000) (1000, 1000, 1000) [1000] /home/agent sandbox\n['0000000000000000'] ['1']\n['524288']\ninit is safe\n"
	got := strings.Replace(string(res.Stdout), ") [] /", ") [1000] /", 1)
	if got != want {
		t.Errorf("got %s, want %s (stderr %s)", got, want, res.Stderr)
	}
}

func TestFilesAndRefusals(t *testing.T) {
	h := gvisortest.Open(t)
	res := run(t, h, gvisor.Request{Argv: []string{"bash", "-c", `cat -- a/b/c.txt "-x y"; cat "naïve
name"; wc -c empty <zeros; rm a/b/c.txt`}, Files: []gvisor.File{
		{Path: "a/b/c.txt", Content: []byte("one\n")}, {Path: "-x y", Content: []byte("two\n")},
		{Path: "naïve\nname", Content: []byte{0, 1, 255}}, {Path: "empty"}, {Path: "zeros", Content: make([]byte, 3<<20)},
	}})
	if string(res.Stdout) != "one\ntwo\n\x00\x01\xff0 empty\n" || res.ExitCode != 0 {
		t.Errorf("stdout %q, stderr %q", res.Stdout, res.Stderr)
	}
	for _, p := range []string{"", ".", "..", "/etc/x", "../x", "a/../../x", "a/./b", "a//b", "a/", "x\x00", "\xff", strings.Repeat("n", 256), strings.Repeat("d/", 40) + "x"} {
		r := fill(gvisor.Request{Argv: []string{"true"}, Files: []gvisor.File{{Path: p}}})
		if err := r.Check(); sallyport.CodeOf(err) != sallyport.Invalid {
			t.Errorf("file %q: %v", p, err)
		}
	}
	for name, files := range map[string][]gvisor.File{
		"twice":           {{Path: "a"}, {Path: "a"}},
		"file and folder": {{Path: "a"}, {Path: "a/b"}},
		"folder and file": {{Path: "a/b"}, {Path: "a"}},
		"too large":       {{Path: "a", Content: make([]byte, 65<<20)}},
	} {
		if err := fill(gvisor.Request{Argv: []string{"true"}, Files: files}).Check(); sallyport.CodeOf(err) != sallyport.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestConcurrencyAndCancel(t *testing.T) {
	images := gvisortest.Images(t)
	h, err := gvisor.Open(gvisor.Config{Programs: gvisortest.Programs(t), Dir: t.TempDir() + "/run", Images: images, MaxRuns: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if _, err := h.Run(ctx, fill(sh("sleep 60"))); err != context.Canceled {
				t.Errorf("cancelled run: %v", err)
			}
		})
	}
	for deadline := time.Now().Add(10 * time.Second); len(h.List()) < 3 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	ids := map[string]bool{}
	for _, r := range h.List() {
		ids[r.ID] = true
	}
	if len(ids) != 3 {
		t.Errorf("ids %v", ids)
	}
	if _, err := h.Run(context.Background(), fill(sh("true"))); sallyport.CodeOf(err) != sallyport.Unavailable {
		t.Errorf("a fourth run: %v", err)
	}
	cancel()
	wg.Wait()
	if res := run(t, h, sh("echo again")); string(res.Stdout) != "again\n" || ids[res.ID] {
		t.Errorf("after cancel: %+v", res)
	}
}

// The figures that docs/spec.md quotes.
func TestWholeLife(t *testing.T) {
	h := gvisortest.Open(t)
	n := 30
	if soak {
		n = 200
	}
	for _, argv := range [][]string{{"true"}, {"python3", "-c", "print(1)"}} {
		var d []time.Duration
		for range n {
			res := run(t, h, gvisor.Request{Argv: argv})
			if res.ExitCode != 0 {
				t.Fatalf("%+v", res)
			}
			d = append(d, res.Duration)
		}
		slices.Sort(d)
		load, _ := os.ReadFile("/proc/loadavg")
		t.Logf("%q whole life over %d: min %v, p50 %v, p99 %v; load %.14s", argv, n,
			d[0].Round(time.Millisecond), d[n/2].Round(time.Millisecond), d[n*99/100].Round(time.Millisecond), load)
		if d[0] > 2*time.Second {
			t.Errorf("%q: even the fastest of %d took %v", argv, n, d[0])
		}
	}
}
