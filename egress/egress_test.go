package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/await"
)

// names is a resolver whose answers the test makes.
type names map[string]func() []netip.Addr

func (n names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if f, ok := n[host]; ok {
		return f(), nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

func is(addrs ...string) func() []netip.Addr {
	return func() (out []netip.Addr) {
		for _, a := range addrs {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
}

// A world is a broker on a unix socket, with one server behind it that counts
// what reaches it. Everything that the broker dials leads to that server; what
// it meant to reach is in dialled.
type world struct {
	broker *Broker
	grant  Grant
	socket string
	tls    *httptest.Server
	plain  *httptest.Server
	hits   atomic.Int64

	mu      sync.Mutex
	dialled []string
	events  []Event
}

func newWorld(t *testing.T, g Grant) *world {
	w := &world{grant: g, socket: filepath.Join(t.TempDir(), "s")}
	h := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.hits.Add(1)
		if r.URL.Path == "/redirect" {
			http.Redirect(rw, r, "http://other.test/", http.StatusFound)
			return
		}
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(rw, "host=%s path=%s body=%d proxyauth=%q", r.Host, r.URL.RequestURI(), n, r.Header.Get("Proxy-Authorization"))
	})
	w.plain, w.tls = httptest.NewServer(h), httptest.NewTLSServer(h)
	t.Cleanup(w.plain.Close)
	t.Cleanup(w.tls.Close)
	public := is("93.184.216.34")
	w.broker = &Broker{
		Resolver: names{
			"ok.test": public, "other.test": public, "inner.test": is("10.0.0.1"), "mixed.test": is("93.184.216.34", "127.0.0.1"),
			"meta.test": is("169.254.169.254"), "mapped.test": is("::ffff:127.0.0.1"), "empty.test": is(),
		},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			w.mu.Lock()
			w.dialled = append(w.dialled, address)
			w.mu.Unlock()
			to := w.plain.Listener.Addr().String()
			if strings.HasSuffix(address, ":443") {
				to = w.tls.Listener.Addr().String()
			}
			return new(net.Dialer).DialContext(ctx, network, to)
		},
		Report: func(e Event) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if !e.Open { // that it began
				w.events = append(w.events, e)
			}
		},
	}
	l, err := net.Listen("unix", w.socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.broker.Serve(ctx, l, g) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return w
}

func grant(rules ...string) Grant {
	return Grant{ID: "sp-1", Rules: rules, Bytes: 1 << 20, Rate: 1 << 30, Conns: 8, For: time.Minute}
}

func (w *world) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", w.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(await.Patience))
	return c
}

// client is an HTTP client that goes through the broker.
func (w *world) client() *http.Client {
	pool := x509.NewCertPool()
	pool.AddCert(w.tls.Certificate())
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:             http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.test:1"}),
			DialContext:       func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", w.socket) },
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the test's server has no name
			DisableKeepAlives: true,
		}}
}

func (w *world) last(t *testing.T) Event {
	t.Helper()
	var e Event
	await.That(t, "something is reported", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if n := len(w.events); n > 0 {
			e = w.events[n-1]
		}
		return len(w.events) > 0
	})
	return e
}

func get(t *testing.T, c *http.Client, address string) (int, http.Header, string) {
	t.Helper()
	r, err := c.Get(address) //nolint:noctx // a test
	if err != nil {
		t.Fatalf("GET %s: %v", address, err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, r.Header, string(b)
}

func TestAllowed(t *testing.T) {
	w := newWorld(t, grant("ok.test:80", "ok.test:443"))
	if status, _, body := get(t, w.client(), "http://ok.test/a?b=%2F"); status != 200 || body != `host=ok.test path=/a?b=%2F body=0 proxyauth=""` {
		t.Errorf("http: %d %s", status, body)
	}
	if e := w.last(t); !e.Allowed || e.Host != "ok.test" || e.Port != 80 || e.Bytes == 0 || e.Grant != "sp-1" {
		t.Errorf("event %+v", e)
	}
	if status, _, body := get(t, w.client(), "https://ok.test/x"); status != 200 || !strings.HasPrefix(body, "host=ok.test path=/x") {
		t.Errorf("https: %d %s", status, body)
	}
	if w.dialled[0] != "93.184.216.34:80" || w.dialled[1] != "93.184.216.34:443" {
		t.Errorf("dialled %v: want the addresses that were checked", w.dialled)
	}
	// A redirect is the client's to follow, and then a new request.
	if status, h, _ := get(t, w.client(), "http://ok.test/redirect"); status != 302 || h.Get("Location") != "http://other.test/" {
		t.Errorf("redirect: %d %v", status, h)
	}
	if status, _, _ := get(t, w.client(), "http://other.test/"); status != 403 {
		t.Errorf("after the redirect: %d, want 403", status)
	}
}

func TestDenied(t *testing.T) {
	all := []string{"ok.test:80", "inner.test:80", "mixed.test:80", "meta.test:80", "mapped.test:80", "empty.test:80", "gone.test:80", "127.0.0.1:80", "169.254.169.254:80"}
	w := newWorld(t, grant(all...))
	for address, want := range map[string]struct {
		status int
		reason Reason
	}{
		"http://other.test/":             {403, NotListed},
		"http://ok.test:8080/":           {403, NotListed},
		"http://ok.test.evil.test/":      {403, NotListed},
		"http://inner.test/":             {403, BadAddress},
		"http://mixed.test/":             {403, BadAddress},
		"http://meta.test/":              {403, BadAddress},
		"http://mapped.test/":            {403, BadAddress},
		"http://127.0.0.1/":              {403, BadAddress},
		"http://169.254.169.254/latest/": {403, BadAddress},
		"http://empty.test/":             {502, NoAddress},
		"http://gone.test/":              {502, NoAddress},
		"http://0x7f000001/":             {400, BadTarget},
		"http://2130706433/":             {400, BadTarget},
		"http://127.1/":                  {400, BadTarget},
	} {
		w.mu.Lock()
		w.events = nil
		w.mu.Unlock()
		c := w.client()
		status, h, body := get(t, c, address)
		var d Denied
		if err := json.Unmarshal([]byte(body), &d); err != nil {
			t.Errorf("%s: body %q", address, body)
			continue
		}
		if status != want.status || d.Reason != want.reason || d.Error != "egress_denied" || h.Get(DeniedHeader) == "" {
			t.Errorf("%s: %d %+v, want %d %s", address, status, d, want.status, want.reason)
		}
		if e := w.last(t); e.Allowed || e.Reason != want.reason {
			t.Errorf("%s: event %+v", address, e)
		}
		for _, inner := range []string{"10.0.0.1", "no such host", "dial"} {
			if strings.Contains(body, inner) {
				t.Errorf("%s: the answer %q tells of the network behind", address, body)
			}
		}
	}
	if n := w.hits.Load(); n != 0 || len(w.dialled) != 0 {
		t.Errorf("%d requests got through, dialled %v", n, w.dialled)
	}
}

// A name that is public when it is checked and private when it is dialled
// reaches nothing: the checked address is the one that is dialled.
func TestRebinding(t *testing.T) {
	w := newWorld(t, grant("turn.test:80"))
	asked := 0
	w.broker.Resolver = names{"turn.test": func() []netip.Addr {
		if asked++; asked > 1 {
			return is("127.0.0.1")()
		}
		return is("93.184.216.34")()
	}}
	if status, _, _ := get(t, w.client(), "http://turn.test/"); status != 200 || asked != 1 || w.dialled[0] != "93.184.216.34:80" {
		t.Errorf("status %d, asked %d times, dialled %v", status, asked, w.dialled)
	}
	if status, _, _ := get(t, w.client(), "http://turn.test/"); status != 403 || len(w.dialled) != 1 {
		t.Errorf("second time: status %d, dialled %v", status, w.dialled)
	}
}

// connect opens a tunnel and returns the answer's status line.
func connect(t *testing.T, c net.Conn, target string) string {
	t.Helper()
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	line, err := bufio.NewReader(io.LimitReader(c, 1<<10)).ReadString('\n')
	if err != nil {
		t.Fatalf("CONNECT %q: %v", target, err)
	}
	return strings.TrimSpace(line)
}

func TestTunnelNames(t *testing.T) {
	for name, sni := range map[string]string{"fronting": "other.test", "none": "", "a longer one": "ok.test.evil.test", "right": "ok.test", "its case": "OK.test"} {
		w := newWorld(t, grant("ok.test:443", "other.test:443"))
		c := w.dial(t)
		if line := connect(t, c, "ok.test:443"); !strings.Contains(line, " 200 ") {
			t.Fatal(line)
		}
		err := tls.Client(c, &tls.Config{ServerName: sni, InsecureSkipVerify: true}).Handshake() //nolint:gosec,noctx // a test
		good := name == "right" || name == "its case"
		if (err == nil) != good {
			t.Errorf("%s: handshake: %v", name, err)
		}
		_ = c.Close()
		if e := w.last(t); e.Allowed != good || !good && e.Reason != WrongName {
			t.Errorf("%s: event %+v", name, e)
		}
	}
}

func TestTunnelProtocols(t *testing.T) {
	w := newWorld(t, grant("ok.test:80"))
	for send, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: ok.test\r\nConnection: close\r\n\r\n":                     "HTTP/1.1 200",
		"GET / HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n":                  "HTTP/1.1 403",
		"GET http://other.test/ HTTP/1.1\r\nHost: ok.test\r\nConnection: close\r\n\r\n":    "HTTP/1.1 403",
		"GET / HTTP/1.1\r\nHost: ok.test\r\nHost: other.test\r\nConnection: close\r\n\r\n": "HTTP/1.1 400",
		"CONNECT other.test:443 HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n": "HTTP/1.1 403",
		"\x00\x01\x02SSH-2.0-x\r\n":                         "",
		"\x16\x03\x01\x00\x05hello":                         "",
		"\x16\x03\x01\xff\xff" + strings.Repeat("A", 1<<17): "",
	} {
		c := w.dial(t)
		if line := connect(t, c, "ok.test:80"); !strings.Contains(line, " 200 ") {
			t.Fatal(line)
		}
		go func() { _, _ = io.WriteString(c, send) }()
		got, _ := io.ReadAll(c)
		if !strings.HasPrefix(strings.TrimPrefix(string(got), "\r\n"), want) || want == "" && strings.Contains(string(got), "HTTP/1.1 200") {
			t.Errorf("%.60q: got %.60q, want %q", send, got, want)
		}
		_ = c.Close()
	}
	if n := w.hits.Load(); n != 1 {
		t.Errorf("%d requests got through, want the one for the right host", n)
	}
}

func TestRawRequests(t *testing.T) {
	w := newWorld(t, grant("ok.test:80"))
	for _, line := range []string{
		"GET http://u:p@ok.test/ HTTP/1.1", "GET ftp://ok.test/ HTTP/1.1", "GET / HTTP/1.1",
		"GET http://ok.test\x00.evil/ HTTP/1.1", "GET http://ok.test:80@other.test/ HTTP/1.1", "GET http://ok.test:/ HTTP/9.9",
	} {
		c := w.dial(t)
		fmt.Fprintf(c, "%s\r\nHost: ok.test\r\nConnection: close\r\n\r\n", line)
		got, _ := io.ReadAll(c)
		if !strings.HasPrefix(string(got), "HTTP/1.1 4") && !strings.HasPrefix(string(got), "HTTP/1.1 5") {
			t.Errorf("%q: %.80q", line, got)
		}
		_ = c.Close()
	}
	if len(w.dialled) != 0 {
		t.Errorf("dialled %v", w.dialled)
	}
}

func TestConnectTargets(t *testing.T) {
	w := newWorld(t, grant("ok.test:443"))
	for _, target := range []string{"other.test:443", "ok.test:80", "ok.test", "ok.test:443:443", "user@ok.test:443", "ok.test\x00.evil:443", "0x7f.1:443", "[::1%lo]:443", "ok.test :443", "//ok.test:443"} {
		c := w.dial(t)
		if line := connect(t, c, target); strings.Contains(line, " 200 ") {
			t.Errorf("CONNECT %q: %s", target, line)
		}
		_ = c.Close()
	}
	if len(w.dialled) != 0 {
		t.Errorf("dialled %v", w.dialled)
	}
}

func TestBounds(t *testing.T) {
	g := grant("ok.test:80")
	g.Bytes = 10_000
	w := newWorld(t, g)
	r, err := w.client().Post("http://ok.test/", "text/plain", strings.NewReader(strings.Repeat("x", 1<<20))) //nolint:noctx // a test
	if err == nil {
		_ = r.Body.Close()
		if r.StatusCode == 200 {
			t.Error("a megabyte went through a grant of 10,000 bytes")
		}
	}
	if status, _, body := get(t, w.client(), "http://ok.test/"); status != 429 || !strings.Contains(body, string(TooMuch)) {
		t.Errorf("after that: %d %s", status, body)
	}

	g = grant("ok.test:80")
	var c net.Conn
	for g.For = 300 * time.Millisecond; c == nil; g.For *= 2 { // until it is long enough for this machine to connect
		w = newWorld(t, g)
		c, _ = net.Dial("unix", w.socket)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(await.Patience))
	if _, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection outlives the grant: %v", err)
	}
	await.That(t, "the socket ends with the grant", func() bool {
		c, err := net.Dial("unix", w.socket)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})

	for _, g := range []Grant{{}, {Rules: []string{"ok.test:80"}}, {Rules: []string{"nonsense"}, Bytes: 1, Rate: 1, Conns: 1, For: 1}, {Rules: []string{"ok.test:80"}, Bytes: 1, Conns: 1, For: 1}} {
		l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Fatal(err)
		}
		if err := new(Broker).Serve(t.Context(), l, g); err == nil {
			t.Errorf("grant %+v was served", g)
		}
	}
}
