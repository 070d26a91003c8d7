package sandbox_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/sandbox"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/tier/realtest"
)

// A host is a real sallyport-sandboxd with folders of its own.
type host struct {
	program, run, state string
	more                []string // arguments
}

func newHost(t testing.TB) host {
	realtest.Images(t) // skips
	// Not t.TempDir: other uids must be able to walk to the servers' homes.
	dir, err := os.MkdirTemp("", "sallyport-sandbox-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return host{filepath.Join(realtest.Programs(t), "sallyport-sandboxd"), filepath.Join(dir, "run"), filepath.Join(dir, "state"), nil}
}

func (h host) args() []string {
	return append(h.more, "-run", h.run, "-state", h.state, "-uids", filepath.Join(h.state, "uids.json"), "-cache", realtest.Cache())
}

func (h host) start(t testing.TB, o sandbox.Options) *sandbox.Backend {
	t.Helper()
	b, err := sandbox.Start(h.program, h.args(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

type secrets map[string]string

func (s secrets) Resolve(_ context.Context, tenant, name string) ([]byte, error) {
	v, ok := s[tenant+"/"+name]
	if !ok {
		return nil, &sallyport.Error{Code: sallyport.NotFound}
	}
	return []byte(v), nil
}

func codeJob(tool sallyport.Tool, args string) sallyport.Job {
	return sallyport.Job{
		CallID: "call-1", Who: sallyport.Principal{Tenant: "t"}, Tool: tool, Args: json.RawMessage(args), Tier: "gvisor",
		Limits: sallyport.DefaultLimits(), Notify: func(sallyport.Notice) {},
	}
}

func TestRun(t *testing.T) {
	b := newHost(t).start(t, sandbox.Options{Secrets: secrets{"t/db": "hunter2"}})
	if err := b.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	tools := map[string]sallyport.Tool{}
	for _, tool := range sandbox.Tools(nil) {
		tools[tool.Name] = tool
	}
	granted := tools["run_shell"]
	granted.Code = &sallyport.Script{Language: "shell", Source: `printf '%s %s %s' "$(printf %s "$DB" | tr a-z b-za)" "$DB" "$(cat)"`}
	granted.OutputSchema = nil
	granted.Manifest.Secrets = []sallyport.SecretGrant{{Name: "db", Env: "DB"}}
	missing := granted
	missing.Manifest.Secrets = []sallyport.SecretGrant{{Name: "other", Env: "DB"}}
	ids := map[string]bool{}
	for _, tt := range []struct {
		name string
		job  sallyport.Job
		want string // stdout
		code sallyport.Code
	}{
		{"python", codeJob(tools["run_python"], `{"code":"import helper; print(6*helper.seven, input())","files":{"helper.py":"seven = 7"},"stdin":"in"}`), "42 in\n", ""},
		{"javascript", codeJob(tools["run_javascript"], `{"code":"console.log(6*7)"}`), "42\n", ""},
		{"module", codeJob(tools["run_javascript"], `{"code":"import os from 'os'\nconsole.log(await Promise.resolve(os.hostname()))"}`), "sandbox\n", ""},
		{"shell", codeJob(tools["run_shell"], `{"code":"echo $((6*7))"}`), "42\n", ""},
		{"own source, arguments and secret", codeJob(granted, `{"n":1}`), `ivoufs2 [masked: secret db] {"n":1}`, ""},
		{"secret that is not there", codeJob(missing, `{}`), "", sallyport.Unavailable},
		{"traversal", codeJob(tools["run_shell"], `{"code":"ls","files":{"../x":""}}`), "", sallyport.Invalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := b.Run(t.Context(), tt.job)
			if tt.code != "" {
				if sallyport.CodeOf(err) != tt.code || !errors.Is(err, sallyport.ErrNotExecuted) {
					t.Errorf("got %v, want %s", err, tt.code)
				}
				return
			}
			var m struct {
				StructuredContent struct {
					Stdout, Stderr, Tier string
					SandboxID            string `json:"sandbox_id"`
				}
			}
			if err != nil || json.Unmarshal(out.Content, &m) != nil || m.StructuredContent.Stdout != tt.want || out.IsError {
				t.Fatalf("%s, %v; want %q", out.Content, err, tt.want)
			}
			if id := m.StructuredContent.SandboxID; id == "" || ids[id] {
				t.Errorf("sandbox_id %q is empty or used before", id)
			} else {
				ids[id] = true
			}
		})
	}
	t.Run("cancel", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := b.Run(ctx, codeJob(tools["run_shell"], `{"code":"sleep 20"}`))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("tier that is not here", func(t *testing.T) {
		j := codeJob(tools["run_shell"], `{"code":"true"}`)
		j.Tier = "none"
		if _, err := b.Run(t.Context(), j); sallyport.CodeOf(err) != sallyport.Unavailable || !errors.Is(err, sallyport.ErrNotExecuted) {
			t.Errorf("got %v", err)
		}
	})
}

// leftovers finds processes and cgroups of one runtime folder.
func leftovers(run string) (found []string) {
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range procs {
		b, _ := os.ReadFile(p)
		if bytes.Contains(b, []byte(run)) {
			found = append(found, string(bytes.ReplaceAll(b, []byte{0}, []byte{' '})))
		}
	}
	runs, _ := filepath.Glob(filepath.Join(run, "*", "runs", "*"))
	return append(found, runs...)
}

// cgroupsOf lists the cgroups of the sandboxes and servers with one of the ids.
func cgroupsOf(ids []string) (found []string) {
	for _, id := range ids {
		for _, pattern := range []string{"/sys/fs/cgroup/*/sallyport/*/", "/sys/fs/cgroup/sallyport/*/"} {
			m, _ := filepath.Glob(pattern + id)
			found = append(found, m...)
		}
	}
	return found
}

// busy starts sandboxes, a session and a server that would run for long, and returns their
// cgroups' names.
func busy(t *testing.T, b *sandbox.Backend) (ids []string) {
	t.Helper()
	up := make(chan struct{}, 2)
	for range 2 {
		c := sandbox.Command{Argv: []string{"sh", "-c", "echo up; sleep 300"}, Told: func(bool, []byte) { up <- struct{}{} }}
		go b.Exec(context.Background(), c) // ends with the host
	}
	if _, err := b.Launch(t.Context(), sandbox.AsUser, sandbox.LaunchSpec{Name: "sleeper", Argv: []string{"sh", "-c", "sleep 300 & sleep 300"}}); err != nil {
		t.Fatal(err)
	}
	session := codeJob(toolNamed(t, "run_shell"), `{"session":"s","background":true,"code":"sleep 300"}`)
	if _, err := b.Run(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	<-up
	<-up
	s, _, err := b.List(t.Context())
	if err != nil || len(s) != 3 {
		t.Fatalf("control: %v, %v", s, err)
	}
	for _, r := range s {
		ids = append(ids, r.ID)
	}
	ids = append(ids, "srv-sleeper-*")
	if len(cgroupsOf(ids)) < 4 {
		t.Fatalf("control: cgroups %v", cgroupsOf(ids))
	}
	return ids
}

// A killed sandbox host leaves no process, and the next one removes the rest.
func TestKilledHostLeavesNoOrphan(t *testing.T) {
	h := newHost(t)
	cmd, b := h.apart(t)
	defer b.Close()
	ids := busy(t, b)
	if len(leftovers(h.run)) < 4 {
		t.Fatalf("control: %q", leftovers(h.run))
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if len(cgroupsOf(ids)) == 0 {
		t.Fatal("control: kill -9 left no cgroup behind")
	}
	next := h.start(t, sandbox.Options{})
	if _, _, err := next.List(t.Context()); err != nil { // it answers once it has removed the rest
		t.Fatal(err)
	}
	if left := cgroupsOf(ids); len(left) > 0 {
		t.Errorf("cgroups left: %q", left)
	}
	nobodyLeft(t, h)
	if _, err := next.Exec(t.Context(), sandbox.Command{Argv: []string{"true"}}); err != nil {
		t.Error(err)
	}
}

// nobodyLeft waits until the only process of a host's folder is its next host: a killed
// process is not gone at once.
func nobodyLeft(t *testing.T, h host) {
	t.Helper()
	await.That(t, "every process of the killed host is gone", func() bool {
		return !slices.ContainsFunc(leftovers(h.run), func(l string) bool { return !strings.Contains(l, "sallyport-sandboxd -") })
	})
}

// When the gateway's end of the socket closes, the host ends with all it runs.
func TestHostDiesWithItsGateway(t *testing.T) {
	h := newHost(t)
	b := h.start(t, sandbox.Options{})
	ids := busy(t, b)
	began := time.Now()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	t.Logf("gone after %v", time.Since(began).Round(time.Millisecond))
	if left := append(cgroupsOf(ids), leftovers(h.run)...); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if _, err := b.Exec(t.Context(), sandbox.Command{Argv: []string{"true"}}); sallyport.CodeOf(err) != sallyport.Unavailable {
		t.Errorf("after the end: %v", err)
	}
}

func TestLaunch(t *testing.T) {
	t.Parallel() // it waits most of the time
	h := newHost(t)
	b := h.start(t, sandbox.Options{})
	data := filepath.Join(filepath.Dir(h.run), "data") // a gateway's data folder
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	canary := filepath.Join(data, "canary")
	if err := os.WriteFile(canary, []byte("canary"), 0o600); err != nil {
		t.Fatal(err)
	}
	launch := func(name, script string, env ...string) sandbox.Process {
		t.Helper()
		p, err := b.Launch(t.Context(), sandbox.AsUser, sandbox.LaunchSpec{Name: name, Argv: []string{"sh", "-c", script}, Env: env})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	read := func(p sandbox.Process) string {
		b, err := io.ReadAll(p.Stdout())
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	drain := func(p sandbox.Process) { go io.Copy(io.Discard, p.Stderr()) }

	var uid int // of "one": which one depends on what else runs on this machine
	t.Run("identity and secrecy", func(t *testing.T) {
		p := launch("one", `id -u; id -G; pwd; env | grep -v ^PWD= | sort; grep NoNewPrivs /proc/self/status; awk '/Max processes/ {print $3, $4}' /proc/self/limits; cat "`+canary+`" || echo denied; touch here; ls -ld . | cut -c1-10`, "PATH=/usr/bin:/bin", "ONLY=this", "HOME=/root")
		drain(p)
		home := filepath.Join(h.state, "servers", "one")
		got := read(p)
		if _, err := fmt.Sscan(got, &uid); err != nil || uid < 64600 || uid >= 64800 {
			t.Errorf("uid %d, %v: want one of 64600 to 64799", uid, err)
		}
		want := fmt.Sprintf("%d\n%d\n", uid, uid) + home + "\nHOME=" + home + "\nONLY=this\nPATH=/usr/bin:/bin\nTMPDIR=" + home + "\nUSER=one\nNoNewPrivs:\t1\n1024 1024\ndenied\ndrwx------\n"
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
		if b, err := exec.Command("cat", canary).Output(); string(b) != "canary" {
			t.Errorf("control: root cannot read the canary: %v", err)
		}
	})
	t.Run("another name, another uid; the same name, the same", func(t *testing.T) {
		for name, may := range map[string]string{"two": "denied", "one": "yes"} {
			p := launch(name, `echo $(id -u) $(test -r `+filepath.Join(h.state, "servers", "one", "here")+` && echo yes || echo denied)`, "PATH=/usr/bin:/bin")
			drain(p)
			var id int
			var said string
			if _, err := fmt.Sscan(read(p), &id, &said); err != nil || (id == uid) != (name == "one") || said != may {
				t.Errorf("%s: uid %d, %q (%v); that of one is %d; want %q", name, id, said, err, uid, may)
			}
		}
	})
	t.Run("a conversation", func(t *testing.T) {
		p := launch("echo", `while read l; do echo "got $l"; echo "err $l" >&2; done; echo end`, "PATH=/usr/bin:/bin")
		out, errs := bufio.NewReader(p.Stdout()), bufio.NewReader(p.Stderr())
		for i := range 20 {
			fmt.Fprintf(p.Stdin(), "%d\n", i)
			line, err := out.ReadString('\n')
			eline, _ := errs.ReadString('\n')
			if want := strconv.Itoa(i) + "\n"; line != "got "+want || eline != "err "+want {
				t.Fatalf("%q, %q, %v", line, eline, err)
			}
		}
		p.Stdin().Close()
		if line, _ := out.ReadString('\n'); line != "end\n" {
			t.Errorf("after EOF: %q", line)
		}
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
	})
	t.Run("exit status", func(t *testing.T) {
		p := launch("exit", "exit 3")
		drain(p)
		if read(p); p.Wait() == nil || p.Wait().Error() != "exit status 3" {
			t.Errorf("got %v", p.Wait())
		}
	})
	t.Run("stop is patient, then not", func(t *testing.T) {
		for _, tt := range []struct{ name, script, want string }{
			{"eof", `cat >/dev/null; exit 0`, "<nil>"},
			{"term", `trap 'exit 7' TERM; while :; do sleep 0.1; done`, "exit status 7"},
			{"kill", `trap '' TERM; setsid sh -c 'trap "" TERM; sleep 300' & while :; do sleep 0.1; done`, "ended by SIGKILL"},
		} {
			got := ""
			await.Longer(2*time.Second, func(grace time.Duration) bool {
				p := launch(tt.name, "echo ready; "+tt.script, "PATH=/usr/bin:/bin")
				drain(p)
				if line, err := bufio.NewReader(p.Stdout()).ReadString('\n'); line != "ready\n" {
					t.Fatalf("%s: %q, %v", tt.name, line, err)
				}
				if err := p.Stop(grace); err != nil {
					t.Errorf("%s: %v", tt.name, err)
				}
				got = fmt.Sprint(p.Wait())
				return got == tt.want
			})
			if got != tt.want {
				t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
			}
			if left := cgroupsOf([]string{"srv-" + tt.name + "-*"}); len(left) > 0 {
				t.Errorf("%s left %q", tt.name, left)
			}
		}
	})
	t.Run("refusals", func(t *testing.T) {
		for _, spec := range []sandbox.LaunchSpec{
			{Name: "../x", Argv: []string{"sh"}}, {Name: "", Argv: []string{"sh"}}, {Name: "x"}, {Name: "x", Argv: []string{"no-such-program"}},
			{Name: "x", Argv: []string{"sh"}, Env: []string{"novalue"}}, {Name: "x", Argv: []string{"./relative"}},
		} {
			if _, err := b.Launch(t.Context(), sandbox.AsUser, spec); !errors.Is(err, sallyport.ErrNotExecuted) {
				t.Errorf("%+v: %v", spec, err)
			}
		}
	})
}

// Without root the host refuses; it never runs anything more weakly.
func TestUnprivilegedHostRefuses(t *testing.T) {
	h := newHost(t)
	cmd := exec.Command("/usr/bin/env", append([]string{h.program, "-socket", filepath.Join(t.TempDir(), "s")}, h.args()...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 5 || !strings.Contains(string(out), "needs root") || !strings.Contains(string(out), "hint:") {
		t.Errorf("%v: %s", err, out)
	}
}
