package sandbox_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/sandbox"
	"sallyport.dev/sallyport/test/await"
)

// Where something that holds a sandbox is missing, a run is refused in words: it
// never runs with less. The control is the same host with nothing missing.
func TestDrills_MissingMeansRefused(t *testing.T) {
	readOnlyGroups := `for m in $(awk '$5 ~ "^/sys/fs/cgroup" {print $5}' /proc/self/mountinfo); do mount -o remount,bind,ro $m; done; exec "$@"`
	for _, tt := range []struct {
		name   string
		around []string // program that starts the host with less
		more   []string
		reach  []string
		code   sallyport.Code
		says   string
	}{
		{name: "nothing missing", around: []string{"/usr/bin/env"}},
		{name: "no CAP_SETUID", around: []string{"/usr/bin/setpriv", "--bounding-set=-setuid"}, code: sallyport.Unavailable},
		{name: "control groups cannot be written", around: []string{"/usr/bin/unshare", "-m", "sh", "-c", readOnlyGroups, "sh"}, code: sallyport.Unavailable},
		{name: "no control group is mounted", around: []string{"/usr/bin/unshare", "-m", "sh", "-c", `umount -l /sys/fs/cgroup; exec "$@"`, "sh"}, code: sallyport.Unavailable},
		{name: "a private range that cannot be read", around: []string{"/usr/bin/env"}, more: []string{"-egress-private", "not-a-range"}, code: sallyport.Unavailable},
		{name: "the broker cannot start", around: []string{"/usr/bin/env"}, more: []string{"-first-uid", "4294967000"}, reach: []string{"a.test:80"}, code: sallyport.Unavailable, says: "could not be made"},
		{name: "rules that cannot be read", around: []string{"/usr/bin/env"}, reach: []string{"a.test"}, code: sallyport.Invalid, says: "a.test"},
		{name: "rules that mean everything", around: []string{"/usr/bin/env"}, reach: []string{"*:80"}, code: sallyport.Invalid, says: "not a host name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			h.more = tt.more
			b, err := sandbox.Start(tt.around[0], append(append(tt.around[1:], h.program), h.args()...), sandbox.Options{})
			var out sandbox.Outcome
			if err == nil {
				defer b.Close()
				out, err = b.Exec(t.Context(), sandbox.Command{Argv: []string{"echo", "it ran"}, Reach: tt.reach})
			}
			if tt.code == "" {
				if err != nil || string(out.Stdout) != "it ran\n" {
					t.Errorf("control: %q, %v", out.Stdout, err)
				}
				return
			}
			e, ok := errors.AsType[*sallyport.Error](err)
			if !ok || e.Code != tt.code || e.Message == "" || e.Hint == "" || !strings.Contains(e.Message, tt.says) {
				t.Errorf("%v; want %s with a hint, that says %q", err, tt.code, tt.says)
			}
			if len(out.Stdout) > 0 {
				t.Errorf("it ran: %q", out.Stdout)
			}
			t.Log(err)
		})
	}
}

// A broker that is killed under a run takes the way out with it: what is asked
// for then is refused in words, and nothing arrives.
func TestDrills_BrokerKilledDuringARun(t *testing.T) {
	var hits atomic.Int64
	server := serveAt(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { hits.Add(1); fmt.Fprint(w, "hello") }))
	a := server.Listener.Addr().String()
	h := newHost(t)
	h.more = []string{"-egress-private", "127.0.0.0/8"}
	b := h.start(t, sandbox.Options{})
	ended := make(chan sandbox.Outcome, 1)
	go func() {
		out, err := b.Exec(t.Context(), sandbox.Command{Reach: []string{a}, Argv: []string{"python3", "-c", `
import time, urllib.error, urllib.request
def ask():
    try: return urllib.request.urlopen("http://` + a + `/", timeout=60).read().decode()
    except urllib.error.HTTPError as e: return "%d %s" % (e.code, e.headers["Sallyport-Egress"])
    except Exception as e: return "ERR %r" % e
print(ask(), flush=True)
last = ""
for _ in range(600):
    time.sleep(0.1)
    last = ask()
    if last != "hello": break
print(last)
print(ask())
`}})
		if err != nil {
			t.Error(err)
		}
		ended <- out
	}()
	await.That(t, "control: something arrived, and the next is asked for", func() bool { return hits.Load() > 1 })
	if err := unix.Kill(brokerPID(t, h), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	out := <-ended
	lines := strings.Split(strings.TrimSpace(string(out.Stdout)), "\n")
	if len(lines) != 3 || lines[0] != "hello" || lines[1] == "hello" || lines[2] != "503 denied; reason=broker_gone" {
		t.Errorf("stdout %q, stderr %q", out.Stdout, out.Stderr)
	}
	before := hits.Load()
	if time.Sleep(200 * time.Millisecond); hits.Load() != before {
		t.Error("something arrived after the broker's end")
	}
}

// A broker that is killed while sandboxes wait leads none of them anywhere. One
// that is taken later has a new broker; where that cannot start, nothing runs.
func TestDrills_BrokerKilledWhileSandboxesWait(t *testing.T) {
	var hits atomic.Int64
	server := serveAt(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { hits.Add(1); fmt.Fprint(w, "hello") }))
	a := server.Listener.Addr().String()
	h := newHost(t)
	programs := linked(t, filepath.Dir(h.program))
	h.more = []string{"-egress-private", "127.0.0.0/8", "-programs", programs, "-warm", "1"}
	b := h.start(t, sandbox.Options{})
	ask := func() (sandbox.Outcome, error) {
		return b.Exec(t.Context(), sandbox.Command{Reach: []string{a}, Argv: []string{"python3", "main.py"}, Files: map[string][]byte{
			"main.py": []byte(`import urllib.request; print(urllib.request.urlopen("http://` + a + `/").read())`),
		}})
	}
	waits := func(last string) func() bool {
		return func() bool { ids := sandboxesIn(h.run); return len(ids) == 1 && ids[0] != last }
	}
	out, err := ask()
	pause := 500 * time.Millisecond
	for deadline := time.Now().Add(5 * time.Minute); err == nil; out, err = ask() {
		if !strings.Contains(string(out.Stdout), "hello") {
			t.Fatalf("%q %q", out.Stdout, out.Stderr)
		}
		if out.Receipt.Warm {
			break // the broker was killed while this one waited
		}
		if time.Now().After(deadline) {
			t.Fatal("control: none had waited")
		}
		await.That(t, "one that waits", waits(out.SandboxID))
		time.Sleep(pause) // it is ready some time after its folder is there
		pause *= 2
		killBroker(t, h)
	}
	if err != nil {
		t.Fatal(err)
	}
	await.That(t, "one that waits", waits(out.SandboxID))
	time.Sleep(time.Second) // so that it is ready; were it not, a cold one would be refused
	if err := os.Rename(filepath.Join(programs, "sallyport-init"), filepath.Join(programs, "away")); err != nil {
		t.Fatal(err)
	}
	killBroker(t, h)
	before := hits.Load()
	if out, err := ask(); sallyport.CodeOf(err) != sallyport.Unavailable || !errors.Is(err, sallyport.ErrNotExecuted) || len(out.Stdout) > 0 {
		t.Errorf("where no broker can start: %q, %v", out.Stdout, err)
	}
	if hits.Load() != before {
		t.Error("something arrived without a broker")
	}
	if err := os.Rename(filepath.Join(programs, "away"), filepath.Join(programs, "sallyport-init")); err != nil {
		t.Fatal(err)
	}
	if out, err := ask(); err != nil || !strings.Contains(string(out.Stdout), "hello") {
		t.Errorf("control: %q, %v", out.Stdout, err)
	}
}

// linked is a folder of its own with the same programs.
func linked(t *testing.T, dir string) string {
	t.Helper()
	own := t.TempDir()
	for _, p := range []string{"sallyport-runsc", "sallyport-init"} {
		if err := os.Link(filepath.Join(dir, p), filepath.Join(own, p)); err != nil {
			t.Fatal(err)
		}
	}
	return own
}

// killBroker kills the broker of this test's sandbox host, and waits until it is
// gone: while one of its threads is left, its socket may still seem to take a grant.
func killBroker(t *testing.T, h host) {
	t.Helper()
	pid := brokerPID(t, h)
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the broker's end", func() bool {
		stat, gone := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		return gone != nil || strings.Contains(string(stat), ") Z ") && len(threads) <= 1
	})
}

// Without CAP_SYS_ADMIN gVisor makes a sandbox by means of a user namespace, as
// it does with it: the living processes are held just the same.
func TestDrills_NoSysAdminIsNoWeaker(t *testing.T) {
	h := newHost(t)
	b, err := sandbox.Start("/usr/bin/setpriv", append([]string{"--bounding-set=-sys_admin", h.program}, h.args()...), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ids := busy(t, b)
	seen := 0
	all, _ := filepath.Glob("/proc/[0-9]*/cgroup")
	for _, f := range all {
		proc := filepath.Dir(f)
		group, _ := os.ReadFile(f)
		comm, _ := os.ReadFile(proc + "/comm")
		if !slices.ContainsFunc(ids, func(id string) bool { return strings.Contains(string(group), id) }) || strings.HasPrefix(string(comm), "sallyport-runsc") {
			continue
		}
		status, err := os.ReadFile(proc + "/status")
		if err != nil {
			continue // it has ended
		}
		seen++
		for _, want := range []string{"Uid:\t65534\t65534\t65534\t65534\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n", "CapEff:\t0000000000000000\n", "CapBnd:\t0000000000000000\n"} {
			if !strings.Contains(string(status), want) {
				t.Errorf("%s %s lacks %q", proc, comm, want)
			}
		}
		for _, ns := range []string{"net", "mnt", "pid", "ipc", "uts", "user"} {
			its, _ := os.Readlink(proc + "/ns/" + ns)
			own, _ := os.Readlink("/proc/self/ns/" + ns)
			if its == own || its == "" {
				t.Errorf("%s %s is in the host's %s namespace", proc, comm, ns)
			}
		}
	}
	if seen < 2 {
		t.Errorf("only %d processes of %q were seen", seen, ids)
	}
}
