package session_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/tier/session"
	"sallyport.dev/sallyport/tier/stay"
)

// rested waits until the owner's only session is frozen.
func rested(t *testing.T, x *session.Sessions, owner string) {
	t.Helper()
	await.That(t, "it rests", func() bool { l := x.List(owner); return len(l) == 1 && l[0].Frozen })
}

// A session that rests has no sandbox; its state, on disk, cannot be read, and
// has no name; at the next call everything is there.
func TestFrozenSession(t *testing.T) {
	dir := t.TempDir()
	x := place(t, func(c *session.Config) { c.Rest, c.Dir = 300*time.Millisecond, dir })
	canary := strings.Repeat("canary-of-the-frozen-session-", 1000)
	must(t, x, call("a", "s", "python", fmt.Sprintf("x = %q\nimport threading, random\nopen('f', 'w').write('kept')\nr = random.random()\nprint(r)", canary)))
	must(t, x, call("a", "s", "javascript", "let y = 41"))
	must(t, x, call("a", "s", "shell", "mkdir d; cd d; export V=v"))
	rested(t, x, "a")
	if names, err := os.ReadDir(dir); err != nil || len(names) != 0 {
		t.Errorf("files with a name: %v, %v", names, err)
	}
	state := openFiles(t, dir)
	if len(state) != 1 || len(state[0]) < 1<<20 || bytes.Contains(state[0], []byte("canary-of-the-frozen-session-canary")) {
		t.Errorf("%d states, legible or too small", len(state))
	}
	began := time.Now()
	for _, c := range []struct{ lang, code, want string }{
		{"python", "print(x == 'canary-of-the-frozen-session-' * 1000, open('f').read())", "True kept\n"},
		{"javascript", "console.log(y + 1); setTimeout(() => console.log('timer'), 10)", "42\ntimer\n"},
		{"shell", "pwd; echo $V", "/home/agent/d\nv\n"},
	} {
		res := must(t, x, call("a", "s", c.lang, c.code))
		if string(res.Stdout) != c.want || res.New {
			t.Errorf("%s: %q, stderr %q, new %v", c.code, res.Stdout, res.Stderr, res.New)
		}
		if c.lang == "python" {
			t.Logf("the first call after it rested took %v", time.Since(began).Round(time.Millisecond))
		}
	}
	rested(t, x, "a") // and once more
	if res := must(t, x, call("a", "s", "python", "print(len(x))")); string(res.Stdout) != fmt.Sprintf("%d\n", len(canary)) || res.New {
		t.Errorf("after the second rest: %+v", res)
	}
	rested(t, x, "a")
	if err := x.End(session.Key{Owner: "a", Name: "s"}); err != nil {
		t.Error(err)
	}
	if n := len(openFiles(t, dir)); n != 0 {
		t.Errorf("%d states are left of a session that was ended", n)
	}
}

// A session that holds secrets is never frozen, nor one in which a job runs.
func TestNeverFrozen(t *testing.T) {
	dir := t.TempDir()
	x := place(t, func(c *session.Config) { c.Rest, c.Idle, c.Dir = 100*time.Millisecond, 3*time.Second, dir })
	secret := call("a", "s", "python", "x = 1")
	secret.Secret = true
	must(t, x, secret)
	job := call("b", "s", "shell", "sleep 600")
	job.Job = true
	must(t, x, job)
	for end := time.Now().Add(2500 * time.Millisecond); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if n := len(openFiles(t, dir)); n > 0 {
			t.Fatal("a state was written")
		}
	}
	await.That(t, "the session with a secret ends", func() bool { return len(x.List("a")) == 0 })
	if l := x.List("b"); len(l) != 1 || l[0].Frozen {
		t.Errorf("the session with a job: %+v", l)
	}
}

// A state that was changed on disk is not taken up.
func TestFrozenStateIsChecked(t *testing.T) {
	dir := t.TempDir()
	x := place(t, func(c *session.Config) { c.Rest, c.Dir = 100*time.Millisecond, dir })
	must(t, x, call("a", "s", "shell", "true"))
	rested(t, x, "a")
	f := findOpen(t, dir)
	if len(f) != 1 {
		t.Fatalf("%d states", len(f))
	}
	w, err := os.OpenFile(f[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.WriteAt([]byte("changed"), 300<<10); err != nil {
		t.Fatal(err)
	}
	_, err = x.Run(t.Context(), call("a", "s", "shell", "true"))
	if e, ok := errors.AsType[*sallyport.Error](err); !ok || !strings.Contains(e.Message, "ended") {
		t.Errorf("%v", err)
	}
	if res := must(t, x, call("a", "s", "shell", "true")); !res.New {
		t.Errorf("%+v", res)
	}
}

// findOpen names the open files of this process that lie in a folder.
func findOpen(t *testing.T, dir string) (paths []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if to, err := os.Readlink(p); err == nil && strings.HasPrefix(to, dir+"/frozen-") {
			paths = append(paths, p)
		}
	}
	return paths
}

func openFiles(t *testing.T, dir string) (contents [][]byte) {
	t.Helper()
	for _, p := range findOpen(t, dir) {
		f, err := os.Open(p)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		contents = append(contents, b)
	}
	return contents
}

// However a session ends, nothing of it is left: no descriptor, no goroutine, no
// sandbox, no folder.
func TestSessionsLeaveNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	h := gvisortest.Open(t, func(c *gvisor.Config) { c.Dir = dir })
	x := place(t, func(c *session.Config) {
		c.Hosts, c.Rest = map[string]stay.Host{sallyport.TierGVisor: h}, 50*time.Millisecond
	})
	count := func() (fds, routines int) {
		all, err := filepath.Glob("/proc/self/fd/*")
		if err != nil {
			t.Fatal(err)
		}
		return len(all), runtime.NumGoroutine()
	}
	k := session.Key{Owner: "a", Name: "s"}
	cycle := func() {
		must(t, x, call("a", "s", "python", "x = 1"))
		rested(t, x, "a")
		must(t, x, call("a", "s", "python", "print(x)"))
		job := call("a", "s", "shell", "sleep 600")
		job.Job = true
		must(t, x, job)
		if err := x.End(k); err != nil {
			t.Fatal(err)
		}
		must(t, x, call("a", "s", "shell", "true"))
		rested(t, x, "a")
		if err := x.End(k); err != nil {
			t.Fatal(err)
		}
		slow := call("a", "s", "shell", "sleep 600")
		slow.Request.Limits.Timeout = 100 * time.Millisecond
		must(t, x, slow)
	}
	cycle()
	fds, routines := count()
	cycle()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		left, err := filepath.Glob(filepath.Join(dir, "runs", "*"))
		f, r := count()
		if err == nil && len(left) == 0 && f <= fds && r <= routines && len(h.List()) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left: %q, %v, %d descriptors after %d, %d goroutines after %d, %v", left, err, f, fds, r, routines, h.List())
		}
	}
}
