package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/microvm/guest"
)

// openChannel waits for the channel to the host: a virtio port, or a port of vsock.
func openChannel() (io.ReadWriteCloser, error) {
	for end := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		names, _ := filepath.Glob("/sys/class/virtio-ports/*/name") // the pattern is well-formed
		for _, n := range names {
			if b, _ := os.ReadFile(n); strings.TrimSpace(string(b)) == guest.PortName {
				return openPort("/dev/"+filepath.Base(filepath.Dir(n)), end)
			}
		}
		if l, err := listenVsock(); err == nil {
			return l, nil
		}
		if time.Now().After(end) {
			return nil, errors.New("this machine has none")
		}
	}
}

func openPort(path string, end time.Time) (io.ReadWriteCloser, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err == nil {
			return port{polled(fd)}, nil
		}
		if time.Now().After(end) {
			return nil, err
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// A port reads nothing while the host is away, which is not its end.
type port struct{ *os.File }

func (p port) Read(b []byte) (int, error) {
	for {
		n, err := p.File.Read(b)
		if n > 0 || err != nil && !errors.Is(err, io.EOF) {
			return n, err
		}
		time.Sleep(time.Millisecond)
	}
}

// A caller is a channel of vsock. Whoever restores a snapshot calls anew, and the
// stream goes on.
type caller struct {
	listener int
	conn     int // -1 if nobody is there
}

func listenVsock() (*caller, error) {
	s, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	err = unix.Bind(s, &unix.SockaddrVM{CID: unix.VMADDR_CID_ANY, Port: guest.VsockPort})
	if err == nil {
		err = unix.Listen(s, 1)
	}
	if _, e := os.Stat("/dev/vsock"); err == nil && e != nil {
		err = e
	}
	if err != nil {
		unix.Close(s)
		return nil, err
	}
	c := &caller{listener: s, conn: -1}
	return c, c.await()
}

func (c *caller) await() error {
	for {
		fd, _, err := unix.Accept4(c.listener, unix.SOCK_CLOEXEC)
		switch {
		case err == nil:
			c.conn = fd
			return nil
		case err != unix.EINTR && err != unix.ECONNABORTED:
			return err
		}
	}
}

// Read implements io.Reader. Only it notices that the host calls anew.
func (c *caller) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(c.conn, b)
		switch {
		case err == unix.EINTR:
		case n > 0:
			return n, nil
		default:
			unix.Close(c.conn)
			if err := c.await(); err != nil {
				return 0, err
			}
		}
	}
}

// Write implements io.Writer. What is written while nobody is there waits.
func (c *caller) Write(b []byte) (int, error) {
	done := 0
	for done < len(b) {
		n, err := unix.SendmsgN(c.conn, b[done:], nil, nil, unix.MSG_NOSIGNAL)
		switch {
		case err == unix.EINTR:
		case err != nil:
			time.Sleep(time.Millisecond)
		default:
			done += n
		}
	}
	return done, nil
}

// Close implements io.Closer.
func (c *caller) Close() error { return unix.Close(c.listener) }
