package gvisor_test

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/tier"
)

// A ledger is an echo that remembers what it was to open, and may refuse.
type ledger struct {
	echo
	mu     sync.Mutex
	opened []opening
	refuse error
}

type opening struct {
	id     string
	way    tier.Way
	ca     string
	within time.Duration
}

func newLedger() *ledger { return &ledger{echo: echo{make(chan string, 1000)}} }

// Authority implements tier.Broker.
func (l *ledger) Authority(time.Duration) (tier.Authority, error) {
	return tier.Authority{Cert: []byte("a certificate\n"), Key: []byte("its key")}, nil
}

// Open implements tier.Broker.
func (l *ledger) Open(id string, w tier.Way, ca tier.Authority, within time.Duration, s *net.UnixListener) (func() tier.Passed, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse != nil {
		return nil, errors.Join(l.refuse, s.Close())
	}
	l.opened = append(l.opened, opening{id, w, string(ca.Key), within})
	return l.echo.Open(id, w, ca, within, s)
}

func ledgerHost(t *testing.T, warm int) (*ledger, *gvisor.Host) {
	t.Helper()
	l := newLedger()
	return l, gvisortest.Open(t, func(c *gvisor.Config) { c.Warm, c.Broker = warm, l })
}

const canaryAndFetch = `
import glob, os, sys, urllib.request
places = ["/tmp/canary", "/dev/shm/canary", os.path.expanduser("~/canary"), "/run/canary"]
found = [p for p in places if os.path.exists(p)] + [p for p in glob.glob("/proc/[0-9]*/cmdline") if b"sleep" in open(p, "rb").read()]
for p in places:
    open(p, "w").write("x")
if os.fork() == 0:
    os.setsid(); os.execvp("sleep", ["sleep", "1000"])
print(found, urllib.request.urlopen("http://any.test/").read().decode())`

// FO-47: a sandbox that waited with a way out is used once as well. The broker is
// asked for it when it is taken and not before, with what that call may reach and
// for as long as that call may take.
func TestFO47_WarmWayOfThisCall(t *testing.T) {
	l, h := ledgerHost(t, 2)
	r := script("python3", "main.py", canaryAndFetch)
	r.Way.Reach = []string{"first.test:80"}
	runWarm(t, h, r)
	ids, warm := map[string]bool{}, 0
	for i := range 6 {
		at := fmt.Sprintf("call-%d.test:80", i)
		r.Way.Reach, r.Limits.Timeout = []string{at}, time.Duration(200+i)*time.Second
		l.mu.Lock()
		before := len(l.opened)
		l.mu.Unlock()
		res := run(t, h, r)
		if want := "[] GET http://any.test/ HTTP/1.1 | " + at + "\n"; string(res.Stdout) != want || ids[res.ID] {
			t.Errorf("%s: %q, want %q; %s", res.ID, res.Stdout, want, res.Stderr)
		}
		l.mu.Lock()
		if now := l.opened[before:]; len(now) != 1 || now[0].id != res.ID || !slices.Equal(now[0].way.Reach, r.Way.Reach) || now[0].within < r.Limits.Timeout || now[0].within > r.Limits.Timeout+10*time.Minute {
			t.Errorf("the broker was asked for %+v; the call was %s", now, res.ID)
		}
		l.mu.Unlock()
		ids[res.ID] = true
		if res.Receipt.Warm {
			warm++
		}
		for deadline := time.Now().Add(5 * time.Minute); h.Waiting() == 0 && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond)
		}
	}
	if warm < 4 {
		t.Errorf("control: only %d of 6 had waited", warm)
	}
	// What waited without a way out is never given one, and the other way round.
	for range 2 {
		r.Way.Reach = nil
		if res := run(t, h, r); !strings.Contains(string(res.Stderr), "403") {
			t.Errorf("with nothing to reach: %q %q", res.Stdout, res.Stderr)
		}
		r.Way.Reach = []string{"again.test:80"}
		if res := run(t, h, r); !strings.HasSuffix(string(res.Stdout), "again.test:80\n") {
			t.Errorf("with something to reach: %q %q", res.Stdout, res.Stderr)
		}
	}
}

// Where the broker does not open the way of a sandbox that waited, nothing runs
// in it, and it is gone.
func TestWarmWayFailsClosed(t *testing.T) {
	l, h := ledgerHost(t, 1)
	r := script("python3", "main.py", "print('it ran')")
	r.Way.Reach = []string{"a.test:80"}
	runWarm(t, h, r)
	l.mu.Lock()
	l.refuse = errors.New("the broker is gone")
	l.mu.Unlock()
	var ran bool
	q := fill(r)
	q.Told = func(bool, []byte) { ran = true }
	res, err := h.Run(t.Context(), q)
	if sallyport.CodeOf(err) != sallyport.Unavailable || !errors.Is(err, sallyport.ErrNotExecuted) || ran || len(res.Stdout) > 0 {
		t.Errorf("it ran: %v, %q, %v", ran, res.Stdout, err)
	}
	if list := h.List(); len(list) > 0 {
		t.Errorf("left: %+v", list)
	}
	l.mu.Lock()
	l.refuse = nil
	l.mu.Unlock()
	if res := runWarm(t, h, r); string(res.Stdout) != "it ran\n" {
		t.Errorf("control: %q", res.Stdout)
	}
}

// A program with a way out cannot tell either whether its sandbox had waited:
// variables, certificates, files and mounts are the same.
func TestWarmWayIsLikeCold(t *testing.T) {
	_, cold := ledgerHost(t, 0)
	_, warm := ledgerHost(t, 1)
	look := "import glob, os\nprint(sorted(os.environ.items()), os.listdir('/srv'), os.listdir('/run'), open('/proc/mounts').read())\nfor p in glob.glob('/run/*.pem'): print(open(p).read()[-20:], os.stat(p).st_mode, os.stat(p).st_uid)"
	for name, r := range map[string]tier.Request{
		"python": script("python3", "main.py", look),
		"none":   {Argv: []string{"python3", "-c", look}},
		"bash":   script("bash", "main.sh", "env | sort; tail -1 /run/*.pem; ls -lA --time-style=+ /srv /run; cat /proc/mounts"),
		"node":   script("node", "main.js", "const fs = require('fs'); console.log(Object.entries(process.env).sort(), fs.readdirSync('/run').map((p) => fs.statSync('/run/' + p).isFile() ? fs.readFileSync('/run/' + p, 'utf8').slice(-20) : p))"),
	} {
		for _, inject := range [][]tier.Injection{nil, {{Name: "s", Host: "a.test:443", Header: "X-Key", Value: []byte("a secret value")}}} {
			r := r
			r.Way = tier.Way{Reach: []string{"a.test:443"}, Inject: inject}
			want, got := run(t, cold, r), runWarm(t, warm, r)
			out := strings.ReplaceAll(string(got.Stdout), got.ID, want.ID)
			if out != string(want.Stdout) || string(got.Stderr) != string(want.Stderr) || got.ExitCode != want.ExitCode {
				t.Errorf("%s, %d secrets:\nwarm %q %q\ncold %q %q", name, len(inject), out, got.Stderr, want.Stdout, want.Stderr)
			}
			if trusts := strings.Contains(out, "a certificate"); trusts != (inject != nil) {
				t.Errorf("%s, %d secrets: trusts its authority: %v", name, len(inject), trusts)
			}
			if strings.Contains(out, "its key") || strings.Contains(out, "a secret value") {
				t.Errorf("%s: a secret is inside: %q", name, out)
			}
		}
	}
}
