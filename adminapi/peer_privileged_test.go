package adminapi

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestSessionFromOutside is about terminals whose session began outside this
// PID namespace, which calls that session 0: its programs are one session still,
// however many shells are between them, and a session made inside is another.
func TestSessionFromOutside(t *testing.T) {
	switch os.Getenv("SALLYPORT_PEER") {
	case "dial":
		showPeer(t)
	case "inside":
		comparePeers(t)
	default:
		if os.Getuid() != 0 {
			t.Skip("a PID namespace with its own /proc needs root")
		}
		cmd := exec.Command("unshare", "--pid", "--fork", "--mount-proc", os.Args[0], "-test.run=^TestSessionFromOutside$")
		cmd.Env = append(os.Environ(), "SALLYPORT_PEER=inside", "SOCKET="+filepath.Join(t.TempDir(), "s"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
}

// comparePeers serves the socket and has programs of several ancestries call.
func comparePeers(t *testing.T) {
	l, err := Listen(os.Getenv("SOCKET"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peer := func(name string, args ...string) Peer {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "SALLYPORT_PEER=dial", "SELF="+os.Args[0])
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		p, ok := parsePeer(c.RemoteAddr().String())
		c.Close()
		if err := cmd.Wait(); err != nil || !ok {
			t.Fatal(c.RemoteAddr(), err)
		}
		return p
	}
	const dial = `"$SELF" -test.run='^TestSessionFromOutside$'; exit $?`
	direct := peer("sh", "-c", "exec "+dial)
	if direct.Session == 0 {
		t.Error("a session from outside has no number")
	}
	for what, args := range map[string][]string{"a shell between": {"-c", dial}, "two shells": {"-c", "(" + dial + "); exit $?"}} {
		if p := peer("sh", args...); p.Session != direct.Session || p.Started != direct.Started {
			t.Errorf("%s: %+v, want the session of %+v", what, p, direct)
		}
	}
	if p := peer("setsid", "-w", "sh", "-c", dial); p.Session == direct.Session {
		t.Errorf("a session made inside is taken for that outside: %+v", p)
	}
}

// showPeer calls and waits until the other side has seen who it is.
func showPeer(t *testing.T) {
	c, err := net.Dial("unix", os.Getenv("SOCKET"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Fatal(err)
	}
}
