package main

import (
	"sync"
	"syscall"
	"unsafe"

	"sallyport.dev/sallyport/tier/payload"
)

// A line carries bytes between one program, which connects to payload.TalkSocket,
// and the host. Process 1 does not look into them.
type line struct {
	connected chan int
	over      chan struct{} // closed when the program says nothing any more
	to        int           // the program, -1 before its first answer

	mu    sync.Mutex // held from when something is taken until it is told
	from  int        // where the program connects, and then its connection
	open  bool       // it has connected
	heard int        // bytes so far
}

// openLine listens for the one program. Whoever comes second is nobody.
func openLine() *line {
	l, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	must(err, "the line's socket")
	must(syscall.Bind(l, &syscall.SockaddrUnix{Name: payload.TalkSocket}), payload.TalkSocket)
	must(syscall.Chmod(payload.TalkSocket, 0o666), payload.TalkSocket)
	must(syscall.Listen(l, 1), payload.TalkSocket)
	o := &line{connected: make(chan int, 1), over: make(chan struct{}), to: -1, from: l}
	go o.hear()
	return o
}

// heardMost keeps a record whole in its pipe, with a little that was held before it:
// the sandbox's kernel writes there, too, and only up to 4096 bytes are one piece.
const heardMost = 3 << 10

func (o *line) hear() {
	defer close(o.over)
	buf := make([]byte, heardMost)
	for !readable(o.from, nil) || o.next(buf) {
	}
}

// next takes the connection, or what has come by it, and tells whether there may be
// more.
func (o *line) next(buf []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open {
		n, err := syscall.Read(o.from, buf)
		if n > 0 {
			report(payload.Heard, buf[:n])
			o.heard += n
		}
		return n > 0 || err == syscall.EINTR
	}
	c, _, err := syscall.Accept4(o.from, syscall.SOCK_CLOEXEC)
	if err != nil {
		return err == syscall.EINTR || err == syscall.ECONNABORTED
	}
	_ = syscall.Unlink(payload.TalkSocket)
	syscall.Close(o.from)
	o.from, o.open = c, true
	o.connected <- c
	return true
}

// drain waits until all has been heard that the program said before it ended,
// however long that takes, and not for a child that has the connection from it.
func (o *line) drain() {
	for owed := -1; !o.told(&owed); {
		select {
		case <-o.over:
			return
		default:
			_ = syscall.Nanosleep(&syscall.Timespec{Nsec: drainStep}, nil)
		}
	}
}

// told tells whether all has been told that was said when it was asked first. owed is
// how much that is, once it is known.
func (o *line) told(owed *int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case !o.open:
		return !readable(o.from, new(syscall.Timespec)) // nobody is about to be let in
	case *owed < 0:
		*owed = o.heard + unreadOf(o.from)
	}
	return o.heard >= *owed
}

// unreadOf is how many bytes a connection holds.
func unreadOf(fd int) int {
	var n int32
	_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TIOCINQ, uintptr(unsafe.Pointer(&n)))
	return int(n)
}

// say gives the program bytes. A program that reads none holds up nothing else.
func (o *line) say(b []byte) {
	if o.to < 0 {
		o.to = <-o.connected // nothing is said to who has not spoken
	}
	writeAll(o.to, b)
}
