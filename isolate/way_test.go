package isolate_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/egress"
	"sallyport.dev/sallyport/isolate"
	"sallyport.dev/sallyport/isolate/isolatetest"
	"sallyport.dev/sallyport/tier"
)

// A broker is the real one, for which every name leads to the servers of the test.
type broker struct {
	egress.Broker
	opened int

	mu   sync.Mutex
	seen []string // credentials that came to a server
}

func (*broker) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("93.184.216.34")}, nil
}

func (*broker) Authority(within time.Duration) (tier.Authority, error) {
	ca, err := egress.NewAuthority(time.Now(), within)
	return tier.Authority(ca), err
}

func (b *broker) Open(id string, w tier.Way, _ tier.Authority, within time.Duration, l *net.UnixListener) (func() tier.Passed, error) {
	b.opened++
	g := egress.Grant{ID: id, Rules: w.Reach, Bytes: 8 << 20, Rate: 1 << 30, Conns: 8, For: within}
	for _, i := range w.Inject {
		g.Inject = append(g.Inject, egress.Injection(i))
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Serve(ctx, l, g) }()
	return func() tier.Passed {
		cancel()
		<-done
		return tier.Passed{Egress: sallyport.AppliedEgress{Rules: w.Reach}, Connections: []sallyport.Connection{{Target: w.Reach[0], Allowed: true, Count: 1}}}
	}, nil
}

// newBroker leads to servers that answer with what they were sent.
func newBroker(t *testing.T) *broker {
	b := &broker{}
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "http://other.test/", http.StatusFound)
			return
		}
		body, _ := io.ReadAll(r.Body)
		b.mu.Lock()
		b.seen = append(b.seen, r.Header.Get("Authorization"))
		b.mu.Unlock()
		fmt.Fprintf(w, "%s %s %s %s", r.Host, r.URL.Path, r.Header.Get("Authorization"), body)
	})
	plain, secure := httptest.NewServer(echo), httptest.NewUnstartedServer(echo)
	t.Cleanup(plain.Close)
	secure.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	secure.StartTLS() // its certificate is for example.com
	t.Cleanup(secure.Close)
	b.Resolver, b.Roots = b, x509.NewCertPool()
	b.Roots.AddCert(secure.Certificate())
	b.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		to := plain.Listener.Addr().String()
		if strings.HasSuffix(address, ":443") {
			to = secure.Listener.Addr().String()
		}
		return new(net.Dialer).DialContext(ctx, network, to)
	}
	return b
}

// More connections than the broker serves at once, answers that nobody reads, and
// bodies that nobody takes: nothing of it keeps a program waiting.
func TestWayOutIsNotHeldUp(t *testing.T) {
	b := newBroker(t)
	h := isolatetest.Open(t, func(c *isolate.Config) { c.Broker = b })
	for code, want := range map[string]string{
		`const all = await Promise.all(Array.from({ length: 200 }, (_, i) => fetch('http://ok.test/' + i).then((r) => r.text()))); console.log(all.length)`: "200\n",
		`const r = await fetch('http://other.test/', { method: 'POST', body: new Uint8Array(1e6) }); console.log(r.status)`:                                 "403\n",
	} {
		res := run(t, h, js(code, func(r *tier.Request) { r.Way.Reach = []string{"ok.test:80"} }))
		if string(res.Stdout) != want || res.ExitCode != 0 || res.KilledBy != "" {
			t.Errorf("%s: exit %d %s, %q, %q", code, res.ExitCode, res.KilledBy, res.Stdout, res.Stderr)
		}
	}
}

func TestWayOut(t *testing.T) {
	b := newBroker(t)
	h := isolatetest.Open(t, func(c *isolate.Config) { c.Broker = b })
	const secret = "s3cr3t-of-the-test"
	r := js(`
const get = async (u, o) => { try { const r = await fetch(u, o); return r.status + ' ' + (await r.text()).trim().slice(0, 60) } catch (e) { return String(e) } };
console.log(await get('http://ok.test/a', { method: 'POST', body: 'body', headers: { Authorization: 'own' } }));
console.log(await get('https://example.com/b', { headers: { Authorization: 'own' } }));
console.log(await get('https://ok.test/c'));
console.log(await get('http://ok.test/away'));
console.log(await get('http://other.test/'));
console.log(await get('http://169.254.169.254/', { method: 'POST', body: new Uint8Array(1e6) }));
console.log(await Promise.all([1, 2, 3].map((i) => get('http://ok.test/' + i))));
`, func(r *tier.Request) {
		r.Way.Reach = []string{"ok.test:80", "example.com:443", "ok.test:443"}
		r.Way.Inject = []tier.Injection{
			{Name: "token", Host: "ok.test:80", Header: "Authorization", Prefix: "Bearer ", Value: []byte(secret)},
			{Name: "token", Host: "example.com:443", Header: "Authorization", Prefix: "Bearer ", Value: []byte(secret)},
		}
	})
	for range 2 {
		res := run(t, h, r)
		got := strings.Split(string(res.Stdout), "\n")
		want := []string{
			"200 ok.test /a [masked: secret token] body", "200 example.com /b [masked: secret token]",
			"502 ", "403 ", "403 ", "403 ", "[", "  '200 ok.test /1 [masked: secret token]'",
		}
		for i, w := range want {
			if i >= len(got) || !strings.HasPrefix(got[i], w) {
				t.Fatalf("line %d: %q, want %q", i, got, w)
			}
		}
		if strings.Contains(string(res.Stdout), secret) || strings.Join(res.Receipt.Egress.Rules, " ") != "ok.test:80 example.com:443 ok.test:443" || len(res.Connections) != 1 {
			t.Errorf("%q, %+v, %+v", res.Stdout, res.Receipt.Egress, res.Connections)
		}
	}
	for _, s := range b.seen {
		if s != "Bearer "+secret {
			t.Errorf("a server saw %q", s)
		}
	}
	if len(b.seen) != 10 {
		t.Errorf("%d requests came to servers", len(b.seen))
	}
	// What had a way out serves nobody else; what has none opens nothing.
	if res := run(t, h, js(`console.log((await fetch('http://ok.test/')).status)`)); string(res.Stdout) != "403\n" || b.opened != 2 {
		t.Errorf("%q, opened %d times", res.Stdout, b.opened)
	}
}

// The root of a process, as the host sees it: what workerd needs, and nothing of the
// host's; and nothing but its streams and its socket is open in it.
func TestTO40_RootOfAProcess(t *testing.T) {
	dir := ""
	h := isolatetest.Open(t, func(c *isolate.Config) { dir = c.House.Dir() })
	on := make(chan struct{})
	r := js(`console.log('on'); await new Promise((r) => setTimeout(r, 1e4))`)
	r.Told = func(bool, []byte) { close(on) }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _, _ = h.Run(ctx, r) }()
	<-on
	defer func() { cancel(); <-ended }()
	found := workerds(t)
	if len(found) == 0 {
		t.Fatal("control: no process found")
	}
	for _, pid := range found {
		root := filepath.Join("/proc", pid, "root")
		var names []string
		err := filepath.WalkDir(root+"/", func(p string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				names = append(names, strings.TrimPrefix(p, root))
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		for _, n := range names {
			switch {
			case strings.HasPrefix(n, "/lib/"), strings.HasPrefix(n, "/lib64/"), n == "/host.js", n == "/guest.js", n == "/dev/urandom", n == "/way/calls", n == "/way/config.capnp":
			default:
				t.Errorf("in the root of a process: %s", n)
			}
		}
		if len(names) < 6 {
			t.Errorf("control: %q", names)
		}
		mounts, err := os.ReadFile(filepath.Join("/proc", pid, "mountinfo"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(mounts)) {
			if f := strings.Fields(line); !strings.HasPrefix(f[5], "ro,nosuid") {
				t.Errorf("mounted: %s", line)
			}
		}
		for _, fd := range descriptors(t, pid) {
			if strings.HasPrefix(fd, "/") && fd != "/dev/null" && !strings.HasPrefix(fd, "/lib") && fd != "/" || strings.Contains(fd, dir) {
				t.Errorf("open in a process: %s", fd)
			}
		}
	}
}

// workerds are the processes of this test's workerd.
func workerds(t *testing.T) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		line, _ := os.ReadFile(p)
		status, _ := os.ReadFile(filepath.Join(filepath.Dir(p), "status"))
		if strings.HasPrefix(string(line), "workerd\x00serve") && strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", os.Getpid())) {
			pids = append(pids, filepath.Base(filepath.Dir(p)))
		}
	}
	return pids
}

func descriptors(t *testing.T, pid string) (targets []string) {
	t.Helper()
	fds, err := filepath.Glob(filepath.Join("/proc", pid, "fd", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil {
			targets = append(targets, to)
		}
	}
	return targets
}
