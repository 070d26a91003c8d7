package main

import (
	"syscall"

	"sallyport.dev/sallyport/tier/payload"
)

// A talk is an interpreter that stays. It reads a line from descriptor 3 for
// each program to run, and writes its exit status as a line to descriptor 4.
type talk struct {
	name    string
	pid     int
	orders  int
	replies int
	said    []byte
}

const lineMax = 16

// interpret gives the code to an interpreter, which is started if need be.
func (r *room) interpret(name string) {
	argv := r.argv
	r.argv = nil
	if err := r.given.seal(); err != nil {
		refuse(err, "storing code and stdin")
		return
	}
	t := r.langs[name]
	if t == nil {
		var err error
		if t, err = r.startTalk(name, argv); err != nil {
			refuse(err, argv[0])
			return
		}
	}
	r.partner = t
	report(payload.Started, nil)
	if !writeAll(t.orders, []byte("go\n")) {
		_ = syscall.Kill(t.pid, syscall.SIGKILL) // it closed its ear: its end ends the request
	}
}

func (r *room) startTalk(name string, argv []string) (*talk, error) {
	var orders, replies [2]int
	if err := syscall.Pipe2(orders[:], syscall.O_CLOEXEC); err != nil {
		return nil, err
	}
	if err := syscall.Pipe2(replies[:], syscall.O_CLOEXEC); err != nil {
		return nil, err
	}
	pid, err := r.launch(argv, 0, -1, orders[0], replies[1])
	syscall.Close(orders[0])
	syscall.Close(replies[1])
	if err != nil {
		syscall.Close(orders[1])
		syscall.Close(replies[0])
		return nil, err
	}
	_ = syscall.SetNonblock(replies[0], true)
	t := &talk{name: name, pid: pid, orders: orders[1], replies: replies[0]}
	r.langs[name] = t
	r.watch(t.replies)
	return t, nil
}

// listen reads what an interpreter replies: the status of its program.
func (r *room) listen(t *talk) {
	var buf [lineMax]byte
	n, err := syscall.Read(t.replies, buf[:])
	if n <= 0 {
		if err != syscall.EAGAIN && err != syscall.EINTR {
			_ = syscall.EpollCtl(r.epoll, syscall.EPOLL_CTL_DEL, t.replies, nil)
			_ = syscall.Kill(t.pid, syscall.SIGKILL) // it can say nothing any more
		}
		return
	}
	for _, b := range buf[:n] {
		if b != '\n' {
			if len(t.said) < lineMax {
				t.said = append(t.said, b)
			}
			continue
		}
		status := uint32(0)
		for _, d := range t.said {
			status = status*10 + uint32(d-'0')
		}
		t.said = nil
		if r.partner == t {
			r.partner = nil
			r.drain(t.pid)
			r.given.drop()
			report(payload.Exit, payload.AppendUint32(nil, status&0xff<<8))
		}
	}
}
