package escape_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sallyport.dev/sallyport/egress"
	"sallyport.dev/sallyport/tier"
)

// The world of these tests is a network namespace of their own, with servers at
// addresses that mean something elsewhere. Whoever reaches one is written down.
const (
	allowedAddr = "93.184.216.34"
	evilAddr    = "93.184.216.35"
	gatewayAddr = "192.168.7.1"
)

var worldAddrs = []string{
	allowedAddr, evilAddr, gatewayAddr, "10.0.0.7", "169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192",
	"fd00:ec2::254", "2606:4700::1111",
}

// inWorld runs the test again in a namespace of its own. It returns true there.
func inWorld(t *testing.T) bool {
	t.Helper()
	if os.Getenv("ESCAPE_WORLD") != "" {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("skipped: sandboxes and network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("skipped: `ip` is not here (package iproute2)")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=12m")
	cmd.Env = append(os.Environ(), "ESCAPE_WORLD=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("in its namespace: %v", err)
	}
	return false
}

// A world has the servers and what they heard.
type world struct {
	roots *x509.CertPool // of the servers

	mu    sync.Mutex
	heard []string // "tcp ADDRESS PORT Host"
	keys  []string // "HOST CREDENTIAL", over TLS
}

func newWorld(t *testing.T) *world {
	t.Helper()
	script := "ip link set lo up\n"
	for _, a := range worldAddrs {
		script += "ip addr add " + netip.PrefixFrom(netip.MustParseAddr(a), netip.MustParseAddr(a).BitLen()).String() + " dev lo\n"
	}
	if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w := &world{roots: x509.NewCertPool()}
	cert := selfSigned(t)
	w.roots.AddCert(cert.Leaf)
	for _, port := range []string{"80", "443", "8080"} {
		l, err := net.Listen("tcp", ":"+port)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go w.serve(l, cert)
	}
	for _, port := range []string{"53", "123", "443"} {
		p, err := net.ListenPacket("udp", ":"+port)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		go w.echo(p)
	}
	return w
}

func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"allowed.test", "evil.test"}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = append(w.heard, fmt.Sprintf(format, args...))
}

// contacts returns what was heard since the last time.
func (w *world) contacts() []string {
	time.Sleep(100 * time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.heard
	w.heard = nil
	return all
}

// contactsKept returns what was heard, and keeps it.
func (w *world) contactsKept() []string {
	time.Sleep(100 * time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.heard)
}

// serve notes each connection as soon as it is there, whatever it then says.
func (w *world) serve(l net.Listener, cert tls.Certificate) {
	secure := strings.HasSuffix(l.Addr().String(), ":443")
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		at := netip.MustParseAddrPort(c.LocalAddr().String())
		where := fmt.Sprintf("tcp %s %d", at.Addr().Unmap(), at.Port())
		w.note("%s", where)
		go func() {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(20 * time.Second))
			if secure {
				c = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}})
			}
			b := make([]byte, 4096)
			n, _ := c.Read(b)
			w.read(where, string(b[:n]))
			if _, to, ok := strings.Cut(string(b[:n]), "/redirect?"); ok {
				fmt.Fprintf(c, "HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", strings.Fields(to)[0])
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\ncanary")
		}()
	}
}

// read notes the host of each request, and the credential. What is no request is
// read line by line.
func (w *world) read(where, text string) {
	var heads strings.Builder
	for r := bufio.NewReader(strings.NewReader(text)); ; {
		q, err := http.ReadRequest(r)
		if err == io.EOF && heads.Len() > 0 {
			break
		}
		if err != nil || q.URL.Host != "" {
			heads.Reset()
			heads.WriteString(text)
			break
		}
		fmt.Fprintf(&heads, "Host: %s\nAuthorization: %s\n", q.Host, q.Header.Get("Authorization"))
		if _, err := io.Copy(io.Discard, q.Body); err != nil {
			break // more than was read
		}
	}
	w.readLines(where, heads.String())
}

func (w *world) readLines(where, text string) {
	var host string
	for line := range strings.Lines(text) {
		switch k, v, _ := strings.Cut(strings.TrimSpace(line), ": "); strings.ToLower(k) {
		case "host":
			host = v
			w.note("%s Host %s", where, v)
		case "authorization":
			w.mu.Lock()
			w.keys = append(w.keys, host+" "+v)
			w.mu.Unlock()
		}
	}
}

// secrets returns the credentials that servers got since the last time.
func (w *world) secrets() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.keys
	w.keys = nil
	return all
}

func (w *world) echo(p net.PacketConn) {
	b := make([]byte, 2048)
	for {
		_, from, err := p.ReadFrom(b)
		if err != nil {
			return
		}
		w.note("udp %s", p.LocalAddr())
		_, _ = p.WriteTo([]byte("canary"), from)
	}
}

// counters are how many datagrams and echoes this namespace has sent.
func counters(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/net/snmp")
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		switch f[0] {
		case "Udp:", "UdpLite:", "Icmp:":
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// LookupNetIP is the names of this world.
func (w *world) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	a, ok := map[string]string{
		"allowed.test": allowedAddr, "evil.test": evilAddr, "allowed.test.evil.test": evilAddr, "x.allowed.test": evilAddr, "c2vjcmv0lwnhbmfyeq.evil.test": evilAddr,
		"meta.test": "169.254.169.254", "169.254.169.254.meta.test": "169.254.169.254", "metadata.google.internal": "169.254.169.254", "metadata": "169.254.169.254",
		"instance-data": "169.254.169.254", "inner.test": "10.0.0.7", "home.test": "127.0.0.1", "localhost": "127.0.0.1",
	}[strings.ToLower(host)]
	if !ok {
		w.note("asked for %s", host)
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return []netip.Addr{netip.MustParseAddr(a)}, nil
}

// A realBroker serves ways with the broker of this tree.
type realBroker struct{ *egress.Broker }

// Open implements tier.Broker.
func (b realBroker) Open(id string, w tier.Way, _ tier.Authority, within time.Duration, l *net.UnixListener) (func() tier.Passed, error) {
	return b.serve(l, egress.Grant{ID: id, Rules: w.Reach, Bytes: 64 << 20, Rate: 64 << 20, Conns: 64, For: within}), nil
}

func (b realBroker) serve(l net.Listener, g egress.Grant) (end func() tier.Passed) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Serve(ctx, l, g) }()
	return func() tier.Passed { cancel(); <-done; return tier.Passed{} }
}

// Authority implements tier.Broker.
func (b realBroker) Authority(within time.Duration) (tier.Authority, error) {
	ca, err := egress.NewAuthority(time.Now(), within)
	return tier.Authority(ca), err
}

// A naiveBroker checks nothing: the weak proxy that shows what the attempts can do.
type naiveBroker struct{ names *world }

// Open implements tier.Broker.
func (b naiveBroker) Open(_ string, _ tier.Way, _ tier.Authority, _ time.Duration, l *net.UnixListener) (func() tier.Passed, error) {
	s := &http.Server{Handler: http.HandlerFunc(b.serve), ReadHeaderTimeout: time.Minute}
	go s.Serve(l) //nolint:errcheck // ends with Close
	return func() tier.Passed { s.Close(); return tier.Passed{} }, nil
}

// Authority implements tier.Broker.
func (b naiveBroker) Authority(time.Duration) (tier.Authority, error) {
	return tier.Authority{}, nil
}

func (b naiveBroker) dial(ctx context.Context, target string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		host, port = strings.Trim(target, "[]"), "80"
	}
	if a, err := b.names.LookupNetIP(ctx, "ip", host); err == nil {
		host = a[0].String()
	}
	return (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
}

func (b naiveBroker) serve(rw http.ResponseWriter, r *http.Request) {
	up, err := b.dial(r.Context(), r.URL.Host)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadGateway)
		return
	}
	defer up.Close()
	down, buffered, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		return
	}
	defer down.Close()
	if r.Method == http.MethodConnect {
		_, _ = io.WriteString(down, "HTTP/1.1 200 OK\r\n\r\n")
	} else {
		_ = r.WriteProxy(up) // as it came
	}
	sent := io.MultiReader(io.LimitReader(buffered, int64(buffered.Reader.Buffered())), down)
	go func() { _, _ = io.Copy(up, sent); _ = up.(*net.TCPConn).CloseWrite() }()
	_, _ = io.Copy(down, up)
}

func tcpOf(contacts []string) (at []string) {
	for _, c := range contacts {
		if f := strings.Fields(c); f[0] == "tcp" && !slices.Contains(at, f[1]) {
			at = append(at, f[1])
		}
	}
	return at
}
