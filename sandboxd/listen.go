package sandboxd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Inherited returns a listener that accepts one connection: the other end of a
// socketpair that a parent handed over as descriptor fd. When that connection
// ends, Accept returns net.ErrClosed: the parent is gone.
func Inherited(fd uintptr) (net.Listener, error) {
	f := os.NewFile(fd, "gateway")
	if f == nil {
		return nil, fmt.Errorf("descriptor %d is not open", fd)
	}
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d is not a socket: %w", fd, err)
	}
	l := &onceListener{gone: make(chan struct{}), shut: make(chan struct{}), next: make(chan net.Conn, 1), addr: c.LocalAddr()}
	l.next <- &watchedConn{Conn: c, gone: l.gone}
	return l, nil
}

type onceListener struct {
	next chan net.Conn
	gone chan struct{}
	shut chan struct{} // closed by Close, whether or not the connection is
	once sync.Once
	addr net.Addr
}

func (l *onceListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.next:
		return c, nil
	case <-l.gone:
		return nil, net.ErrClosed
	case <-l.shut:
		return nil, net.ErrClosed
	}
}

func (l *onceListener) Close() error {
	l.once.Do(func() {
		close(l.shut)
		select {
		case c := <-l.next:
			c.Close()
		default:
		}
	})
	return nil
}

func (l *onceListener) Addr() net.Addr { return l.addr }

// A watchedConn says when it is over.
type watchedConn struct {
	net.Conn
	gone chan struct{}
	once sync.Once
}

func (c *watchedConn) Close() error {
	c.once.Do(func() { close(c.gone) })
	return c.Conn.Close()
}

// ListenUnix listens on a socket that only peers with one of the uids may use:
// the file is closed to all others, and the kernel is asked about each peer.
func ListenUnix(path string, uids ...int) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	old := unix.Umask(0o177)
	l, err := net.Listen("unix", path)
	unix.Umask(old)
	if err != nil {
		return nil, err
	}
	if len(uids) > 0 {
		if err := os.Chown(path, uids[0], -1); err != nil {
			l.Close()
			return nil, err
		}
	}
	return &peerListener{l, uids}, nil
}

type peerListener struct {
	net.Listener
	uids []int
}

func (l *peerListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if uid, err := peerUID(c); err == nil && l.allowed(uid) {
			return c, nil
		}
		c.Close()
	}
}

func (l *peerListener) allowed(uid int) bool {
	for _, u := range l.uids {
		if u == uid {
			return true
		}
	}
	return uid == 0
}

func peerUID(c net.Conn) (uid int, err error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0, errors.New("not a unix socket")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	ctlErr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(ctlErr, err); err != nil {
		return 0, err
	}
	return int(cred.Uid), nil
}
