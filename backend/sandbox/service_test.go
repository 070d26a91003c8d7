package sandbox_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/sandbox"
	"sallyport.dev/sallyport/test/await"
)

// A service is a server in a sandbox, and what it says.
type service struct {
	sandbox.Process
	t   *testing.T
	out *bufio.Reader
}

func launchService(t *testing.T, b *sandbox.Backend, name string, c sallyport.Confinement, argv ...string) service {
	t.Helper()
	p, err := b.Launch(t.Context(), sandbox.InSandbox, sandbox.LaunchSpec{Name: name, Argv: argv, Env: []string{"HOME=/of/the/gateway", "GW=1"}, Own: []string{"OWN=1"}, Confinement: c})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, p.Stderr()) }()
	t.Cleanup(func() { _ = p.Stop(time.Second) })
	return service{p, t, bufio.NewReader(p.Stdout())}
}

func (s service) expect(want string) {
	s.t.Helper()
	if got, err := s.out.ReadString('\n'); strings.TrimSuffix(got, "\n") != want {
		s.t.Fatalf("%q %v, want %q", got, err, want)
	}
}

func TestServiceEnds(t *testing.T) {
	t.Parallel() // it waits most of the time
	b := newHost(t).start(t, sandbox.Options{})
	t.Run("what it did not read", func(t *testing.T) {
		s := launchService(t, b, "a", sallyport.Confinement{}, "bash", "-c", `echo "$OWN$GW $HOME"; head -c 6 >/dev/null; echo read; exit 3`)
		s.expect("1 /home/agent")
		if _, err := s.Stdin().Write([]byte("seen\nunseen\n")); err != nil {
			t.Fatal(err)
		}
		s.expect("read")
		if err := s.Wait(); err == nil || !strings.Contains(err.Error(), "exit status 3") {
			t.Errorf("%v", err)
		}
		if n := s.Unread(); n != 6 {
			t.Errorf("%d bytes unread, want 6", n)
		}
	})
	t.Run("at the end of its input", func(t *testing.T) {
		s := launchService(t, b, "b", sallyport.Confinement{}, "bash", "-c", "echo up; cat; exit 0")
		s.expect("up")
		if err := s.Stop(await.Patience); err != nil || s.Wait() != nil {
			t.Errorf("%v %v", err, s.Wait())
		}
	})
	t.Run("when it is asked to", func(t *testing.T) {
		how := ""
		await.Longer(2*time.Second, func(grace time.Duration) bool {
			s := launchService(t, b, "c", sallyport.Confinement{}, "bash", "-c", "trap 'exit 9' TERM; echo up; while :; do sleep 0.1; done")
			s.expect("up")
			how = fmt.Sprint(s.Stop(grace), s.Wait())
			return strings.Contains(how, "exit status 9")
		})
		if !strings.Contains(how, "exit status 9") {
			t.Error(how)
		}
	})
	t.Run("by force", func(t *testing.T) {
		s := launchService(t, b, "d", sallyport.Confinement{}, "bash", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done")
		s.expect("up")
		if err := s.Stop(2 * time.Second); err != nil || s.Wait() == nil || !strings.Contains(s.Wait().Error(), "SIGKILL") {
			t.Errorf("%v %v", err, s.Wait())
		}
	})
	t.Run("out of memory", func(t *testing.T) {
		s := launchService(t, b, "e", sallyport.Confinement{Limits: sallyport.Limits{Memory: 64 << 20}}, "python3", "-c", "print('up', flush=True); b = b'x' * (512 << 20)")
		s.expect("up")
		if err := s.Wait(); err == nil || !strings.Contains(err.Error(), "out of memory") {
			t.Errorf("%v", err)
		}
	})
	if sandboxes, servers, err := b.List(t.Context()); err != nil || len(sandboxes)+len(servers) != 0 {
		t.Errorf("left: %v %v %v", sandboxes, servers, err)
	}
}

// A secret reaches the host that it is for, and is nowhere in the sandbox.
func TestServiceInjectsSecrets(t *testing.T) {
	const value = "s3cr3t-of-a-server"
	var got atomic.Value
	server := serveAt(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got.Store(r.Header.Get("Authorization")) }))
	addr := server.Listener.Addr().String()
	h := newHost(t)
	h.more = []string{"-egress-private", "127.0.0.0/8"}
	b := h.start(t, sandbox.Options{})
	s := launchService(t, b, "caller", sallyport.Confinement{
		Egress: []string{addr},
		Inject: []sallyport.Injected{{SecretGrant: sallyport.SecretGrant{Name: "api", Header: "Authorization", Prefix: "Bearer ", Host: addr}, Value: []byte(value)}},
	}, "python3", "-c", `
import os, urllib.request
print(urllib.request.urlopen("http://`+addr+`/").status, flush=True)
print("`+value[:6]+`" + "`+value[6:]+`" in str(os.environ) + open("/proc/self/cmdline").read(), flush=True)
input()`)
	s.expect("200")
	s.expect("False")
	if got.Load() != "Bearer "+value {
		t.Errorf("the host was sent %v", got.Load())
	}
}

// A killed host leaves no process and no mount of a service, and the next one
// removes its cgroup, its folder and its socket.
func TestKilledHostLeavesNoService(t *testing.T) {
	h := newHost(t)
	h.more = []string{"-egress-private", "127.0.0.0/8"}
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "theirs")
	cmd := exec.CommandContext(context.Background(), h.program, h.args()...)
	cmd.ExtraFiles, cmd.Stderr = []*os.File{theirs}, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	b, err := sandbox.Connect(os.NewFile(uintptr(fds[0]), "ours"), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	root := filepath.Join(filepath.Dir(h.run), "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	s := launchService(t, b, "left", sallyport.Confinement{Egress: []string{"127.0.0.1:9"}, Roots: []sallyport.Root{{Path: root}}}, "bash", "-c", "echo up; sleep 300 & sleep 300")
	s.expect("up")
	list, _, err := b.List(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("control: %v %v", list, err)
	}
	ids := []string{list[0].ID}
	if len(running(h.run)) < 3 || len(cgroupsOf(ids)) == 0 {
		t.Fatalf("control: %q %q", running(h.run), cgroupsOf(ids))
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	await.That(t, "every process is gone", func() bool { return len(running(h.run)) == 0 })
	if m := mounts(t, h.run); len(m) > 0 {
		t.Errorf("mounts left: %q", m)
	}
	next := h.start(t, sandbox.Options{})
	if _, err := next.Exec(t.Context(), sandbox.Command{Argv: []string{"true"}}); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(h.run, "*", "runs", ids[0], "*")); len(left)+len(cgroupsOf(ids)) > 0 {
		t.Errorf("left: %q %q", left, cgroupsOf(ids))
	}
	if m := mounts(t, h.state); len(m) > 0 {
		t.Errorf("mounts left: %q", m)
	}
	if _, err := os.Stat(root); err != nil {
		t.Errorf("the operator's own folder: %v", err)
	}
}

// A host that loses its gateway ends its services too, before it is gone.
func TestServiceEndsWithItsGateway(t *testing.T) {
	h := newHost(t)
	b := h.start(t, sandbox.Options{})
	s := launchService(t, b, "last", sallyport.Confinement{}, "bash", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done")
	s.expect("up")
	list, _, err := b.List(t.Context())
	if err != nil || len(list) != 1 || list[0].CallID != "server last" {
		t.Fatalf("control: %v %v", list, err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if left := append(append(cgroupsOf([]string{list[0].ID}), leftovers(h.run)...), mounts(t, h.state)...); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// running finds the processes with a folder on their command line.
func running(run string) (found []string) {
	for _, l := range leftovers(run) {
		if !strings.HasPrefix(l, run) && !strings.Contains(l, "sallyport-sandboxd") {
			found = append(found, l)
		}
	}
	return found
}

// BenchmarkServiceStart measures from the start of a server in a sandbox to its
// first word, beside the same program as a user of its own.
func BenchmarkServiceStart(b *testing.B) {
	host := newHost(b).start(b, sandbox.Options{})
	for name, how := range map[string]sandbox.Isolation{"gvisor": sandbox.InSandbox, "uid": sandbox.AsUser} {
		b.Run(name, func(b *testing.B) {
			for i := range b.N {
				p, err := host.Launch(b.Context(), how, sandbox.LaunchSpec{Name: fmt.Sprintf("%s%d", name, i%4), Argv: []string{"node", "-e", "console.log('up'); process.stdin.resume()"}, Env: []string{"PATH=/usr/bin:/bin"}})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := bufio.NewReader(p.Stdout()).ReadString('\n'); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				_ = p.Stop(time.Second)
				b.StartTimer()
			}
		})
	}
}

// What a server reached, or was refused, is heard while it runs, and the rest at
// its end, whether it may reach something or nothing.
func TestServiceTellsWhatItReached(t *testing.T) {
	t.Parallel() // it waits most of the time
	server := serveAt(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	addr := server.Listener.Addr().String()
	h := newHost(t)
	h.more = []string{"-egress-private", "127.0.0.0/8"}
	const program = `
import sys, urllib.request
def ask(url):
    try:
        print(urllib.request.urlopen(url, timeout=60).status, flush=True)
    except urllib.error.HTTPError as e:
        print(e.code, flush=True)
for url in sys.argv[1:]:
    ask(url)
input()
ask("http://later.test/")
`
	for name, tt := range map[string]struct {
		reach []string
		want  []sallyport.Connection
	}{
		"some":    {[]string{addr}, []sallyport.Connection{{Target: addr, Allowed: true, Count: 2}, {Target: "evil.test:80", Reason: "not_listed", Count: 1}}},
		"nothing": {nil, []sallyport.Connection{{Target: addr, Reason: "not_listed", Count: 2}, {Target: "evil.test:80", Reason: "not_listed", Count: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			heard := make(chan sandbox.News, 100)
			b := h.start(t, sandbox.Options{News: func(n sandbox.News) { heard <- n }})
			s := launchService(t, b, "asks-"+name, sallyport.Confinement{Egress: tt.reach}, "python3", "-u", "-c", program, "http://"+addr+"/", "http://"+addr+"/", "http://evil.test/")
			got := map[sallyport.Connection]int{}
			hear := func(until func() bool) {
				t.Helper()
				for late := time.After(3 * time.Minute); !until(); {
					select {
					case n := <-heard:
						for _, c := range n.Connections {
							count := c.Count
							c.Count, c.Bytes = 0, 0
							got[c] += count
						}
					case <-late:
						t.Fatalf("heard only %v", got)
					}
				}
			}
			hear(func() bool {
				for _, c := range tt.want {
					count := c.Count
					c.Count = 0
					if got[c] != count {
						return false
					}
				}
				return true
			})
			if len(got) != len(tt.want) {
				t.Errorf("heard %v", got)
			}
			if _, err := s.Stdin().Write([]byte("\n")); err != nil {
				t.Fatal(err)
			}
			hear(func() bool { return len(got) == len(tt.want)+1 })
		})
	}
}
