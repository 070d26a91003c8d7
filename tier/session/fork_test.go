package session_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/microvm"
	"sallyport.dev/sallyport/microvm/microvmtest"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/session"
	"sallyport.dev/sallyport/tier/stay"
)

func inMicroVM(owner, name, lang, code string) session.Call {
	c := call(owner, name, lang, code)
	c.Tier, c.Request.Limits.Timeout = sallyport.TierMicroVM, 2*time.Minute
	return c
}

// vmPlace keeps sessions in microVMs, with the kernel that every host has.
func vmPlace(t testing.TB, change ...func(*session.Config)) (x *session.Sessions, h *microvm.Host) {
	t.Helper()
	h = microvmtest.Open(t, func(c *microvm.Config) { microvmtest.OnDebian(t, c) })
	c := session.Config{Hosts: map[string]stay.Host{sallyport.TierMicroVM: h}, Max: 8, PerOwner: 6, Idle: 10 * time.Minute, Life: time.Hour, Dir: t.TempDir()}
	for _, f := range change {
		f(&c)
	}
	x = session.Open(c)
	t.Cleanup(x.Close)
	return x, h
}

// forks makes children until it may not, and ends them.
const forks = `
import os, time
all = []
try:
    while len(all) < 200:
        p = os.fork()
        if p == 0: time.sleep(3600)
        all.append(p)
except OSError: pass
for p in all: os.kill(p, 9); os.waitpid(p, 0)
`

// A session in a microVM is one like any other: variables, files, jobs, limits by
// name, what was too large, how it was held.
func TestSessionInAMicroVM(t *testing.T) {
	x, h := vmPlace(t)
	for _, tt := range []struct{ lang, code, stdout string }{
		{"python", "x = 41", ""},
		{"python", "print(x + 1)", "42\n"},
		{"shell", "mkdir -p d; cd d; echo kept >f; export A=1", ""},
		{"shell", "echo $PWD $A; cat f; cat ../given", "/home/agent/d 1\nkept\ngiven"},
		{"javascript", "let a = 1", ""},
		{"javascript", "console.log(a + 1)", "2\n"},
	} {
		c := inMicroVM("a", "s", tt.lang, tt.code)
		c.Request.Files = []tier.File{{Path: "given", Content: []byte("given")}}
		res := must(t, x, c)
		if string(res.Stdout) != tt.stdout || res.ExitCode != 0 || res.Receipt.Tier != sallyport.TierMicroVM || res.Receipt.Exit != "exited" || res.Receipt.Unbounded || len(res.LimitsHit) > 0 {
			t.Errorf("%s: %d %q %q %+v %q", tt.code, res.ExitCode, res.Stdout, res.Stderr, res.Receipt, res.LimitsHit)
		}
	}
	if res := must(t, x, inMicroVM("a", "s", "python", forks)); !slices.Equal(res.LimitsHit, []string{tier.LimitProcesses}) {
		t.Errorf("too many processes: limits hit %q (%q %.300q)", res.LimitsHit, res.Stdout, res.Stderr)
	}
	if res := must(t, x, inMicroVM("a", "s", "shell", "true")); len(res.LimitsHit) > 0 {
		t.Errorf("the limits of another call: %q", res.LimitsHit)
	}
	c := inMicroVM("a", "s", "shell", "echo job")
	c.Job = true
	job := must(t, x, c)
	within(t, "the job ends", func() bool {
		st, err := x.Job(t.Context(), c.Key, job.Job, 0)
		return err == nil && !st.Running && string(st.Output) == "job\n"
	})
	var got strings.Builder
	if _, err := x.Get(t.Context(), c.Key, c.Terms, "d/f", 0, -1, &got); err != nil || got.String() != "kept\n" {
		t.Errorf("%q, %v", got.String(), err)
	}
	if l := h.List(); len(l) != 1 {
		t.Errorf("%d sandboxes", len(l))
	}
	child := "import os\nif os.fork() == 0:\n  x = bytearray(600 << 20)\n  for i in range(0, len(x), 4096): x[i] = 1\n  os._exit(0)\nos.wait()"
	if res := must(t, x, inMicroVM("a", "s", "python", child)); res.KilledBy != tier.KilledByMemory || res.Ended != "memory" {
		t.Errorf("too large: %+v", res)
	}
	c = inMicroVM("a", "s", "shell", "echo so far; sleep 60")
	var res session.Result
	await.Longer(3*time.Second, func(d time.Duration) bool { // a short time may not be enough to say something
		c.Request.Limits.Timeout = d
		res = must(t, x, c)
		return len(res.Stdout) > 0
	})
	if !res.New || res.KilledBy != tier.KilledByTimeout || string(res.Stdout) != "so far\n" {
		t.Errorf("too long: %+v", res)
	}
	within(t, "nothing is left", func() bool { return len(h.List()) == 0 && len(x.List("a")) == 0 })
}

// Who takes a session's sandbox away is told apart from a program that ends.
func TestSessionInAMicroVMIsKilled(t *testing.T) {
	x, h := vmPlace(t)
	res := must(t, x, inMicroVM("a", "s", "python", "x = 1"))
	if !h.Kill(res.ID) {
		t.Fatal("it is not there")
	}
	within(t, "the session is over", func() bool { return len(x.List("a")) == 0 && len(h.List()) == 0 })
	if res := must(t, x, inMicroVM("a", "s", "shell", "echo again")); !res.New || string(res.Stdout) != "again\n" {
		t.Errorf("%+v", res)
	}
}

func within(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// unique tells, of the machine and of the interpreter, what no two copies may have
// in common.
const unique = `
import json, os, random, socket, ssl, tempfile, time, uuid
read = lambda p: open(p).read().strip()
print(json.dumps({
  "urandom": os.urandom(32).hex(), "random": random.getrandbits(128), "uuid4": str(uuid.uuid4()), "tls": ssl.RAND_bytes(32).hex(),
  "machine-id": read("/etc/machine-id"), "boot-id": read("/proc/sys/kernel/random/boot_id"), "kernel's uuid": read("/proc/sys/kernel/random/uuid"),
  "hostname": socket.gethostname(), "/etc/hostname": read("/etc/hostname"),
  "temp": os.path.basename(tempfile.mktemp()), "clock": time.time(), "monotonic": time.monotonic(),
}), flush=True)
`

// What one session has in memory, all its siblings have: a nonce that nobody else
// knows proves it. From there each goes its own way, and differs in all that is
// meant to be unique.
func TestFork(t *testing.T) {
	x, h := vmPlace(t)
	say := func(name, language, code string) string {
		t.Helper()
		res := must(t, x, inMicroVM("a", name, language, code))
		if res.ExitCode != 0 || res.New != (name == "s" && strings.HasPrefix(code, "import os; nonce")) {
			t.Fatalf("%s: %+v %q %q", name, res.New, res.Stdout, res.Stderr)
		}
		return strings.TrimSpace(string(res.Stdout))
	}
	report := func(name string) (r map[string]any) {
		t.Helper()
		if err := json.Unmarshal([]byte(say(name, "python", unique)), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	say("s", "python", "import os; nonce = os.urandom(16).hex()")
	say("s", "shell", "echo file >kept; mkdir -p deep; cd deep")
	before := report("s") // its generators have been used, and its boot id was read
	names := []string{"t1", "t2", "t3"}
	k := inMicroVM("a", "s", "", "").Key
	paused, err := x.Fork(t.Context(), k, session.Terms{"profile="}, names)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the source was held for %v", paused)
	nonce := say("s", "python", "print(nonce)")
	if len(nonce) != 32 || len(x.List("a")) != 4 || len(h.List()) != 4 {
		t.Fatalf("nonce %q, sessions %+v", nonce, x.List("a"))
	}
	for _, i := range x.List("a") { // what it holds is as old, and ends as early
		if born := x.List("a")[0].Since; !i.Since.Equal(born) {
			t.Errorf("%s is younger than another: %v, %v", i.Name, i.Since, born)
		}
	}
	all := []map[string]any{report("s")}
	for _, name := range names {
		if got := say(name, "python", "print(nonce); nonce = 'another'"); got != nonce {
			t.Errorf("%s has %q in memory, not %q", name, got, nonce)
		}
		if got := say(name, "shell", "pwd; cat ../kept; echo other >../kept"); got != "/home/agent/deep\nfile" {
			t.Errorf("%s: %q", name, got)
		}
		r := report(name)
		if r["monotonic"].(float64) < before["monotonic"].(float64) {
			t.Errorf("%s's monotonic clock went back: %v, before %v", name, r["monotonic"], before["monotonic"])
		}
		if off := time.Since(time.Unix(0, int64(r["clock"].(float64)*1e9))); off < -50*time.Millisecond || off > time.Minute {
			t.Errorf("%s's clock is off by %v", name, off)
		}
		all = append(all, r)
	}
	microvmtest.Differ(t, append(all, before)[:len(all)])
	if got := say("s", "python", "print(nonce)") + say("s", "shell", "cat ../kept"); got != nonce+"file" {
		t.Errorf("the source has what its siblings changed: %q", got)
	}
	forksRefused(t, x, k)
	must(t, x, inMicroVM("a", "s", "javascript", "0"))
	if _, err := x.Fork(t.Context(), k, nil, []string{"u"}); sallyport.CodeOf(err) != sallyport.Invalid {
		t.Errorf("with Node.js in it: %v", err)
	}
	x.Close()
	if l := h.List(); len(l) > 0 {
		t.Errorf("left: %+v", l)
	}
}

// forksRefused tries what is refused, and changes nothing.
func forksRefused(t *testing.T, x *session.Sessions, k session.Key) {
	t.Helper()
	for what, f := range map[string]func() error{
		"a name that is taken": func() error { _, err := x.Fork(t.Context(), k, nil, []string{"u", "t1"}); return err },
		"one name twice":       func() error { _, err := x.Fork(t.Context(), k, nil, []string{"u", "u"}); return err },
		"more than an owner may have": func() error {
			_, err := x.Fork(t.Context(), k, nil, []string{"u", "v", "w"})
			return err
		},
		"none": func() error { _, err := x.Fork(t.Context(), k, nil, nil); return err },
		"of somebody else": func() error {
			_, err := x.Fork(t.Context(), session.Key{Owner: "b", Name: "s"}, nil, []string{"u"})
			return err
		},
	} {
		if err := f(); err == nil || len(x.List("a")) != 4 || len(x.List("b")) != 0 {
			t.Errorf("%s: %v, %d sessions", what, err, len(x.List("a")))
		}
	}
}

// A sandbox of gVisor is not copied.
func TestForkElsewhere(t *testing.T) {
	x := place(t, func(c *session.Config) { c.Hosts = map[string]stay.Host{sallyport.TierGVisor: gvisortest.Open(t)} })
	c := call("a", "s", "shell", "true")
	must(t, x, c)
	if _, err := x.Fork(t.Context(), c.Key, c.Terms, []string{"t"}); sallyport.CodeOf(err) != sallyport.Invalid || len(x.List("a")) != 1 {
		t.Errorf("%v, %+v", err, x.List("a"))
	}
	c.Tier, c.Key.Name = sallyport.TierMicroVM, "u"
	if _, err := x.Run(context.Background(), c); sallyport.CodeOf(err) != sallyport.Invalid {
		t.Errorf("a tier that keeps no sessions: %v", err)
	}
}
