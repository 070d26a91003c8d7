package adminapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
)

// A Peer is who is at the other end. On the unix socket it is that by the
// kernel's word; on TCP it is whoever holds a login's token.
type Peer struct {
	Local   bool
	UID     int
	PID     int
	Session uint64 // POSIX session, or half of what only the token's holder knows
	Started uint64 // when the session's leader started, or the other half
}

func (p Peer) String() string {
	if !p.Local {
		return "tcp"
	}
	return fmt.Sprintf("uid:%d", p.UID)
}

// remotePeer is the peer of a token: numbers that nobody can guess.
func remotePeer(token string) Peer {
	sum := sha256.Sum256([]byte(token))
	return Peer{UID: -1, Session: binary.BigEndian.Uint64(sum[:8]) >> 1, Started: binary.BigEndian.Uint64(sum[8:16])}
}

// peerOf reads the peer from the connection's address, or from the token.
func peerOf(r *http.Request) Peer {
	if p, ok := parsePeer(r.RemoteAddr); ok {
		return p
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return Peer{UID: -1}
	}
	return remotePeer(token)
}

// MaxSocketPath is how long the path of a unix socket may be, in bytes.
const MaxSocketPath = 107

// Listen makes the admin socket, mode 0666: who may use it is decided by the
// peer's uid, per request.
func Listen(path string) (net.Listener, error) {
	if len(path) > MaxSocketPath {
		return nil, &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf("the path %s has %d bytes; that of a socket may have %d", path, len(path), MaxSocketPath),
			Hint: "use a data folder with a shorter path"}
	}
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return nil, fmt.Errorf("another gateway serves %s", path)
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o666); err != nil {
		l.Close()
		return nil, err
	}
	return peerListener{l}, nil
}

// peerListener gives each connection its peer as remote address, which
// net/http hands on as Request.RemoteAddr.
type peerListener struct{ net.Listener }

func (l peerListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		p, err := credentials(c.(*net.UnixConn))
		if err != nil { // an unknown peer gets nothing
			c.Close()
			continue
		}
		return peerConn{c, p}, nil
	}
}

type peerConn struct {
	net.Conn
	peer peerAddr
}

func (c peerConn) RemoteAddr() net.Addr { return c.peer }

type peerAddr Peer

func (peerAddr) Network() string { return "unix" }
func (a peerAddr) String() string {
	return fmt.Sprintf("peer:%d:%d:%d:%d", a.UID, a.PID, a.Session, a.Started)
}

func credentials(c *net.UnixConn) (peerAddr, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return peerAddr{}, err
	}
	var cred *unix.Ucred
	if e := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); e != nil || err != nil {
		return peerAddr{}, fmt.Errorf("peer credentials: %v %v", e, err)
	}
	sid, err := unix.Getsid(int(cred.Pid))
	if err != nil {
		return peerAddr{}, err
	}
	if sid == 0 { // its session's leader is outside this container
		sid = foremost(int(cred.Pid))
	}
	return peerAddr{Local: true, UID: int(cred.Uid), PID: int(cred.Pid), Session: uint64(sid), Started: started(sid)}, nil
}

// foremost stands for a session whose leader is outside this container, where
// the kernel calls it 0: the process's furthest ancestor in here that is of
// such a session too. A shell between the two changes nothing.
func foremost(pid int) int {
	for {
		parent, err := strconv.Atoi(stat(pid, statParent))
		if err != nil || parent == 0 {
			return pid
		}
		if sid, err := unix.Getsid(parent); err != nil || sid != 0 {
			return pid
		}
		pid = parent
	}
}

// started is when a process started, in ticks since boot, or 0 if it is gone:
// a session id may come again, but not with the same start.
func started(pid int) uint64 {
	n, err := strconv.ParseUint(stat(pid, statStart), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Fields of /proc/PID/stat, counted from after the command's name (proc(5)
// counts from 1 and names it second).
const (
	statParent = 4 - 3
	statStart  = 22 - 3
)

// stat is one field of a process, "" if it is gone.
func stat(pid, field int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) <= field {
		return ""
	}
	return f[field]
}

// parsePeer reads a peerAddr back. A TCP address, which starts with a number
// or a bracket, is none.
func parsePeer(remote string) (Peer, bool) {
	var p Peer
	if !strings.HasPrefix(remote, "peer:") {
		return p, false
	}
	if n, err := fmt.Sscanf(remote, "peer:%d:%d:%d:%d", &p.UID, &p.PID, &p.Session, &p.Started); n != 4 || err != nil {
		return Peer{}, false
	}
	p.Local = true
	return p, true
}
