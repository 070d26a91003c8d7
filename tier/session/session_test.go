package session_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/session"
	"sallyport.dev/sallyport/tier/stay"
)

// place is a place for sessions with small bounds.
func place(t *testing.T, change ...func(*session.Config)) *session.Sessions {
	t.Helper()
	c := session.Config{Hosts: map[string]stay.Host{sallyport.TierGVisor: gvisortest.Open(t)}, Max: 4, PerOwner: 3, Idle: time.Minute, Life: time.Hour, Dir: t.TempDir()}
	for _, f := range change {
		f(&c)
	}
	x := session.Open(c)
	t.Cleanup(x.Close)
	return x
}

func call(owner, name, lang, code string) session.Call {
	l := sallyport.DefaultLimits()
	l.Timeout = 2 * time.Minute
	return session.Call{
		Key: session.Key{Owner: owner, Name: name}, Terms: session.Terms{"profile="}, Tier: sallyport.TierGVisor,
		Language: lang, Code: []byte(code), Request: tier.Request{Image: "default", Limits: l},
	}
}

func must(t *testing.T, x *session.Sessions, c session.Call) session.Result {
	t.Helper()
	res, err := x.Run(context.Background(), c)
	if err != nil {
		t.Fatalf("%s: %v", c.Code, err)
	}
	return res
}

// What an interpreter holds is there at the next call.
func TestSessionKeeps(t *testing.T) {
	x := place(t)
	for _, tt := range []struct{ lang, code, stdout, stderr string }{
		{"python", "x = 41\nimport math\nopen('f', 'w').write('kept')", "", ""},
		{"python", "print(x + 1, math.floor(2.5), open('f').read(), __name__)", "42 2 kept __main__\n", ""},
		{"python", "import sys; print(sys.stdin.read().upper())", "INPUT\n", ""},
		{"python", "def f(): return [i * x for i in range(2)]\nprint(f())", "[0, 41]\n", ""},
		{"python", "1/0", "", "Traceback (most recent call last):\n  File \"<call 5>\", line 1, in <module>\n    1/0\n     ~^~\nZeroDivisionError: division by zero\n"},
		{"python", "import os\nif os.fork() == 0: print('child')\nelse: os.wait(); print('parent')", "child\nparent\n", ""},
		{"python", "print(x)", "41\n", ""},
		{"javascript", "let a = 1; var b = 2; globalThis.c = 3; const fs = require('fs')", "", ""},
		{"javascript", "console.log(a + b + c, fs.readFileSync('f', 'utf8')); setTimeout(() => console.log('later'), 20)", "6 kept\nlater\n", ""},
		{"javascript", "const d = await Promise.resolve(7); console.log(d)", "7\n", ""},
		{"javascript", "process.stdin.on('data', d => console.log(String(d).toUpperCase()))", "INPUT\n", ""},
		{"javascript", "import('node:os').then(o => console.log(typeof o.cpus))", "function\n", ""},
		{"shell", "mkdir -p d; cd d; export A='b  c'; u=1; echo $PWD", "/home/agent/d\n", ""},
		{"shell", "echo $PWD \"$A\" [$u]; cat; unset A; cd ..; exit 0", "/home/agent/d b  c []\ninput", ""},
		{"shell", "echo $PWD [$A]; (sleep 60 >/dev/null 2>&1) & disown; set -e; false; echo no", "/home/agent []\n", ""},
		{"shell", "cat f", "kept", ""},
	} {
		c := call("a", "s", tt.lang, tt.code)
		if strings.Contains(tt.code, "stdin") || strings.Contains(tt.code, "cat;") {
			c.Request.Stdin = []byte("input")
		}
		res := must(t, x, c)
		if string(res.Stdout) != tt.stdout || string(res.Stderr) != tt.stderr || res.Ended != "" {
			t.Errorf("%s: %q, stderr %q, %d %s, %s; want %q, %q", tt.code, res.Stdout, res.Stderr, res.ExitCode, res.Signal, res.Ended, tt.stdout, tt.stderr)
		}
	}
}

// A program that is killed takes the session with it, and says so; the next call
// begins anew. What ends an interpreter alone leaves the files.
func TestSessionEnds(t *testing.T) {
	x := place(t)
	slow := call("a", "s", "python", "try: open('big', 'wb').write(bytes(100 << 20))\nexcept OSError: print('before', flush=True)\nwhile True: pass")
	var res session.Result
	await.Longer(300*time.Millisecond, func(d time.Duration) bool {
		must(t, x, call("a", "s", "python", "x = 1"))
		slow.Request.Limits.Timeout = d
		res = must(t, x, slow)
		return len(res.Stdout) > 0
	})
	if res.KilledBy != tier.KilledByTimeout || res.Ended != "timeout" || res.New || string(res.Stdout) != "before\n" || res.ExitCode != 137 {
		t.Errorf("timeout: %+v", res)
	}
	if fmt.Sprint(res.LimitsHit) != "[disk]" || res.PeakMemory < 64<<20 { // what it took is told, though it is gone
		t.Errorf("timeout: limits %q, peak %d MiB", res.LimitsHit, res.PeakMemory>>20)
	}
	if res := must(t, x, call("a", "s", "python", "print('x' in globals())")); !res.New || string(res.Stdout) != "False\n" {
		t.Errorf("after a timeout: %+v", res)
	}
	if res := must(t, x, call("a", "s", "python", "print('x' in globals())")); res.New {
		t.Errorf("the second call began anew: %+v", res)
	}
	hungry := call("a", "m", "python", "b = []\nwhile True: b.append(bytearray(b'x') * (16 << 20))")
	hungry.Request.Limits.Memory = 96 << 20
	if res := must(t, x, hungry); res.KilledBy != tier.KilledByMemory || res.Ended != "memory" || res.PeakMemory < 64<<20 {
		t.Errorf("memory: %+v", res)
	}
	must(t, x, call("a", "s", "python", "open('kept', 'w').write('y')\ny = 2"))
	if res := must(t, x, call("a", "s", "python", "import os; os._exit(7)")); !res.Lost || res.ExitCode != 7 || res.Ended != "" {
		t.Errorf("os._exit: %+v", res)
	}
	if res := must(t, x, call("a", "s", "python", "import os, signal; print('y' in globals(), open('kept').read(), flush=True); os.kill(os.getpid(), signal.SIGKILL)")); string(res.Stdout) != "False y\n" || res.Signal != "SIGKILL" || !res.Lost {
		t.Errorf("after os._exit: %+v", res)
	}
	if res := must(t, x, call("a", "s", "python", "raise SystemExit(3)")); res.ExitCode != 3 || res.Lost {
		t.Errorf("SystemExit: %+v", res)
	}
	if res := must(t, x, call("a", "s", "javascript", "process.exit(4)")); res.ExitCode != 4 || !res.Lost {
		t.Errorf("process.exit: %+v", res)
	}
	ctx, cancel := context.WithCancel(context.Background())
	long := call("a", "s", "shell", "echo up; sleep 600")
	long.Told = func(bool, []byte) { cancel() }
	if _, err := x.Run(ctx, long); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if res := must(t, x, call("a", "s", "shell", "ls")); !res.New {
		t.Errorf("after a cancellation: %+v", res)
	}
	if err := x.End(session.Key{Owner: "a", Name: "s"}); err != nil || len(x.List("a")) != 0 {
		t.Errorf("end: %v, %v", err, x.List("a"))
	}
}

// One call at a time is in a session; a few wait, the rest are told to come back.
func TestFO19_SessionsAreBounded(t *testing.T) {
	x := place(t, func(c *session.Config) { c.Max, c.PerOwner, c.Idle = 3, 2, time.Hour })
	must(t, x, call("a", "s", "shell", "echo 0 > n"))
	var wg sync.WaitGroup
	var refused atomic.Int32
	for range 8 {
		wg.Go(func() {
			_, err := x.Run(context.Background(), call("a", "s", "shell", "n=$(cat n); sleep 0.1; echo $((n + 1)) > n"))
			if e, ok := errors.AsType[*sallyport.Error](err); ok && e.RetryAfter > 0 && errors.Is(err, sallyport.ErrNotExecuted) {
				refused.Add(1)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if res := must(t, x, call("a", "s", "shell", "cat n")); string(res.Stdout) != fmt.Sprintf("%d\n", 8-refused.Load()) || refused.Load() == 0 || refused.Load() > 4 {
		t.Errorf("%d of 8 calls refused, n = %s", refused.Load(), res.Stdout)
	}
	must(t, x, call("a", "s2", "shell", "true"))
	for _, k := range []struct{ owner, name, want string }{{"a", "s3", "2 sessions"}, {"b", "s", ""}, {"c", "s", "all 3 sessions"}} {
		_, err := x.Run(context.Background(), call(k.owner, k.name, "shell", "true"))
		if e, ok := errors.AsType[*sallyport.Error](err); k.want == "" && err != nil || k.want != "" && (!ok || !strings.Contains(e.Message, k.want) || e.RetryAfter == 0) {
			t.Errorf("%s/%s: %v; want %q", k.owner, k.name, err, k.want)
		}
	}
}

// What nobody calls for a while ends.
func TestIdleSessionsEnd(t *testing.T) {
	x := place(t, func(c *session.Config) { c.Idle = time.Second })
	must(t, x, call("a", "s", "shell", "echo 0 > n"))
	await.That(t, "an idle session ends", func() bool { return len(x.List("a")) == 0 })
	if res := must(t, x, call("a", "s", "shell", "cat n")); !res.New || res.ExitCode != 1 {
		t.Errorf("after idling: %+v", res)
	}
}

// Nothing but owner and name finds a session: whatever else is said, and of
// whomever, the answer is the same.
func TestTO51_SessionsOfOthersAreUnknown(t *testing.T) {
	x := place(t)
	own := must(t, x, call("tenant/a", "s", "python", "secret = 'canary'\nopen('f', 'w').write(secret)"))
	other := must(t, x, call("tenant/b", "s", "python", "import os\nprint('secret' in globals(), os.listdir('.'))"))
	if !other.New || other.ID == own.ID || string(other.Stdout) != "False []\n" {
		t.Errorf("another owner's session of the same name: %+v", other)
	}
	must(t, x, call("tenant/a", "gone", "shell", "true"))
	if err := x.End(session.Key{Owner: "tenant/a", Name: "gone"}); err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, k := range []session.Key{
		{Owner: "tenant/b", Name: "gone"}, {Owner: "tenant/a", Name: "gone"}, {Owner: "tenant/a", Name: "never"}, {Owner: "tenant/c", Name: "s"},
		{Owner: "tenant/b", Name: own.ID}, {Owner: "tenant/b", Name: "../a/s"}, {Owner: "tenant/b", Name: "s/../../a/s"}, {Owner: "tenant/a", Name: own.ID},
		{Owner: "tenant", Name: "a/s"}, {Owner: "TENANT/A", Name: "s"}, {Owner: "tenant/a", Name: "S"}, {Owner: "", Name: "s"},
	} {
		_, jobErr := x.Job(t.Context(), k, 1, 0)
		_, _, listErr := x.ListFiles(t.Context(), k, nil, "")
		_, getErr := x.Get(t.Context(), k, nil, "f", 0, -1, io.Discard)
		_, putErr := x.Put(t.Context(), k, nil, "g", 0, strings.NewReader(""))
		for _, err := range []error{jobErr, listErr, getErr, putErr, x.End(k)} {
			if e, ok := errors.AsType[*sallyport.Error](err); !ok || e.Code != sallyport.NotFound {
				t.Errorf("%q: %v", k, err)
			} else {
				words = append(words, strings.Replace(e.Message, strconv.Quote(k.Name), "X", 1)+e.Hint)
			}
		}
	}
	if slices.Sort(words); len(slices.Compact(words)) != 1 {
		t.Errorf("the answers differ: %q", slices.Compact(words))
	}
	var got bytes.Buffer
	if _, err := x.Get(t.Context(), session.Key{Owner: "tenant/a", Name: "s"}, nil, "f", 0, -1, &got); err != nil || got.String() != "canary" {
		t.Errorf("control: the owner gets %q, %v", got.String(), err)
	}
	if l := x.List("tenant/b"); len(l) != 1 || l[0].ID != other.ID {
		t.Errorf("b's sessions: %+v", l)
	}
	with := call("tenant/a", "s", "python", "print(secret)")
	with.Terms = session.Terms{"profile=other"}
	if _, err := x.Run(t.Context(), with); sallyport.CodeOf(err) != sallyport.Conflict || !strings.Contains(err.Error(), "another profile") || !errors.Is(err, sallyport.ErrNotExecuted) {
		t.Errorf("other terms: %v", err)
	}
}

// A program in the background goes on while others run, and is read by offset.
func TestSessionJobs(t *testing.T) {
	x := place(t)
	job := call("a", "s", "shell", "for i in 1 2 3; do echo out $i; echo err $i >&2; sleep 0.1; done; exit 5")
	job.Job = true
	res := must(t, x, job)
	if res.Job != 1 || !res.New {
		t.Fatalf("%+v", res)
	}
	job.Language, job.Code = "python", []byte("import os, time, sys\nprint(os.getcwd(), sys.stdin.read(), flush=True)\ntime.sleep(600)")
	job.Request.Stdin = []byte("input")
	if res = must(t, x, job); res.Job != 2 {
		t.Fatalf("%+v", res)
	}
	if res := must(t, x, call("a", "s", "shell", "echo front")); string(res.Stdout) != "front\n" {
		t.Errorf("beside jobs: %+v", res)
	}
	k := session.Key{Owner: "a", Name: "s"}
	read := func(id uint32, done func(session.JobState) bool) (all string, st session.JobState) {
		t.Helper()
		for deadline := time.Now().Add(await.Patience); ; time.Sleep(20 * time.Millisecond) {
			var err error
			if st, err = x.Job(t.Context(), k, id, st.Next); err != nil || time.Now().After(deadline) {
				t.Fatalf("%q, %+v, %v", all, st, err)
			}
			if all += string(st.Output); done(st) {
				return all, st
			}
		}
	}
	all, st := read(1, func(st session.JobState) bool { return !st.Running })
	if strings.Count(all, "out") != 3 || strings.Count(all, "err") != 3 || st.ExitCode != 5 {
		t.Errorf("%q, %+v", all, st)
	}
	if all, st = read(2, func(st session.JobState) bool { return st.Next > 0 }); all != "/home/agent input\n" || !st.Running {
		t.Errorf("%q, %+v", all, st)
	}
	if st, err := x.Job(t.Context(), k, 1, 4); err != nil || !strings.HasPrefix(string(st.Output), "1\n") {
		t.Errorf("from offset 4: %q, %v", st.Output, err)
	}
	if _, err := x.Job(t.Context(), k, 3, 0); sallyport.CodeOf(err) != sallyport.NotFound {
		t.Errorf("job 3: %v", err)
	}
	if l := x.List("a"); len(l) != 1 || l[0].Jobs != 1 {
		t.Errorf("%+v", l)
	}
}

// Each call returns the files of the output folder that are new or changed.
func TestSessionOutput(t *testing.T) {
	x := place(t)
	for _, tt := range []struct{ lang, code, want string }{
		{"python", "import os\nopen(os.environ['SALLYPORT_OUTPUT'] + '/a', 'w').write('one')", "a=one"},
		{"python", "pass", ""},
		{"shell", "echo -n two > /home/output/b; echo -n more >> /home/output/a", "a=onemore b=two"},
		{"shell", "rm -r /home/output/*", ""},
		{"javascript", "require('fs').writeFileSync('/home/output/c', 'three')", "c=three"},
	} {
		res := must(t, x, call("a", "s", tt.lang, tt.code))
		var got []string
		for _, f := range res.Output.Files {
			got = append(got, f.Path+"="+string(f.Content))
		}
		if slices.Sort(got); strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %q, want %q; %s", tt.code, got, tt.want, res.Stderr)
		}
	}
	secret := call("a", "t", "shell", "echo x > x")
	secret.Secret = true
	if res := must(t, x, secret); len(res.Output.Files) != 0 {
		t.Errorf("with secrets: %+v", res.Output)
	}
	if _, err := x.Get(t.Context(), secret.Key, nil, "x", 0, -1, io.Discard); sallyport.CodeOf(err) != sallyport.Denied {
		t.Errorf("a file of a session with secrets: %v", err)
	}
	secret.Job = true
	if _, err := x.Run(t.Context(), secret); sallyport.CodeOf(err) != sallyport.Denied {
		t.Errorf("a job with secrets: %v", err)
	}
}

// Limits hold in a session as in any run, and are named in each call that meets
// them; programs have no descriptor but their own.
func TestSessionLimits(t *testing.T) {
	x := place(t)
	for _, tt := range []struct{ lang, code, out, hit string }{
		{"shell", "head -c 100M /dev/zero > big 2>/dev/null; rm big; ls -l /proc/self/fd | grep -c -- '->'", "4\n", "[disk]"},
		{"shell", "exec python3 -c \"import mmap; f = open('big', 'w+b'); f.truncate(100 << 20); mmap.mmap(f.fileno(), 100 << 20).write(bytes(100 << 20))\"", "", "[disk]"},
		{"shell", "rm big; echo fine", "fine\n", "[]"},
		{"python", "try: open('big', 'wb').write(bytes(100 << 20))\nexcept OSError as e: print(e.errno)\nimport os; os.remove('big')", "28\n", "[disk]"},
		{"python", "import subprocess\nall = []\ntry:\n    for i in range(100): all.append(subprocess.Popen(['sleep', '60']))\nexcept OSError as e: print(e.errno)\nfor p in all: p.kill(); p.wait()", "11\n", "[processes]"},
		{"python", "import os\nprint(sorted(os.listdir('/proc/self/fd')), os.getuid())\ntry: os.listdir('/proc/1/fd')\nexcept PermissionError: print('denied')", "['0', '1', '2', '3', '4', '5'] 1000\ndenied\n", "[]"},
		{"python", "print('x' * (2 << 20))", "", "[output]"},
		{"shell", "sudo -n true 2>/dev/null || unshare -m true 2>/dev/null; mount -t tmpfs x /mnt 2>/dev/null && echo mounted; cat /home/.incoming/file /run/session/code >/dev/null 2>&1; touch /run/session/new 2>/dev/null || echo closed", "closed\n", "[]"},
	} {
		c := call("a", "s", tt.lang, tt.code)
		res := must(t, x, c)
		if hit := fmt.Sprint(res.LimitsHit); tt.out != "" && string(res.Stdout) != tt.out || hit != tt.hit || res.Ended != "" {
			t.Errorf("%s: %.80q %.200q, hit %s, ended %q; want %q, %s", tt.code, res.Stdout, res.Stderr, hit, res.Ended, tt.out, tt.hit)
		}
	}
}
