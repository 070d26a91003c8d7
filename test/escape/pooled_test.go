package escape_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/egress"
	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/image"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/tier"
)

// Sandboxes that were started before it was known for which call, and have a way
// out.

// The same attempts as from sandboxes that were just started, from those that
// waited: with the call's own list, and nothing else.
func TestTO52_EgressOfPooledSandboxes(t *testing.T) {
	if !inWorld(t) {
		return
	}
	w, b, everything, _ := openWorld(t, onGVisor)
	port, sockets := canarySockets(t, b.tool)
	before := counters(t)
	for policy, h := range map[string]tier.Tier{"deny all": b.host, "allow-list": b.host, "allow all": everything} {
		var allowed []string
		if policy != "deny all" {
			allowed = []string{allowedAddr}
		}
		got := attempts(t, h, true, policies[policy], "good,names,metadata,others,home", sockets, port, "80", "443", "8080", "22", "7450")
		if policy == "allow-list" && !strings.Contains(got["good https"], "canary") || policy != "deny all" && !strings.Contains(got["good http"], "canary") {
			t.Errorf("control: %s: %q, %q", policy, got["good http"], got["good https"])
		}
		reached(t, policy+", pool", w, got, allowed...)
	}
	if after := counters(t); after != before {
		t.Errorf("the namespace has sent datagrams:\n%s\n%s", before, after)
	}
}

// hostile is an image whose interpreter is the probe, which tries to get out
// while it waits.
type hostile struct{ img image.Image }

// Find implements tier.Images.
func (i hostile) Find(string) (tier.Image, error) {
	return tier.Image{Digest: i.img.Digest, Path: i.img.Path}, nil
}

func hostileImage(t *testing.T, probe tier.File) hostile {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "usr/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "usr/bin/python3"), probe.Content, 0o755); err != nil {
		t.Fatal(err)
	}
	img, err := image.NewStore(t.TempDir()).BuildFolder(t.Context(), "hostile", dir, 0, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	return hostile{img}
}

// While a sandbox waits, its way out leads nowhere, whatever runs in it; when it
// is taken, it leads where that call may go.
func TestTO52_WaitingLeadsNowhere(t *testing.T) {
	if !inWorld(t) {
		return
	}
	w, b, _, _ := openWorld(t, onGVisor)
	var run string
	img := hostileImage(t, b.file)
	h := gvisortest.Open(t, func(c *gvisor.Config) {
		c.Warm, c.Images, c.Broker, run = 1, img, realBroker{&egress.Broker{Resolver: w}}, c.Dir
	})
	heard, out := whileItWaits(t, w, h, func() {})
	// Its last try may have come after the grant, which is there before its order.
	out = strings.NewReplacer("LED allowed.test: 200\n", "", "LED evil.test: 403 denied; reason=not_listed\n", "").Replace(out)
	if len(heard) > 0 || strings.Contains(out, "LED") {
		t.Errorf("while it waited, %q were reached: %s", heard, out)
	}
	if !strings.Contains(out, "THEN 200 403 denied; reason=not_listed") {
		t.Errorf("control: once it was taken: %s", out)
	}
	// The planted weakness: somebody serves the way out before it is known for whom.
	heard, out = whileItWaits(t, w, h, func() {
		ways, err := filepath.Glob(filepath.Join(run, "runs", "*", "way"))
		if err != nil || len(ways) != 1 {
			t.Fatalf("%q wait, %v", ways, err)
		}
		early := filepath.Join(ways[0], "way")
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: early, Net: "unix"})
		if err == nil {
			err = os.Chmod(early, 0o777)
		}
		if err != nil {
			t.Fatal(err)
		}
		end, err := naiveBroker{w}.Open("", tier.Way{}, tier.Authority{}, time.Minute, l)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { end() })
		await.That(t, "control: it is tried while nobody has taken the sandbox", func() bool { return slices.Contains(tcpOf(w.contactsKept()), evilAddr) })
	})
	if at := tcpOf(heard); !slices.Contains(at, evilAddr) || !strings.Contains(out, "LED evil.test: 200") {
		t.Errorf("control: with a way out that is served early, %q were reached: %s", heard, out)
	}
}

// whileItWaits tells what was reached from a sandbox that waits, and what it says
// of that once it was taken.
func whileItWaits(t *testing.T, w *world, h *gvisor.Host, meanwhile func()) (heard []string, out string) {
	t.Helper()
	r := tier.Request{
		Image: "hostile", Argv: []string{"python3", "run.py"}, Files: []tier.File{{Path: "run.py", Content: []byte("x")}},
		Limits: sallyport.DefaultLimits(), Way: tier.Way{Reach: policies["allow-list"]},
	}
	warmUp(t, h, r)
	w.contacts()
	meanwhile()
	time.Sleep(500 * time.Millisecond) // it tries a hundred times a second
	heard = w.contacts()
	res, err := h.Run(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	out = string(res.Stdout)
	if !res.Receipt.Warm || !strings.Contains(out, "TRIED ") || strings.Contains(out, "TRIED 0\n") || !slices.Contains(tcpOf(w.contacts()), allowedAddr) {
		t.Fatalf("control: warm %v: %q %q", res.Receipt.Warm, out, res.Stderr)
	}
	return heard, out
}

// Each call from the pool has its own grant: hosts, secret and certificate, and no
// other call's.
func TestTO52_GrantsOfPooledSandboxes(t *testing.T) {
	if !inWorld(t) {
		return
	}
	w := newWorld(t)
	broker := secretBroker{realBroker{&egress.Broker{Resolver: w, Roots: w.roots}}}
	open := func(b tier.Broker) *gvisor.Host {
		return gvisortest.Open(t, func(c *gvisor.Config) { c.Warm, c.Broker = 1, b })
	}
	if wrong := foreign(t, w, open(broker)); len(wrong) > 0 {
		t.Errorf("%q", wrong)
	}
	// The planted weakness: the grant of the call before.
	if wrong := foreign(t, w, open(&laggard{secretBroker: broker})); len(wrong) < 3 {
		t.Errorf("control: with the grants of other calls, only %q", wrong)
	}
}

// A secretBroker is a realBroker that injects secrets, too.
type secretBroker struct{ realBroker }

// Open implements tier.Broker.
func (b secretBroker) Open(id string, w tier.Way, ca tier.Authority, within time.Duration, l *net.UnixListener) (func() tier.Passed, error) {
	own := egress.Authority(ca)
	g := egress.Grant{ID: id, Rules: w.Reach, Bytes: 64 << 20, Rate: 64 << 20, Conns: 64, For: within, CA: &own}
	for _, i := range w.Inject {
		g.Inject = append(g.Inject, egress.Injection(i))
	}
	return b.serve(l, g), nil
}

// A laggard gives each call what the one before it was granted.
type laggard struct {
	secretBroker
	mu     sync.Mutex
	before *tier.Way
}

// Open implements tier.Broker.
func (b *laggard) Open(id string, w tier.Way, ca tier.Authority, within time.Duration, l *net.UnixListener) (func() tier.Passed, error) {
	b.mu.Lock()
	given := w
	if b.before != nil {
		given = *b.before
	}
	b.before = &w
	b.mu.Unlock()
	return b.secretBroker.Open(id, given, ca, within, l)
}

const asks = `
import hashlib, os, ssl, urllib.error, urllib.request
for url in ("https://allowed.test/echo", "https://evil.test/echo"):
    try:
        r = urllib.request.Request(url, headers={"Authorization": "own"})
        print(url[8:-5], urllib.request.urlopen(r, timeout=60).read().decode().strip())
    except Exception as e:
        print(url[8:-5], "ERR", e)
print("CA", hashlib.sha256(open("/run/sallyport-ca.pem", "rb").read()).hexdigest())
`

// foreign runs calls with different grants from the pool, and tells what one had of
// another's.
func foreign(t *testing.T, w *world, h *gvisor.Host) (wrong []string) {
	t.Helper()
	r := tier.Request{Image: "default", Argv: []string{"python3", "run.py"}, Limits: sallyport.DefaultLimits(), Files: []tier.File{{Path: "run.py", Content: []byte(asks)}}}
	grant := func(host, value string) tier.Way {
		at := host + ":443"
		return tier.Way{Reach: []string{at}, Inject: []tier.Injection{{Name: "s", Host: at, Header: "Authorization", Value: []byte(value)}}}
	}
	seen := map[string]bool{}
	for i, host := range []string{"allowed.test", "evil.test", "allowed.test"} {
		value := fmt.Sprintf("secret-of-call-%d", i)
		r.Way = grant("inner.test", "secret-of-another")
		warmUp(t, h, r)
		r.Way = grant(host, value)
		w.secrets()
		res, err := h.Run(t.Context(), r)
		if err != nil || !res.Receipt.Warm {
			t.Fatalf("warm %v, %v", res.Receipt.Warm, err)
		}
		out := string(res.Stdout)
		for line := range strings.Lines(out) {
			switch f := strings.Fields(line); {
			case f[0] == "CA" && seen[f[1]]:
				wrong = append(wrong, "two sandboxes trust one certificate")
			case f[0] == "CA":
				seen[f[1]] = true
			case f[0] == host && f[1] == "ERR", f[0] != host && f[1] != "ERR":
				wrong = append(wrong, fmt.Sprintf("call %d may reach %s, and has %s", i, host, line))
			}
		}
		if strings.Contains(out, "secret-of-") || strings.Count(out, "\n") != 3 {
			t.Errorf("call %d printed %q, %q", i, out, res.Stderr)
		}
		for _, got := range w.secrets() {
			if got != host+" "+value {
				wrong = append(wrong, fmt.Sprintf("in call %d, %s", i, got))
			}
		}
	}
	return wrong
}
