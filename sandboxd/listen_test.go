package sandboxd

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Only the peers that were named may talk, even where the file's mode would let
// others in.
func TestListenUnix(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root to become other users")
	}
	dir, err := os.MkdirTemp("", "sallyport-listen-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	l, err := ListenUnix(path, 64650)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Mode&0o777 != 0o600 || st.Uid != 64650 {
		t.Errorf("the socket has mode %o and uid %d, %v", st.Mode&0o777, st.Uid, err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("hi")) //nolint:errcheck // the reader's side is the test
			c.Close()
		}
	}()
	if _, err := dialAs(65534, path); !errors.Is(err, unix.EACCES) {
		t.Errorf("another uid could connect: %v", err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[int]string{0: "hi", 64650: "hi", 65534: ""} {
		if got, err := dialAs(uid, path); got != want {
			t.Errorf("uid %d read %q (%v), want %q", uid, got, err, want)
		}
	}
}

// dialAs connects and reads as uid, on a thread of its own that ends afterwards.
func dialAs(uid int, path string) (got string, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); e != 0 {
			err = e
			return
		}
		var fd int
		if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return
		}
		defer unix.Close(fd)
		if err = unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
			return
		}
		buf := make([]byte, 8)
		var n int
		if n, err = unix.Read(fd, buf); n > 0 {
			got = string(buf[:n])
		}
	}()
	<-done
	return got, err
}

// An inherited connection is accepted once, and its end ends the listener.
func TestInherited(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	l, err := Inherited(uintptr(fds[1]))
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fds[0])
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the other end is closed, but Read worked")
	}
	c.Close()
	ended := make(chan error)
	go func() { _, err := l.Accept(); ended <- err }()
	select {
	case err := <-ended:
		if !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("Accept waits on, though the gateway is gone")
	}
	if _, err := Inherited(9999); err == nil {
		t.Error("a descriptor that is not open was accepted")
	}
}
