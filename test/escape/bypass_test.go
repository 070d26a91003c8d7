package escape_test

import (
	_ "embed"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/egress"
	"sallyport.dev/sallyport/tier"
)

//go:embed testdata/bypass.py
var bypass string

// attempts runs groups of attempts in one sandbox, and returns what each got.
func attempts(t *testing.T, h tier.Tier, warm bool, reach []string, args ...string) map[string]string {
	t.Helper()
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = "'" + a + "'"
	}
	r := tier.Request{
		Image: "default", Argv: []string{"python3", "run.py"}, Limits: sallyport.DefaultLimits(), Way: tier.Way{Reach: reach},
		Files: []tier.File{{Path: "run.py", Content: []byte("import sys\nsys.argv = ['x', " + strings.Join(quoted, ", ") + "]\n" + bypass)}},
	}
	r.Limits.Timeout = 4 * time.Minute
	if warm {
		warmUp(t, h, r)
	} else {
		r.Env = []string{"COLD=1"} // no warm sandbox has variables of its own
	}
	res, err := h.Run(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if res.Receipt.Warm != warm {
		t.Fatalf("warm: %v, want %v", res.Receipt.Warm, warm)
	}
	return table(t, string(res.Stdout), string(res.Stderr))
}

var policies = map[string][]string{
	"deny all":   nil,
	"allow-list": {"allowed.test:80", "allowed.test:443"},
	// All that an operator could write to open the metadata services.
	"allow all": {
		"allowed.test:80", "meta.test:80", "*.meta.test:80", "metadata.google.internal:80", "metadata:80", "instance-data:80", "169.254.169.254:80", "169.254.170.2:80",
		"100.100.100.200:80", "168.63.129.16:80", "192.0.0.192:80", "[fd00:ec2::254]:80", "[::ffff:169.254.169.254]:80", "[64:ff9b::a9fe:a9fe]:80", "[2002:a9fe:a9fe::]:80",
	},
}

// canarySocket is one of the host's, abstract and by path.
func canarySockets(t *testing.T, b tool) (port, sockets string) {
	t.Helper()
	c := startCanary(t, b)
	return c.port, "@" + c.name + "," + filepath.Join(t.TempDir(), "x") + ",/run/sallyport-sandboxd/0/lock,/srv/way"
}

// eachWorld does the same in a world for each tier, whose kernel does not matter: where
// that is slow, with `make escape` only.
func eachWorld(t *testing.T, do func(t *testing.T, a arena)) {
	for _, a := range arenas {
		if a.slow && !whole || !a.asked() || a.kernel {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			if inWorld(t) {
				do(t, a)
			}
		})
	}
}

// openWorld opens three hosts of a tier: what they may reach is judged by the
// broker, by one that would let all pass, and by none.
func openWorld(t *testing.T, a arena) (w *world, b bench, everything, naive tier.Tier) {
	t.Helper()
	w = newWorld(t)
	all := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	own := []netip.AddrPort{netip.MustParseAddrPort(gatewayAddr + ":0")}
	b = bench{arena: a, tool: newTool(t), host: a.open(t, 1, realBroker{&egress.Broker{Resolver: w, Own: own}})}
	everything = a.open(t, 1, realBroker{&egress.Broker{Resolver: w, Own: own, Private: all}})
	naive = a.open(t, 0, naiveBroker{w})
	return w, b, everything, naive
}

// reached says that nothing was reached but the server that may be.
func reached(t *testing.T, who string, w *world, got map[string]string, allowed ...string) {
	t.Helper()
	for _, c := range w.contacts() {
		f := strings.Fields(c)
		switch {
		case f[0] == "asked":
			t.Errorf("%s: the broker was made to ask for a name: %s", who, c)
		case f[0] == "tcp" && slices.Contains(allowed, f[1]) && f[2] != "8080" && (len(f) < 5 || f[4] == "allowed.test"):
		default:
			t.Errorf("%s: reached %s", who, c)
		}
	}
	for name, answer := range got {
		if strings.Contains(answer, "canary") && !strings.HasPrefix(name, "good ") && len(allowed) == 0 {
			t.Errorf("%s: %s answered %q", who, name, answer)
		}
	}
}

// The name that was asked for, in the greeting and in the request are one name,
// or nothing is reached. The cold sandbox has the list; the warm one nothing.
func TestTO52_NamesDisagree(t *testing.T) { eachWorld(t, namesDisagree) }

func namesDisagree(t *testing.T, a arena) {
	w, b, _, naive := openWorld(t, a)
	got := attempts(t, b.host, false, policies["allow-list"], "good,names", "/none")
	for _, good := range []string{"good http", "good https"} {
		if !strings.Contains(got[good], "canary") {
			t.Errorf("control: %s: %q", good, got[good])
		}
	}
	reached(t, "allow-list", w, got, allowedAddr)
	for _, n := range []string{
		"SNI of another", "no SNI", "SNI below", "encrypted greeting", "another name", "another name, SNI allowed", "address of the allowed name",
		"clear HTTP on 443, Host of another", "SSH on 443", "bytes on 443", "two greetings", "absolute form, Host allowed", "websocket of another", "upgrade to HTTP/2",
	} {
		if strings.Contains(got[n], "canary") {
			t.Errorf("%s: %q", n, got[n])
		}
	}
	reached(t, "deny all, cold", w, attempts(t, b.host, false, nil, "names", "/none"))
	reached(t, "deny all, warm", w, attempts(t, b.host, true, nil, "names", "/none"))

	letThrough(t, w, attempts(t, naive, false, policies["allow-list"], "names", "/none"))
}

// letThrough is the control: a proxy that checks nothing lets the attempts reach the
// other server.
func letThrough(t *testing.T, w *world, got map[string]string) {
	t.Helper()
	n := 0
	for _, answer := range got {
		if strings.Contains(answer, "canary") {
			n++
		}
	}
	if at := tcpOf(w.contacts()); n < 12 || !slices.Contains(at, evilAddr) || !slices.Contains(at, "10.0.0.7") {
		t.Errorf("control: through a proxy that checks nothing, %d attempts got an answer, from %q: %q", n, at, got)
	}
	t.Logf("%d attempts, %d of which a proxy that checks nothing lets through", len(got)-1, n)
}

// No metadata service answers, whatever is listed.
func TestTO53_Metadata(t *testing.T) { eachWorld(t, metadata) }

func metadata(t *testing.T, a arena) {
	w, b, everything, naive := openWorld(t, a)
	reached(t, "deny all, cold", w, attempts(t, b.host, false, policies["deny all"], "metadata", "/none"))
	reached(t, "deny all, warm", w, attempts(t, b.host, true, policies["deny all"], "metadata", "/none"))
	reached(t, "allow-list", w, attempts(t, b.host, false, policies["allow-list"], "metadata", "/none"), allowedAddr)
	got := attempts(t, everything, false, policies["allow all"], "good,metadata", "/none")
	reached(t, "allow all", w, got, allowedAddr)
	if !strings.Contains(got["good http"], "canary") {
		t.Errorf("control: the allowed server: %q", got["good http"])
	}
	attempts(t, naive, false, policies["allow-list"], "metadata", "/none")
	for _, a := range []string{"169.254.169.254", "fd00:ec2::254", "100.100.100.200"} {
		if at := tcpOf(w.contactsKept()); !slices.Contains(at, a) {
			t.Errorf("control: through a proxy that checks nothing, %s was not reached: %q", a, at)
		}
	}
}

// Nothing but TCP through the proxy leaves: no datagram is sent by the host.
func TestTO54_OtherProtocols(t *testing.T) { eachWorld(t, otherProtocols) }

func otherProtocols(t *testing.T, a arena) {
	w, b, everything, _ := openWorld(t, a)
	_, sockets := canarySockets(t, b.tool)
	before := counters(t)
	reached(t, "deny all, cold", w, attempts(t, b.host, false, nil, "others", sockets))
	reached(t, "deny all, warm", w, attempts(t, b.host, true, nil, "others", sockets))
	got := attempts(t, b.host, false, policies["allow-list"], "others", sockets)
	reached(t, "allow-list", w, got)
	reached(t, "allow all", w, attempts(t, everything, false, policies["allow all"], "others", sockets))
	for name, answer := range got {
		if strings.Contains(answer, "OPENED") && !slices.Contains(a.own["dial"], strings.TrimPrefix(name, "family ")) {
			t.Errorf("%s: %q", name, answer)
		}
	}
	if after := counters(t); after != before {
		t.Errorf("the namespace has sent datagrams:\n%s\n%s", before, after)
	}
	// The same from outside the sandbox reaches the servers, and is counted.
	script := filepath.Join(t.TempDir(), "bypass.py")
	if err := os.WriteFile(script, []byte(bypass), 0o600); err != nil {
		t.Fatal(err)
	}
	b.path = "/usr/bin/python3"
	b.outside(t, script, "others", sockets)
	heard := strings.Join(w.contacts(), "\n")
	if !strings.Contains(heard, "udp") || !strings.Contains(heard, "tcp "+evilAddr) || counters(t) == before {
		t.Errorf("control: outside, only %s was reached", heard)
	}
}

// Neither the sandbox's loopback nor the broker leads to the host's: only the
// proxy's port answers.
func TestTO60_HostAddresses(t *testing.T) { eachWorld(t, hostAddresses) }

func hostAddresses(t *testing.T, a arena) {
	w, b, everything, naive := openWorld(t, a)
	port, sockets := canarySockets(t, b.tool)
	ports := []string{port, "80", "443", "8080", "22", "7450"}
	args := append([]string{"home", sockets}, ports...)
	reached(t, "deny all, cold", w, attempts(t, b.host, false, nil, args...))
	reached(t, "deny all, warm", w, attempts(t, b.host, true, nil, args...))
	reached(t, "allow-list", w, attempts(t, b.host, false, policies["allow-list"], args...), allowedAddr)
	reached(t, "everything but these", w, attempts(t, everything, false, policies["allow all"], args...), allowedAddr)

	scans := []string{"dial", "scan!127.0.0.1:1-4096", "scan![::1]:1-1024", "scan!127.0.0.2:1-1024", "scan!127.255.255.254:1-1024"}
	for _, a := range append([]string{"127.0.0.1", "127.0.0.2", "::1"}, worldAddrs...) {
		for _, p := range ports {
			scans = append(scans, "tcp!"+netip.AddrPortFrom(netip.MustParseAddr(a), uint16(atoi(t, p))).String())
		}
	}
	lines := b.insideWith(t, policies["allow-list"], scans...)
	if r := with(lines, "REACHED"); !slices.Equal(r, []string{"127.0.0.1:3128"}) {
		t.Errorf("reached %q, want the proxy only", r)
	}
	if own := with(lines, "SCAN-OWN"); len(own) != 4 {
		t.Errorf("control: the scan did not find its own listeners: %q", lines)
	}
	if c := w.contacts(); len(c) > 0 {
		t.Errorf("reached %q", c)
	}
	attempts(t, naive, false, policies["allow-list"], args...)
	if at := tcpOf(w.contacts()); !slices.Contains(at, "127.0.0.1") || !slices.Contains(at, gatewayAddr) {
		t.Errorf("control: through a proxy that checks nothing, only %q were reached", at)
	}
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
