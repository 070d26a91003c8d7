package tiertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/egress"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/payload"
)

// Two names that lead to one server of this machine, at an address that no sandbox
// takes for its own.
const (
	allowed = "allowed.test"
	other   = "other.test"
)

// A broker is the real one, in this process.
type broker struct{ *egress.Broker }

// LookupNetIP implements egress.Resolver.
func (broker) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if host == allowed || host == other {
		return []netip.Addr{netip.MustParseAddr("127.0.0.2")}, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// NewBroker is a broker for which allowed and other are names of this machine.
func newBroker() broker {
	b := broker{&egress.Broker{Private: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}}}
	b.Resolver = b
	return b
}

// Authority implements tier.Broker.
func (broker) Authority(within time.Duration) (tier.Authority, error) {
	ca, err := egress.NewAuthority(time.Now(), within)
	return tier.Authority(ca), err
}

// Open implements tier.Broker.
func (b broker) Open(id string, w tier.Way, ca tier.Authority, within time.Duration, l *net.UnixListener) (func() tier.Passed, error) {
	g := egress.Grant{ID: id, Rules: w.Reach, Bytes: 8 << 20, Rate: 8 << 20, Conns: 16, For: within}
	if len(ca.Key) > 0 {
		own := egress.Authority(ca)
		g.CA = &own
	}
	for _, i := range w.Inject {
		g.Inject = append(g.Inject, egress.Injection(i))
	}
	if err := g.Check(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Serve(ctx, l, g) }()
	return func() tier.Passed {
		cancel()
		<-done
		return tier.Passed{Egress: sallyport.AppliedEgress{Rules: w.Reach}}
	}, nil
}

const fetches = `
import os, socket, sys, urllib.error, urllib.request
for u in %q.split():
    try:
        print(urllib.request.urlopen(u, timeout=120).read().decode())
    except urllib.error.HTTPError as e:
        print("refused", e.code)
    except Exception as e:
        print("ERR", type(e).__name__)
port = int(%q)
for kind, at in ((socket.AF_INET, ("127.0.0.2", port)), (socket.AF_INET, ("169.254.169.254", 80)), (socket.AF_INET, ("1.1.1.1", 53)), (socket.AF_INET6, ("2606:4700:4700::1111", 443))):
    try:
        s = socket.socket(kind, socket.SOCK_STREAM); s.settimeout(3); s.connect(at); print("REACHED", at)
    except OSError: pass
for kind, proto in ((socket.SOCK_RAW, 1), (socket.SOCK_RAW, 255)):
    try:
        socket.socket(socket.AF_INET, kind, proto); print("RAW", proto)
    except OSError: pass
try:
    socket.getaddrinfo("example.com", 80); print("NAMES")
except OSError: pass
`

const fetchesOfJS = `
for (const u of %q.split(" ")) {
  try {
    const r = await fetch(u);
    console.log(r.ok ? await r.text() : "refused " + r.status);
  } catch (e) { console.log("ERR " + e.name) }
}
try {
  const { connect } = await import("cloudflare:sockets");
  const s = connect("127.0.0.2:" + %q); await s.opened; console.log("REACHED by a socket");
} catch {}
`

// A hall is a server of this machine that both names lead to. It counts who asks.
type hall struct {
	port string
	hits atomic.Int64
}

func openHall(t *testing.T) *hall {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	var hl hall
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		hl.hits.Add(1)
		_, _ = io.WriteString(rw, "hello of "+strings.Split(r.Host, ":")[0])
	}))
	server.Listener.Close()
	server.Listener = l
	server.Start()
	t.Cleanup(server.Close)
	if _, hl.port, err = net.SplitHostPort(l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	return &hl
}

const asksBoth = `
import socket
for host in %q.split():
    s = socket.create_connection(("127.0.0.1", %d))
    s.sendall(f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    print(s.makefile("rb").read().split(b"\r\n\r\n")[-1].decode().strip())
`

// waysOfTheirOwn: what waited for a call of another list, or ran one, goes where this
// call's list says, and nowhere else.
func waysOfTheirOwn(t *testing.T, s Subject) {
	hl := openHall(t)
	h, _ := s.Open(t, Config{Warm: 2, Broker: newBroker()})
	hosts := allowed + ":" + hl.port + " " + other + ":" + hl.port
	r := tier.Request{Owner: "one", Limits: s.over(deed{}.limits), Image: "default", Argv: []string{"python3", "main.py"}}
	r.Files = []tier.File{{Path: "main.py", Content: fmt.Appendf(nil, asksBoth, hosts, payload.ProxyPort)}}
	if s.Modules != "" {
		r = s.needs(t, deed{js: fmt.Sprintf(`for (const h of %q.split(" ")) { const r = await fetch("http://" + h); console.log(await r.text()) }`, hosts)})
		r.Owner = "one"
	}
	r.Way.Reach = strings.Fields(hosts)
	settle(t, h, r)
	within(t, "one that waited is given another list", func() bool { return goWhereTheyMay(t, h, r, hl) || t.Failed() })
}

// goWhereTheyMay runs calls of several lists, and tells whether one had a sandbox that
// waited.
func goWhereTheyMay(t *testing.T, h tier.Tier, r tier.Request, hl *hall) (warm bool) {
	t.Helper()
	for i, reach := range [][]string{{allowed}, {other}, {allowed, other}, {other}} {
		r.Way.Reach = nil
		for _, host := range reach {
			r.Way.Reach = append(r.Way.Reach, host+":"+hl.port)
		}
		hl.hits.Store(0)
		res := run(t, h, r)
		out := string(res.Stdout)
		for _, host := range []string{allowed, other} {
			if may := slices.Contains(reach, host); may != strings.Contains(out, "hello of "+host) {
				t.Errorf("run %d may reach %q and got %q (stderr %.200q)", i, reach, out, res.Stderr)
			}
		}
		if n := int(hl.hits.Load()); n != len(reach) {
			t.Errorf("run %d, warm %v: the server was asked %d times, %q may be", i, res.Receipt.Warm, n, reach)
		}
		warm = warm || res.Receipt.Warm
	}
	return warm
}

// wayOut: what may be reached is, through the broker; nothing else is, by no kind of
// socket; and where nothing may be, not even what may elsewhere.
func wayOut(t *testing.T, s Subject) {
	hl := openHall(t)
	port := hl.port
	targets := strings.ReplaceAll("http://allowed.test:PORT/ http://other.test:PORT/ http://127.0.0.2:PORT/ http://169.254.169.254/", "PORT", port)
	d := deed{py: fmt.Sprintf(fetches, targets, port), js: fmt.Sprintf(fetchesOfJS, targets, port)}
	h, _ := s.Open(t, Config{Warm: 1, Broker: newBroker()})
	r, ok := s.request(t, d)
	if !ok {
		t.Fatalf("%s has no way out in its language", s.Name)
	}
	for name, reach := range map[string][]string{"nothing": nil, "one host": {allowed + ":" + port}} {
		t.Run(name, func(t *testing.T) {
			r.Way = tier.Way{Reach: reach}
			for range 2 { // the second may find a sandbox that waited
				hl.hits.Store(0)
				res := run(t, h, r)
				lines := strings.Split(strings.TrimSpace(string(res.Stdout)), "\n")
				first := map[bool]string{true: "hello of allowed.test"}[reach != nil]
				if reach == nil && strings.Contains(lines[0], "hello") || reach != nil && lines[0] != first || len(lines) != 4 || strings.Contains(string(res.Stdout[len(lines[0]):]), "hello") {
					t.Errorf("%q, stderr %.300q", lines, res.Stderr)
				}
				if n := int(hl.hits.Load()); n != len(reach) || strings.Join(res.Receipt.Egress.Rules, " ") != strings.Join(reach, " ") {
					t.Errorf("the server was asked %d times; the receipt says %q", n, res.Receipt.Egress.Rules)
				}
			}
		})
	}
	t.Run("no broker", func(t *testing.T) {
		h, _ := s.Open(t, Config{})
		r.Way = tier.Way{Reach: []string{allowed + ":" + port}}
		if _, err := h.Run(t.Context(), r); sallyport.CodeOf(err) != sallyport.Unavailable && sallyport.CodeOf(err) != sallyport.Invalid || !errors.Is(err, sallyport.ErrNotExecuted) {
			t.Errorf("%v", err)
		}
	})
}

// noWayOut: a tier whose modules reach nothing refuses what is to reach something.
func noWayOut(t *testing.T, s Subject) {
	h, _ := s.Open(t, Config{Broker: newBroker()})
	r := s.needs(t, say("it ran"))
	r.Way = tier.Way{Reach: []string{allowed + ":80"}}
	if _, err := h.Run(t.Context(), r); sallyport.CodeOf(err) != sallyport.Invalid || !errors.Is(err, sallyport.ErrNotExecuted) {
		t.Errorf("%v", err)
	}
}
