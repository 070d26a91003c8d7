package egress

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/test/await"
)

func packetPair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		_ = f.Close()
		if err != nil {
			t.Fatal(err)
		}
		out[i] = c.(*net.UnixConn)
	}
	return out[0], out[1]
}

func TestRemote(t *testing.T) {
	w := newWorld(t, grant("unused.test:80"))
	ours, theirs := packetPair(t)
	broker := *w.broker
	over := make(chan error, 1)
	go func() { over <- broker.Obey(t.Context(), theirs) }()
	r := NewRemote(ours)

	listen := func(name string) *os.File {
		w.socket = filepath.Join(t.TempDir(), name)
		return socketAt(t, w.socket)
	}
	socket := listen("a")
	end, err := r.Open(Grant{ID: "a", Rules: []string{"OK.test:80", "*.below.test:443"}, Bytes: 1 << 20, Rate: 1 << 30, Conns: 4, For: time.Minute}, socket)
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"http://ok.test/", "http://ok.test/", "http://other.test/", "http://0x7f.1/"} {
		w.whole(t, address)
	}
	_ = socket.Close()
	// Meanwhile it tells what it has not told yet, and at the end the rest.
	so, err := r.Tell("a")
	if got := so.Connections; err != nil || len(got) != 3 || !got[1].Allowed || got[1].Count != 2 {
		t.Errorf("meanwhile: %+v, %v", so, err)
	}
	if so, err := r.Tell("a"); err != nil || len(so.Connections) != 0 {
		t.Errorf("told twice: %+v, %v", so, err)
	}
	if so, err := r.Tell("nobody"); err != nil || len(so.Connections) != 0 {
		t.Errorf("of no grant: %+v, %v", so, err)
	}
	for _, address := range []string{"http://ok.test/", "http://ok.test/", "http://other.test/", "http://0x7f.1/"} {
		get(t, w.client(), address)
	}
	account, err := end()
	if want := (sallyport.AppliedEgress{Rules: []string{"ok.test:80", "*.below.test:443"}}); !reflect.DeepEqual(account.Applied, want) {
		t.Errorf("applied %+v, want %+v", account.Applied, want)
	}
	if got := account.Connections; err != nil || len(got) != 3 || !got[1].Allowed || got[1].Count != 2 || got[1].Target != "ok.test:80" || got[1].Bytes == 0 ||
		got[2] != (sallyport.Connection{Target: "other.test:80", Reason: string(NotListed), Count: 1}) {
		t.Errorf("attempts %+v, %v", account, err)
	}
	if _, err := net.Dial("unix", w.socket); err == nil {
		t.Error("the socket is still served")
	}

	if _, err := r.Open(grantNamed("b"), listen("b")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Open(grantNamed("b"), listen("b2")); err == nil {
		t.Error("one grant was opened twice")
	}

	// A broker that is gone grants nothing, and what it saw is not made up.
	end, err = r.Open(grantNamed("d"), listen("d"))
	if err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	<-over
	if _, err := end(); !errors.Is(err, ErrGone) {
		t.Errorf("end: %v", err)
	}
	await.That(t, "nothing is opened after the broker's end", func() bool {
		_, err := r.Open(grantNamed("c"), listen("c"))
		return errors.Is(err, ErrGone)
	})
}

// whole asks for something, and returns when the connection has ended: then all of it
// has been reported.
func (w *world) whole(t *testing.T, address string) {
	t.Helper()
	c := w.dial(t)
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", address)
	if _, err := io.ReadAll(c); err != nil {
		t.Error(err)
	}
}

// A broker that ends before it has said that it serves a grant has not opened it.
func TestOpenWaitsForTheBroker(t *testing.T) {
	ours, theirs := packetPair(t)
	go func() {
		_, l, err := receive(theirs)
		if err == nil {
			_ = l.Close()
		}
		_ = theirs.Close()
	}()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := NewRemote(ours).Open(grantNamed("x"), f); !errors.Is(err, ErrGone) {
		t.Errorf("Open: %v", err)
	}
}

func grantNamed(id string) Grant {
	g := grant("ok.test:80")
	g.ID = id
	return g
}

func TestObeyRefuses(t *testing.T) {
	for _, packet := range []string{"", "{", `{"open":{"id":"x"}}`, `{"close":"nobody"}` + "{"} {
		ours, theirs := packetPair(t)
		over := make(chan error, 1)
		go func() { over <- new(Broker).Obey(t.Context(), theirs) }()
		if packet == "" {
			_ = ours.Close()
		} else if _, err := ours.Write([]byte(packet)); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-over:
			if err == nil {
				t.Errorf("%q: no error", packet)
			}
		case <-time.After(await.Patience):
			t.Errorf("%q was taken", packet)
		}
		_ = ours.Close()
	}
}

// A connection is told when it begins, so that one that stays open is known; and
// many targets are counted together.
func TestTallyTellsOpenConnections(t *testing.T) {
	all := &tally{open: map[string]map[sallyport.Connection]*sallyport.Connection{}}
	all.begin("a")
	all.note(Event{Grant: "a", Host: "ok.test", Port: 443, Allowed: true, Open: true})
	if got := all.take("a"); len(got) != 1 || got[0].Count != 1 || got[0].Bytes != 0 {
		t.Errorf("open: %+v", got)
	}
	all.note(Event{Grant: "a", Host: "ok.test", Port: 443, Allowed: true, Bytes: 7})
	if got := all.take("a"); len(got) != 1 || got[0].Count != 0 || got[0].Bytes != 7 {
		t.Errorf("over: %+v", got)
	}
	for port := range uint16(1000) {
		all.note(Event{Grant: "a", Host: "no.test", Port: port, Reason: NotListed})
	}
	got, counted := all.end("a"), 0
	for _, c := range got {
		counted += c.Count
	}
	if len(got) != MaxConnections+1 || counted != 1000 || got[len(got)-1].Target != Others {
		t.Errorf("%d rows with %d attempts, the last one %+v", len(got), counted, got[len(got)-1])
	}
}
