package main

import (
	"sync/atomic"
	"syscall"

	"sallyport.dev/sallyport/tier/payload"
)

// A line carries bytes between one program, which connects to payload.TalkSocket,
// and the host. Process 1 does not look into them.
type line struct {
	connected chan int
	heard     atomic.Int64  // bytes so far
	over      chan struct{} // closed when the program says nothing any more
	to        int           // the program, -1 before its first answer
}

// openLine listens for the one program. Whoever comes second is nobody.
func openLine() *line {
	l, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	must(err, "the line's socket")
	must(syscall.Bind(l, &syscall.SockaddrUnix{Name: payload.TalkSocket}), payload.TalkSocket)
	must(syscall.Chmod(payload.TalkSocket, 0o666), payload.TalkSocket)
	must(syscall.Listen(l, 1), payload.TalkSocket)
	o := &line{connected: make(chan int, 1), over: make(chan struct{}), to: -1}
	go o.hear(l)
	return o
}

// heardMost keeps a record whole in its pipe, with a little that was held before it:
// the sandbox's kernel writes there, too, and only up to 4096 bytes are one piece.
const heardMost = 3 << 10

func (o *line) hear(l int) {
	defer close(o.over)
	var c int
	for {
		var err error
		if c, _, err = syscall.Accept4(l, syscall.SOCK_CLOEXEC); err == nil {
			break
		}
		if err != syscall.EINTR && err != syscall.ECONNABORTED {
			return
		}
	}
	_ = syscall.Unlink(payload.TalkSocket)
	syscall.Close(l)
	o.connected <- c
	buf := make([]byte, heardMost)
	for {
		n, err := syscall.Read(c, buf)
		if err == syscall.EINTR {
			continue
		}
		if n <= 0 {
			return
		}
		report(payload.Heard, buf[:n])
		o.heard.Add(int64(n))
	}
}

// drain waits until all has been heard that the program said before it ended. It
// ends though a child that has the connection from it may go on.
func (o *line) drain() {
	last := o.heard.Load()
	for still := 0; still < drainSteps; still++ {
		select {
		case <-o.over:
			return
		default:
		}
		_ = syscall.Nanosleep(&syscall.Timespec{Nsec: drainStep}, nil)
		if n := o.heard.Load(); n != last {
			last, still = n, 0
		}
	}
}

// say gives the program bytes. A program that reads none holds up nothing else.
func (o *line) say(b []byte) {
	if o.to < 0 {
		o.to = <-o.connected // nothing is said to who has not spoken
	}
	writeAll(o.to, b)
}
