package escape_test

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/egress"
	"sallyport.dev/sallyport/isolate"
	"sallyport.dev/sallyport/isolate/isolatetest"
	"sallyport.dev/sallyport/test/stage"
	"sallyport.dev/sallyport/tier"
)

//go:embed testdata/bypass.mjs
var bypassByFetch string

// An isolate has fetch, and no socket.

// ports of the host that are tried: 80, 443 and 8080 answer.
var ports = []string{"80", "443", "8080", "22", "7450"}

// fetches runs groups of attempts in one isolate, and returns what each got.
func fetches(t *testing.T, h tier.Tier, reach []string, groups ...string) map[string]string {
	t.Helper()
	list, err := json.Marshal(groups)
	if err != nil {
		t.Fatal(err)
	}
	shut, err := json.Marshal(ports)
	if err != nil {
		t.Fatal(err)
	}
	r := tier.Request{
		Argv: []string{"main.mjs"}, Limits: sallyport.DefaultLimits(), Way: tier.Way{Reach: reach}, Owner: "attacker",
		Module: &tier.Module{Language: "javascript", Code: fmt.Appendf(nil, "const groups = %s, ports = %s;\n%s", list, shut, bypassByFetch)},
	}
	r.Limits.Timeout = 4 * time.Minute
	res, err := h.Run(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return table(t, string(res.Stdout), string(res.Stderr))
}

func openIsolates(t *testing.T) (w *world, h, everything, naive tier.Tier) {
	t.Helper()
	w = newWorld(t)
	all := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	own := []netip.AddrPort{netip.MustParseAddrPort(gatewayAddr + ":0")}
	open := func(b tier.Broker) tier.Tier {
		return isolatetest.Open(t, func(c *isolate.Config) { c.Broker = b })
	}
	return w, open(realBroker{&egress.Broker{Resolver: w, Own: own, Roots: w.roots}}),
		open(realBroker{&egress.Broker{Resolver: w, Own: own, Private: all, Roots: w.roots}}), open(naiveBroker{w})
}

func TestTO52_isolate(t *testing.T) {
	if !inWorld(t) {
		return
	}
	w, h, _, naive := openIsolates(t)
	got := fetches(t, h, policies["allow-list"], "good", "names")
	for _, good := range []string{"good http", "good https"} {
		if !strings.Contains(got[good], "canary") {
			t.Errorf("control: %s: %q", good, got[good])
		}
	}
	reached(t, "allow-list", w, got, allowedAddr)
	for range 2 { // the second may be in a process that was used
		reached(t, "deny all", w, fetches(t, h, nil, "names"))
	}
	letThrough(t, w, fetches(t, naive, policies["allow-list"], "names"))
}

func TestTO53_isolate(t *testing.T) {
	if !inWorld(t) {
		return
	}
	w, h, everything, naive := openIsolates(t)
	reached(t, "deny all", w, fetches(t, h, nil, "metadata"))
	reached(t, "allow-list", w, fetches(t, h, policies["allow-list"], "metadata"), allowedAddr)
	got := fetches(t, everything, policies["allow all"], "good", "metadata")
	reached(t, "allow all", w, got, allowedAddr)
	if !strings.Contains(got["good http"], "canary") {
		t.Errorf("control: the allowed server: %q", got["good http"])
	}
	fetches(t, naive, policies["allow-list"], "metadata")
	for _, a := range []string{"169.254.169.254", "fd00:ec2::254", "100.100.100.200"} {
		if at := tcpOf(w.contactsKept()); !slices.Contains(at, a) {
			t.Errorf("control: through a proxy that checks nothing, %s was not reached: %q", a, at)
		}
	}
}

// By nothing that an isolate has does anything but HTTP leave, nor a datagram.
func TestTO54_isolate(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		stage.Absent(t, "the control needs node (package nodejs)")
	}
	if !inWorld(t) {
		return
	}
	w, h, everything, _ := openIsolates(t)
	before := counters(t)
	for policy, h := range map[string]tier.Tier{"deny all": h, "allow-list": h, "allow all": everything} {
		got := fetches(t, h, policies[policy], "others")
		reached(t, policy, w, got)
		for name, answer := range got {
			if strings.Contains(answer, "OPENED") || strings.Contains(answer, "root:") {
				t.Errorf("%s: %s: %q", policy, name, answer)
			}
		}
	}
	if after := counters(t); after != before {
		t.Errorf("the namespace has sent datagrams:\n%s\n%s", before, after)
	}
	// The same in Node.js on this machine.
	script := filepath.Join(t.TempDir(), "bypass.mjs")
	if err := os.WriteFile(script, fmt.Appendf(nil, "const groups = [\"others\"], ports = [];\n%s", bypassByFetch), 0o600); err != nil {
		t.Fatal(err)
	}
	got := table(t, strings.Join(tool{path: node}.outside(t, script), "\n"), "")
	if at := tcpOf(w.contacts()); !slices.Contains(at, evilAddr) || counters(t) == before || !strings.Contains(got["udp"], "OPENED") || !strings.Contains(got["a server"], "OPENED") {
		t.Errorf("control: outside, %q were reached: %q", at, got)
	}
}

// No address of the host's answers, under any of its names.
func TestTO60_isolate(t *testing.T) {
	if !inWorld(t) {
		return
	}
	w, h, everything, naive := openIsolates(t)
	reached(t, "deny all", w, fetches(t, h, nil, "home"))
	reached(t, "allow-list", w, fetches(t, h, policies["allow-list"], "home"), allowedAddr)
	reached(t, "everything but these", w, fetches(t, everything, policies["allow all"], "home"), allowedAddr)
	fetches(t, naive, policies["allow-list"], "home")
	if at := tcpOf(w.contacts()); !slices.Contains(at, "127.0.0.1") || !slices.Contains(at, gatewayAddr) {
		t.Errorf("control: through a proxy that checks nothing, only %q were reached", at)
	}
}
