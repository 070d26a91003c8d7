package gvisor_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/tier"
)

// soak asks for many more iterations: `make soak`.
var soak = os.Getenv("SALLYPORT_SOAK") != ""

func run(t testing.TB, h *gvisor.Host, r tier.Request) tier.Result {
	t.Helper()
	res, err := h.Run(context.Background(), fill(r))
	if err != nil {
		t.Fatalf("%q: %v", r.Argv, err)
	}
	return res
}

func fill(r tier.Request) tier.Request {
	if r.Image == "" {
		r.Image = "default"
	}
	d := sallyport.DefaultLimits()
	l := &r.Limits
	l.Timeout, l.Memory, l.Processes = cmpOr(l.Timeout, 2*time.Minute), cmpOr(l.Memory, d.Memory), cmpOr(l.Processes, d.Processes)
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

func sh(script string) tier.Request { return tier.Request{Argv: []string{"bash", "-c", script}} }
func py(script string) tier.Request { return tier.Request{Argv: []string{"python3", "-c", script}} }

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
	if res = run(t, h, tier.Request{Argv: []string{"cat"}, Stdin: all}); !bytes.Equal(res.Stdout, all) {
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

// A program that is busy is held back to its share of the processors.
func TestShareOfProcessors(t *testing.T) {
	h := gvisortest.Open(t)
	if n := throttled(t, h, 0.2, 2*time.Minute); n == 0 { // where all is slow, it may hardly get its share
		t.Error("a busy program with 0.2 CPUs was never held back")
	}
	if n := throttled(t, h, 64, time.Second); n != 0 {
		t.Errorf("control: with 64 CPUs it was held back %d times", n)
	}
}

// throttled counts how often the kernel held a busy program back, in some time or
// until it did.
func throttled(t *testing.T, h *gvisor.Host, cpus float64, within time.Duration) (n int) {
	r := fill(sh("while :; do :; done"))
	r.Limits.CPUs, r.Limits.Timeout = cpus, within
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	done := make(chan error, 1)
	go func() { _, err := h.Run(ctx, r); done <- err }()
	for {
		if n > 0 {
			stop(tier.ErrStopped)
		}
		select {
		case err := <-done:
			if err != nil && n == 0 {
				t.Error(err)
			}
			return n
		case <-time.After(50 * time.Millisecond):
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
	res := run(t, h, tier.Request{Argv: []string{"bash", "-c", `cat -- a/b/c.txt "-x y"; cat "naïve
name"; wc -c empty <zeros; rm a/b/c.txt`}, Files: []tier.File{
		{Path: "a/b/c.txt", Content: []byte("one\n")}, {Path: "-x y", Content: []byte("two\n")},
		{Path: "naïve\nname", Content: []byte{0, 1, 255}}, {Path: "empty"}, {Path: "zeros", Content: make([]byte, 3<<20)},
	}})
	if string(res.Stdout) != "one\ntwo\n\x00\x01\xff0 empty\n" || res.ExitCode != 0 {
		t.Errorf("stdout %q, stderr %q", res.Stdout, res.Stderr)
	}
	for _, p := range []string{"", ".", "..", "/etc/x", "../x", "a/../../x", "a/./b", "a//b", "a/", "x\x00", "\xff", strings.Repeat("n", 256), strings.Repeat("d/", 40) + "x"} {
		r := fill(tier.Request{Argv: []string{"true"}, Files: []tier.File{{Path: p}}})
		if err := r.Check(); sallyport.CodeOf(err) != sallyport.Invalid {
			t.Errorf("file %q: %v", p, err)
		}
	}
	for name, files := range map[string][]tier.File{
		"twice":           {{Path: "a"}, {Path: "a"}},
		"file and folder": {{Path: "a"}, {Path: "a/b"}},
		"folder and file": {{Path: "a/b"}, {Path: "a"}},
		"too large":       {{Path: "a", Content: make([]byte, 65<<20)}},
	} {
		if err := fill(tier.Request{Argv: []string{"true"}, Files: files}).Check(); sallyport.CodeOf(err) != sallyport.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The figures that docs/spec.md quotes, with `make soak`.
func TestWholeLife(t *testing.T) {
	h := gvisortest.Open(t)
	n := 3
	if soak {
		n = 200
	}
	for _, argv := range [][]string{{"true"}, {"python3", "-c", "print(1)"}} {
		var d []time.Duration
		for range n {
			res := run(t, h, tier.Request{Argv: argv})
			if res.ExitCode != 0 {
				t.Fatalf("%+v", res)
			}
			d = append(d, res.Duration)
		}
		slices.Sort(d)
		load, _ := os.ReadFile("/proc/loadavg")
		t.Logf("%q whole life over %d: min %v, p50 %v, p99 %v; load %.14s", argv, n,
			d[0].Round(time.Millisecond), d[n/2].Round(time.Millisecond), d[n*99/100].Round(time.Millisecond), load)
	}
}
