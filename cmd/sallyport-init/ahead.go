package main

import (
	"syscall"

	"sallyport.dev/sallyport/tier/payload"
)

// startAhead starts what the Args so far say, waits until it is ready, and says
// so, and how the sandbox is held: from here on nothing of that changes. What was
// started has the program's uid, limits and descriptors; it reads its order and
// becomes the program.
func (o *order) startAhead() {
	o.closeFile()
	o.settle()
	if len(o.argv) > 0 {
		o.ahead = o.startInterpreter()
		closeStreams()
	}
	for _, f := range o.made {
		if f[0] != '/' { // what it was started from, in the working folder
			must(syscall.Unlink(f), f)
		}
	}
	o.argv, o.env, o.made, o.told = nil, nil, nil, true
	report(payload.Ready, facts().Append(nil))
}

func (o *order) startInterpreter() int {
	var ready [2]int
	must(syscall.Pipe2(ready[:], syscall.O_CLOEXEC), "a pipe")
	path, err := lookPath(o.argv[0])
	must(err, o.argv[0])
	files := []uintptr{0, 1, 2, payload.AheadOrder: fdLine, payload.AheadReady: uintptr(ready[1])}
	pid, err := syscall.ForkExec(path, o.argv, &syscall.ProcAttr{
		Env: o.env, Files: files,
		Sys: &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: uint32(o.uid), Gid: uint32(o.uid)}},
	})
	must(err, o.argv[0])
	syscall.Close(fdLine)
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
	return pid
}

// provide makes the files that do not fit into the interpreter's order. Its
// order follows when they are there.
func (o *order) provide() {
	for {
		k, data, err := readRecord()
		switch {
		case err != nil:
			return // the host wants nothing more
		case k == payload.Go:
			o.closeFile()
			o.started()
		default:
			o.take(k, data)
		}
	}
}
