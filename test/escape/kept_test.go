package escape_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/egress"
	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/session"
	"sallyport.dev/sallyport/tier/stay"
)

// Sandboxes that stay: of sessions, of such as were frozen and taken up again, and
// of third-party servers.

const serverUID = 64778

func keep(t *testing.T, h tier.Tier, rest time.Duration) *session.Sessions {
	t.Helper()
	hosts := map[string]stay.Host{} // of one tier, whichever a call names
	for _, name := range sallyport.Tiers() {
		hosts[name] = h.(stay.Host)
	}
	x := session.Open(session.Config{Hosts: hosts, Max: 4, PerOwner: 4, Idle: 10 * time.Minute, Life: time.Hour, Rest: rest, Dir: t.TempDir()})
	t.Cleanup(x.Close)
	return x
}

func inSession(name, language, code string, way tier.Way, files ...tier.File) session.Call {
	l := sallyport.DefaultLimits()
	l.Timeout = 4 * time.Minute
	return session.Call{
		Tier: sallyport.TierGVisor, Key: session.Key{Owner: "attacker", Name: name}, Terms: session.Terms{"profile="}, Language: language, Code: []byte(code),
		Request: tier.Request{Image: "default", Limits: l, Way: way, Files: files},
	}
}

func runIn(t *testing.T, x *session.Sessions, c session.Call) session.Result {
	t.Helper()
	res, err := x.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// rest waits until a session is frozen: its sandbox is gone then.
func rest(t *testing.T, x *session.Sessions, name string) {
	t.Helper()
	for deadline := time.Now().Add(4 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		all := x.List("attacker")
		if i := slices.IndexFunc(all, func(i session.Info) bool { return i.Name == name }); i >= 0 && all[i].Frozen {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("it does not rest: %+v", all)
		}
	}
}

// resumed runs a probe in a session that was frozen and taken up again.
func (b bench) resumed(t *testing.T, h *gvisor.Host, script string, args ...string) []trial {
	t.Helper()
	x := keep(t, h, 300*time.Millisecond)
	runIn(t, x, inSession("s", "shell", "chmod +x probe", tier.Way{}, b.file, tier.File{Path: "run.sh", Content: []byte(script)}))
	rest(t, x, "s")
	res := runIn(t, x, inSession("s", "shell", "bash run.sh", tier.Way{}, tier.File{Path: "run.sh", Content: []byte(script)}))
	if res.New {
		t.Fatal("it is another session")
	}
	return split(t, args, string(res.Stdout), string(res.Stderr), "resumed session")
}

// asServer runs a probe as a third-party server.
func (b bench) asServer(t *testing.T, h *gvisor.Host, script string, args ...string) []trial {
	t.Helper()
	home := t.TempDir()
	for name, content := range map[string][]byte{"probe": b.file.Content, "run.sh": []byte(script)} {
		if err := os.WriteFile(filepath.Join(home, name), content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(home, serverUID, serverUID); err != nil {
		t.Fatal(err)
	}
	out, said, err := serve(t, h, tier.Way{}, home, "bash", "run.sh")
	if err != nil {
		t.Fatal(err)
	}
	return split(t, args, out, said, "server")
}

// serve runs a program to its end in a server's sandbox.
func serve(t *testing.T, h *gvisor.Host, way tier.Way, home string, argv ...string) (out, said string, err error) {
	t.Helper()
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, _ := os.Pipe()
	errR, errW, _ := os.Pipe()
	i, err := h.Serve(t.Context(), gvisor.Service{
		Request: tier.Request{Image: "default", Argv: argv, Limits: sallyport.DefaultLimits(), Way: way},
		UID:     serverUID, Folders: []gvisor.Folder{{Inside: tier.WorkDir, Path: home, Writable: true}},
		Stdin: inR, Stdout: outW, Stderr: errW,
	})
	for _, f := range []*os.File{inR, outW, errW} {
		f.Close()
	}
	defer inW.Close()
	if err != nil {
		return "", "", err
	}
	late := time.AfterFunc(4*time.Minute, i.Kill)
	defer late.Stop()
	errs := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(errR)
		errs <- b
	}()
	b, err := io.ReadAll(outR)
	if e := i.Exit(); e.Err != nil {
		t.Error(e.Err)
	}
	return string(b), string(<-errs), err
}

// The same attempts as from other sandboxes, from those that stay: with the list
// that they have, and nothing else, before and after a rest.
func TestTO52_EgressOfKeptSandboxes(t *testing.T) {
	if !inWorld(t) {
		return
	}
	w, b, _, _ := openWorld(t, onGVisor)
	_, sockets := canarySockets(t, b.tool)
	x := keep(t, b.host.(*gvisor.Host), 300*time.Millisecond)
	args := "import sys\nsys.argv = ['x', 'good,names,metadata,others', '" + sockets + "']\n"
	before := counters(t)
	for _, policy := range []string{"deny all", "allow-list"} {
		way, allowed := tier.Way{Reach: policies[policy]}, []string{allowedAddr}
		if policy == "deny all" {
			allowed = nil
		}
		check := func(who, out, said string) {
			t.Helper()
			got := table(t, out, said)
			if policy == "allow-list" && (!strings.Contains(got["good http"], "canary") || !strings.Contains(got["good https"], "canary")) {
				t.Errorf("control: %s: %q, %q", who, got["good http"], got["good https"])
			}
			reached(t, policy+", "+who, w, got, allowed...)
		}
		runIn(t, x, inSession(policy[:4], "python", "x = 1", way))
		rest(t, x, policy[:4])
		res := runIn(t, x, inSession(policy[:4], "python", args+bypass, way))
		if res.New {
			t.Errorf("%s: it is another session", policy)
		}
		check("resumed session", string(res.Stdout), string(res.Stderr))
		home := t.TempDir()
		if err := os.WriteFile(filepath.Join(home, "run.py"), []byte(args+bypass), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(home, serverUID, serverUID); err != nil {
			t.Fatal(err)
		}
		out, said, err := serve(t, b.host.(*gvisor.Host), way, home, "python3", "run.py")
		if err != nil {
			t.Fatal(err)
		}
		check("server", out, said)
	}
	if after := counters(t); after != before {
		t.Errorf("the namespace has sent datagrams:\n%s\n%s", before, after)
	}
}

// A grant is of one call: what a session opened under it is shut when the call is
// over, also where the session rests in between, and a later call with another
// list is refused. Programs that go on in the background have none.
func TestTO52_GrantsAreNotStale(t *testing.T) {
	for _, a := range arenas {
		if a.asked() && !a.kernel {
			t.Run(a.name, func(t *testing.T) {
				if inWorld(t) {
					grantsAreNotStale(t, a)
				}
			})
		}
	}
}

func grantsAreNotStale(t *testing.T, a arena) {
	w, b, _, _ := openWorld(t, a)
	between, over := stale(t, w, b.host, 2*time.Second)
	if len(between) > 0 || strings.Contains(over, "200") {
		t.Errorf("between calls %q were reached; over a connection of an earlier call: %q", between, over)
	}
	// The control: where nobody shuts a grant, both lead out.
	between, over = stale(t, w, a.open(t, 0, lasting{realBroker{&egress.Broker{Resolver: w}}}), time.Minute)
	if len(between) == 0 || !strings.Contains(over, "200") {
		t.Errorf("control: between calls %q were reached; over a connection of an earlier call: %q", between, over)
	}
}

// A lasting broker does not shut what it opened.
type lasting struct{ realBroker }

// Open implements tier.Broker.
func (b lasting) Open(id string, w tier.Way, ca tier.Authority, within time.Duration, l *net.UnixListener) (func() tier.Passed, error) {
	_, err := b.realBroker.Open(id, w, ca, within, l)
	return func() tier.Passed { return tier.Passed{} }, err
}

const keeps = `
import http.client, socket, ssl, threading, time
def request(s):
    s.sendall(b"GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n")
    r = http.client.HTTPResponse(s)
    r.begin()
    r.read()
    return "HTTP/1.1 %d" % r.status
def fresh():
    s = socket.create_connection(("127.0.0.1", 3128), 6)
    s.settimeout(6)
    return s
def tunnel():
    s = fresh()
    s.sendall(b"CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n")
    said = b""
    while not said.endswith(b"\r\n\r\n"):
        said += s.recv(1)
    return ssl._create_unverified_context().wrap_socket(s, server_hostname="allowed.test")
def attempt(s):
    try:
        return request(s or fresh())
    except (OSError, http.client.HTTPException) as e:
        return "ERR %s" % e
tried = []
def hammer():
    while True:
        if not calling:
            tried.append(attempt(None))
        time.sleep(0.02)
calling = True
threading.Thread(target=hammer, daemon=True).start()
print(request(fresh()))
kept = tunnel() # the proxy keeps no other connection
`

// stale tells what was reached between two calls of a session, and what answers
// in the second over a connection that the first opened. The session rests, where it
// does, before a third call, which has a grant again. What is reached is waited for,
// with patience.
func stale(t *testing.T, w *world, h tier.Tier, patience time.Duration) (between []string, over string) {
	t.Helper()
	x, way := keep(t, h, 2*time.Second), tier.Way{Reach: []string{"allowed.test:80", "allowed.test:443"}}
	w.contacts()
	if res := runIn(t, x, inSession("s", "python", keeps, way)); !strings.Contains(string(res.Stdout), "HTTP/1.1 200") || len(tcpOf(w.contacts())) != 1 {
		t.Fatalf("control: %q %q", res.Stdout, res.Stderr)
	}
	res := runIn(t, x, inSession("s", "python", "print(attempt(kept))", way))
	over = string(res.Stdout)
	runIn(t, x, inSession("s", "python", "calling = False", way))
	time.Sleep(100 * time.Millisecond) // what began within the call has ended
	w.contacts()
	if _, ok := h.(*gvisor.Host); ok {
		rest(t, x, "s")
	}
	for deadline := time.Now().Add(patience); len(between) == 0 && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		between = append(between, w.contacts()...)
	}
	res = runIn(t, x, inSession("s", "python", "calling = True\nprint(len(tried) > 0, attempt(None))", way))
	if out := string(res.Stdout); !strings.HasPrefix(out, "True ") || !strings.Contains(out, "200") || len(tcpOf(w.contacts())) == 0 || res.New {
		t.Errorf("control: after a rest: %q %q", res.Stdout, res.Stderr)
	}
	return between, over
}

func split(t *testing.T, args []string, out, said, where string) []trial {
	t.Helper()
	user, root, _ := strings.Cut(out, "\nROOT\n")
	return []trial{{"user, " + where, ended(t, args, user, said)}, {"root, " + where, ended(t, args, root, said)}}
}

// table reads what the attempts printed.
func table(t *testing.T, out, said string) map[string]string {
	t.Helper()
	got := map[string]string{}
	for line := range strings.Lines(out) {
		name, answer, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		got[name] = answer
	}
	if _, ok := got["END"]; !ok {
		t.Fatalf("the attempts did not come to their end: %.1000s %.2000s", out, said)
	}
	return got
}
