package main

import (
	"strconv"
	"syscall"

	"sallyport.dev/sallyport/gvisor/payload"
)

// An interpreter was started ahead of its program. It has the program's uid,
// limits and descriptors, and waits; then it becomes the program.
type interpreter struct {
	pid    int
	orders int // pipe on which it is told what to be
}

// startAhead starts what the Args so far say, waits until it is ready, and
// says so.
func (o *order) startAhead() {
	o.closeFile()
	o.settle()
	if len(o.argv) > 0 {
		o.ahead = o.startInterpreter()
	}
	o.argv, o.env = nil, nil
	report(payload.Ready, nil)
}

func (o *order) startInterpreter() interpreter {
	var orders, ready [2]int
	must(syscall.Pipe2(orders[:], syscall.O_CLOEXEC), "a pipe")
	must(syscall.Pipe2(ready[:], syscall.O_CLOEXEC), "a pipe")
	path, err := lookPath(o.argv[0])
	must(err, o.argv[0])
	files := []uintptr{0, 1, 2, payload.AheadOrders: uintptr(orders[0]), payload.AheadReady: uintptr(ready[1])}
	pid, err := syscall.ForkExec(path, o.argv, &syscall.ProcAttr{
		Env: o.env, Files: files,
		Sys: &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: uint32(o.uid), Gid: uint32(o.uid)}},
	})
	must(err, o.argv[0])
	syscall.Close(orders[0])
	syscall.Close(ready[1])
	var b [1]byte
	for {
		n, err := syscall.Read(ready[0], b[:])
		if err == syscall.EINTR {
			continue
		}
		if n != 1 {
			fail(syscall.EPIPE, "the interpreter started ahead")
		}
		break
	}
	syscall.Close(ready[0])
	return interpreter{pid, orders[1]}
}

// release tells the interpreter what to be.
func (o *order) release() int {
	b := append([]byte(strconv.Itoa(len(o.argv))), 0)
	for _, s := range append(o.argv, o.env...) {
		b = append(append(b, s...), 0)
	}
	started()
	if !writeAll(o.ahead.orders, b) {
		fail(syscall.EPIPE, "the interpreter started ahead")
	}
	syscall.Close(o.ahead.orders)
	for fd := 0; fd <= 2; fd++ {
		syscall.Close(fd)
	}
	return o.ahead.pid
}
