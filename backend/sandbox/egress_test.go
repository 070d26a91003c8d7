package sandbox_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/sandbox"
)

// serveAt serves on an address of the loopback network that no sandbox takes
// for its own.
func serveAt(t *testing.T, h http.Handler) *httptest.Server {
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: h}}
	s.Start()
	t.Cleanup(s.Close)
	return s
}

const tries = `
import socket, sys, urllib.request, urllib.error

def get(u):
    try:
        return urllib.request.urlopen(u, timeout=60).read().decode()
    except urllib.error.HTTPError as e:
        return "%d %s" % (e.code, e.headers["Sallyport-Egress"])
    except Exception as e:
        return "ERR %r" % e

def raw(text):
    s = socket.create_connection(("127.0.0.1", 3128), 60)
    s.sendall(text.encode("latin-1"))
    return s.recv(100).decode("latin-1").split("\r\n")[0]

def direct(family, kind, address):
    try:
        s = socket.socket(family, kind)
        s.settimeout(5)
        s.connect(address)
        s.send(b"x")
        return "SENT"
    except OSError as e:
        return "errno %s" % e.errno

for line in sys.stdin.read().splitlines():
    how, what = line.split(" ", 1)
    if how == "get": print(get(what))
    elif how == "raw": print(raw(what.encode().decode("unicode_escape")))
    elif how == "tcp": h, p = what.rsplit(":", 1); print(direct(socket.AF_INET, socket.SOCK_STREAM, (h, int(p))))
    elif how == "udp": h, p = what.rsplit(":", 1); print(direct(socket.AF_INET, socket.SOCK_DGRAM, (h, int(p))))
    elif how == "tcp6": h, p = what.rsplit(":", 1); print(direct(socket.AF_INET6, socket.SOCK_STREAM, (h, int(p))))
    elif how == "unix": print(direct(socket.AF_UNIX, socket.SOCK_STREAM, what))
`

// A run reaches the one host that it may, and nothing else, however it tries.
func TestEgress(t *testing.T) {
	var hits, others atomic.Int64
	allowed := serveAt(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		hits.Add(1)
		fmt.Fprint(w, "hello")
	}))
	other := serveAt(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { others.Add(1) }))
	a, o := allowed.Listener.Addr().String(), other.Listener.Addr().String()
	h := newHost(t)
	h.more = []string{"-egress-private", "127.0.0.0/8", "-egress-own", o}
	b := h.start(t, sandbox.Options{})
	try := func(reach []string, lines ...string) ([]string, sandbox.Outcome) {
		t.Helper()
		out, err := b.Exec(t.Context(), sandbox.Command{Argv: []string{"python3", "-c", tries}, Stdin: []byte(strings.Join(lines, "\n")), Reach: reach})
		if err != nil || out.ExitCode != 0 {
			t.Fatalf("exit %d, %s, %v", out.ExitCode, out.Stderr, err)
		}
		return strings.Split(strings.TrimSpace(string(out.Stdout)), "\n"), out
	}
	_, port, _ := net.SplitHostPort(a)
	attempts := []struct{ line, want string }{
		{"get http://" + a + "/", "hello"},
		{"get http://" + o + "/", "403 denied; reason=not_listed"},
		{"get http://localhost:" + port + "/", "ERR"}, // NO_PROXY: the sandbox's own loopback
		{"raw CONNECT " + o + " HTTP/1.1\\r\\nHost: " + a + "\\r\\n\\r\\n", "HTTP/1.1 403"},
		{"raw GET http://127.0.0.2.:" + port + "/ HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n", "HTTP/1.1 400"},
		{"raw GET http://2130706434:" + port + "/ HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n", "HTTP/1.1 400"},
		{"raw GET http://[::ffff:127.0.0.2]:" + port + "/ HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n", "HTTP/1.1 403"},
		{"get http://169.254.169.254/latest/meta-data/", "403 denied; reason=not_listed"},
		{"tcp " + a, "errno 111"}, {"tcp " + o, "errno 111"}, // all of 127.0.0.0/8 is the sandbox's own
		{"tcp 93.184.216.34:80", "errno 101"}, {"tcp 169.254.169.254:80", "errno 101"}, {"tcp6 2606:2800:220:1::1:80", "errno 101"},
		{"udp 8.8.8.8:53", "errno 101"}, {"unix /srv/way", "errno 13"},
	}
	lines := make([]string, len(attempts))
	for i, at := range attempts {
		lines[i] = at.line
	}
	got, out := try([]string{a}, lines...)
	for i, at := range attempts {
		if i >= len(got) || !strings.HasPrefix(got[i], at.want) {
			t.Errorf("%s: %q, want %q", at.line, got[min(i, len(got)-1)], at.want)
		}
	}
	if hits.Load() != 1 || others.Load() != 0 {
		t.Errorf("the allowed server was asked %d times, the other %d times", hits.Load(), others.Load())
	}
	if i := slices.IndexFunc(out.Connections, func(c sallyport.Connection) bool { return c.Allowed && c.Target == a && c.Count == 1 && c.Bytes > 0 }); i < 0 {
		t.Errorf("connections %+v", out.Connections)
	}

	// What is listed is still not reached where the gateway itself is, nor where
	// credentials are given out.
	got, _ = try([]string{o, "169.254.169.254:80"}, "get http://"+o+"/", "get http://169.254.169.254/")
	if got[0] != "403 denied; reason=address_refused" || got[1] != "403 denied; reason=address_refused" || others.Load() != 0 {
		t.Errorf("listed but refused: %q", got)
	}
}

// The broker has no privilege; when it is killed, what runs is cut off, and the
// next run has a new one.
func TestBrokerProcess(t *testing.T) {
	server := serveAt(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	a := server.Listener.Addr().String()
	h := newHost(t)
	h.more = []string{"-egress-private", "127.0.0.0/8"}
	b := h.start(t, sandbox.Options{})
	reach := func(script string) (sandbox.Outcome, error) {
		return b.Exec(t.Context(), sandbox.Command{Argv: []string{"python3", "-c", script}, Reach: []string{a}})
	}
	if out, err := reach(`import urllib.request; print(urllib.request.urlopen("http://` + a + `/").read())`); err != nil || !strings.Contains(string(out.Stdout), "hello") {
		t.Fatalf("positive control: %s %s %v", out.Stdout, out.Stderr, err)
	}
	pid := brokerPID(t, h)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Uid:\t65400\t65400\t65400\t65400", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Groups:\t \n"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("the broker's status lacks %q:\n%s", want, status)
		}
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil || len(fds) > 12 {
		t.Errorf("the broker holds %d descriptors, %v", len(fds), err)
	}
	killBroker(t, h)
	out, err := reach(`import urllib.request; print(urllib.request.urlopen("http://` + a + `/").read())`)
	if err != nil || !strings.Contains(string(out.Stdout), "hello") {
		t.Errorf("after the broker was killed: %s %s %v", out.Stdout, out.Stderr, err)
	}
	if brokerPID(t, h) == pid {
		t.Error("the same broker")
	}
}

// brokerPID finds the broker of this test's sandbox host.
func brokerPID(t *testing.T, h host) int {
	t.Helper()
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range all {
		line, _ := os.ReadFile(p)
		parts := strings.Split(string(line), "\x00")
		if parts[0] != "sallyport-egress" {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(p, "/proc/%d/", &pid); err == nil && ofHost(pid, h) {
			return pid
		}
	}
	t.Fatal("no broker runs")
	return 0
}

// ofHost tells whether the parent of pid has the test's runtime folder.
func ofHost(pid int, h host) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	var state string
	var parent int
	_, _ = fmt.Sscan(rest, &state, &parent)
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", parent))
	return strings.Contains(string(line), h.run)
}

// A secret for a header never enters the sandbox, and does not come back.
func TestInjectedSecret(t *testing.T) {
	const value = "s3cr3t-value-for-tests"
	var got atomic.Value
	server := serveAt(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.Store(r.Header.Get("Authorization"))
		fmt.Fprint(w, "you sent ", r.Header.Get("Authorization"))
	}))
	a := server.Listener.Addr().String()
	h := newHost(t)
	h.more = []string{"-egress-private", "127.0.0.0/8"}
	b := h.start(t, sandbox.Options{Secrets: secrets{"t/api": value}})
	tool := sallyport.Tool{Name: "x", Code: &sallyport.Script{Language: "python", Source: `
import os, urllib.request
r = urllib.request.Request("http://` + a + `/", headers={"Authorization": "Bearer own"})
print(urllib.request.urlopen(r).read().decode())
print(open("/run/sallyport-ca.pem").read().count("BEGIN CERTIFICATE") > 1, os.environ["SSL_CERT_FILE"])
for root, _, names in os.walk("/"):
    if root.startswith(("/proc", "/sys", "/usr", "/dev")): continue
    for n in names:
        try:
            if "` + value[:8] + `" + "` + value[8:] + `" in open(os.path.join(root, n), errors="replace").read(): print("FOUND", root, n)
        except OSError: pass
print("` + value[:8] + `" + "` + value[8:] + `" in str(os.environ))
`}}
	tool.Manifest.Secrets = []sallyport.SecretGrant{{Name: "api", Header: "Authorization", Prefix: "Bearer ", Host: a}}
	job := codeJob(tool, `{}`)
	job.Egress = []string{a}
	out, err := b.Run(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	if got.Load() != "Bearer "+value {
		t.Errorf("the server saw %v", got.Load())
	}
	text := string(out.Content)
	for _, want := range []string{"you sent [masked: secret api]", "True /run/sallyport-ca.pem", `False\n`} {
		if !strings.Contains(text, want) {
			t.Errorf("the result lacks %q: %s", want, text)
		}
	}
	if strings.Contains(text, value) || strings.Contains(text, "FOUND") {
		t.Errorf("the secret is in the sandbox or in the result: %s", text)
	}
}
