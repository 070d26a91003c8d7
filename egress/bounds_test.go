package egress

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// served is a broker on a connection of its own, and what opens sockets for it.
func served(t *testing.T) (r *Remote, listen func(name string) (*os.File, string)) {
	t.Helper()
	ours, theirs := packetPair(t)
	go newWorld(t, grant("unused.test:80")).broker.Obey(t.Context(), theirs) //nolint:errcheck // ends with the test
	r = NewRemote(ours)
	t.Cleanup(func() { r.Close() })
	return r, func(name string) (*os.File, string) {
		path := filepath.Join(t.TempDir(), name)
		return socketAt(t, path), path
	}
}

// socketAt is a socket that listens, as the broker is given it.
func socketAt(t *testing.T, path string) *os.File {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// Whatever a sandbox asks for, what is told of it is bounded, and it costs no other
// sandbox its way out.
func TestTargetsAreBounded(t *testing.T) {
	r, listen := served(t)
	neighbour, _ := listen("n")
	if _, err := r.Open(grantNamed("neighbour"), neighbour); err != nil {
		t.Fatal(err)
	}
	for name, letter := range map[string]string{"long": "a", "no text": "\xff", "escaped": "<"} {
		socket, path := listen("s")
		end, err := r.Open(grantNamed(name), socket)
		if err != nil {
			t.Fatal(err)
		}
		_ = socket.Close()
		for i := range 2 * MaxConnections {
			for _, line := range []string{"CONNECT %d%s:80", "GET http://%d%s/"} {
				c, err := net.Dial("unix", path)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(c, line+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", i, strings.Repeat(letter, 40_000))
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			}
		}
		account, err := end()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(account.Connections) == 0 || len(account.Connections) > MaxConnections+1 {
			t.Errorf("%s: %d connections", name, len(account.Connections))
		}
		count := 0
		for _, c := range account.Connections {
			if count += c.Count; len(c.Target) > 400 || !utf8.ValidString(c.Target) {
				t.Errorf("%s: a target of %d bytes: %.80q", name, len(c.Target), c.Target)
			}
		}
		t.Logf("%s: %d attempts are told", name, count)
	}
	socket, _ := listen("after")
	if _, err := r.Open(grantNamed("after"), socket); err != nil {
		t.Errorf("control: afterwards: %v", err)
	}
}

// A grant that does not fit into a packet is refused in words, and ends no broker.
func TestGrantsAreBounded(t *testing.T) {
	r, listen := served(t)
	for name, g := range map[string]Grant{"rules": grantNamed("rules"), "a secret": grantNamed("secret")} {
		for i := range 10_000 {
			if name == "rules" {
				g.Rules = append(g.Rules, fmt.Sprintf("host-%d.example.test:443", i))
			}
		}
		if name == "a secret" {
			g.Rules = []string{"ok.test:443"}
			g.Inject = []Injection{{Name: "s", Host: "ok.test:443", Header: "X-Key", Value: []byte(strings.Repeat("x", 1<<17))}}
		}
		if err := g.Check(); err == nil || !strings.Contains(err.Error(), "at most") {
			t.Errorf("%s: %v", name, err)
		}
		socket, _ := listen(name)
		if _, err := r.Open(g, socket); err == nil {
			t.Errorf("%s: it was opened", name)
		}
		socket, _ = listen("after")
		if _, err := r.Open(grantNamed("after "+name), socket); err != nil {
			t.Errorf("control: afterwards: %v", err)
		}
	}
}

// Bytes and attempts have a rate: three million bytes, less a second's worth, take
// half a second at least.
func TestRateIsBounded(t *testing.T) {
	took := func(rate int64, work func(w *world)) time.Duration {
		g := grant("ok.test:80")
		g.Bytes, g.Rate = 1<<30, rate
		w := newWorld(t, g)
		at := time.Now()
		work(w)
		return time.Since(at)
	}
	for name, work := range map[string]func(w *world){
		"bytes": func(w *world) {
			r, err := w.client().Post("http://ok.test/", "text/plain", strings.NewReader(strings.Repeat("x", 3<<20))) //nolint:noctx // a test
			if err != nil {
				t.Fatal(err)
			}
			_ = r.Body.Close()
		},
		"attempts": func(w *world) {
			for range 192 { // 3 MiB
				get(t, w.client(), "http://other.test/")
			}
		},
	} {
		if slow := took(2<<20, work); slow < 400*time.Millisecond {
			t.Errorf("%s took %v", name, slow)
		}
		t.Logf("%s: without a bound it takes %v", name, took(1<<30, work))
	}
}
