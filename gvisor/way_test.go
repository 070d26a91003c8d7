package gvisor_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/tier"
)

// An echo is a broker that answers every connection with what it was asked.
type echo struct{ opened chan string }

func (e echo) Authority(time.Duration) (tier.Authority, error) {
	return tier.Authority{Cert: []byte("certificate\n")}, nil
}

func (e echo) Open(id string, w tier.Way, _ tier.Authority, _ time.Duration, l *net.UnixListener) (func() tier.Passed, error) {
	e.opened <- id
	n := 0
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n++
			b := make([]byte, 4096)
			k, _ := c.Read(b)
			line, _, _ := strings.Cut(string(b[:k]), "\r\n")
			body := line + " | " + strings.Join(w.Reach, ",")
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
			_, _ = io.Copy(io.Discard, c)
			c.Close()
		}
	}()
	return func() tier.Passed {
		l.Close()
		<-done
		return tier.Passed{Connections: []sallyport.Connection{{Target: "echo", Allowed: true, Count: n}}}
	}, nil
}

const fetch = `
import urllib.request, urllib.error, sys
for u in sys.argv[1:]:
    try:
        r = urllib.request.urlopen(u, timeout=60)
        print(r.status, r.read().decode())
    except urllib.error.HTTPError as e:
        print(e.code, e.headers["Sallyport-Egress"], e.read().decode().strip())
    except Exception as e:
        print("ERR", e)
`

func TestWayOut(t *testing.T) {
	broker := echo{make(chan string, 10)}
	h := gvisortest.Open(t, func(c *gvisor.Config) { c.Broker = broker })
	r := tier.Request{Argv: []string{"python3", "-c", fetch, "http://ok.test/a", "http://127.0.0.1:9/"}, Way: tier.Way{Reach: []string{"ok.test:80"}}}
	res := run(t, h, r)
	if out := string(res.Stdout); !strings.HasPrefix(out, "200 GET http://ok.test/a HTTP/1.1 | ok.test:80\n") || res.ExitCode != 0 {
		t.Errorf("exit %d, stdout %q, stderr %q", res.ExitCode, out, res.Stderr)
	}
	if len(res.Connections) != 1 || res.Connections[0].Count != 1 {
		t.Errorf("attempts %+v", res.Connections)
	}
	if id := <-broker.opened; id != res.ID {
		t.Errorf("the broker was opened for %s, the sandbox is %s", id, res.ID)
	}
	// The program itself can neither open the socket nor reach anything directly.
	res = run(t, h, tier.Request{Argv: []string{"python3", "-c", `
import socket
for f, a in ((socket.AF_UNIX, "/srv/way"), (socket.AF_INET, ("93.184.216.34", 80)), (socket.AF_INET, ("169.254.169.254", 80))):
    try:
        socket.socket(f, socket.SOCK_STREAM).connect(a); print("reached", a)
    except OSError as e:
        print(e.errno)
`}, Way: tier.Way{Reach: []string{"ok.test:80"}}})
	if got := string(res.Stdout); got != "13\n101\n101\n" {
		t.Errorf("direct: %q %q", got, res.Stderr)
	}
}

func TestFO57_DenialInWords(t *testing.T) {
	h := gvisortest.Open(t)
	res := run(t, h, tier.Request{Argv: []string{"python3", "-c", fetch, "http://example.com/", "http://1.2.3.4:81/", "http://example.com/?key=1"}})
	for _, line := range strings.Split(strings.TrimSpace(string(res.Stdout)), "\n") {
		if !strings.HasPrefix(line, "403 denied; reason=not_listed {\"error\":\"egress_denied\"") {
			t.Errorf("line %q", line)
		}
	}
	want := []sallyport.Connection{{Target: "1.2.3.4:81", Reason: "not_listed", Count: 1}, {Target: "example.com:80", Reason: "not_listed", Count: 2}}
	if fmt.Sprint(res.Connections) != fmt.Sprint(want) {
		t.Errorf("attempts %+v, want %+v", res.Connections, want)
	}
	// What is to reach something is refused where nothing lets it out.
	_, err := h.Run(t.Context(), fill(tier.Request{Argv: []string{"true"}, Way: tier.Way{Reach: []string{"ok.test:80"}}}))
	if sallyport.CodeOf(err) != sallyport.Unavailable {
		t.Errorf("without a broker: %v", err)
	}
}
