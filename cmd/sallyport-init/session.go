package main

import (
	"syscall"

	"sallyport.dev/sallyport/tier/payload"
)

// A room is the sandbox of a session. One loop does everything, so that what a
// program wrote before it ended is always told before its end.
type room struct {
	order
	epoll   int
	home    int              // the working folder
	kids    int              // pipe on which ends of processes are told
	streams map[int]*stream  // that are read, by descriptor
	langs   map[string]*talk // interpreters that run, by name
	jobs    map[int]uint32   // by process
	front   int              // process that the request waits for, 0 if none
	partner *talk            // interpreter that the request waits for
	given   given
	up      *upload
	out     collector
}

// A stream is the output of a process, and of those that it leaves behind.
type stream struct {
	pid  int
	kind payload.Kind
	job  uint32
}

func runSession() {
	r := room{order: order{file: -1, uid: agent}, streams: map[int]*stream{}, langs: map[string]*talk{}, jobs: map[int]uint32{}}
	r.given.code, r.given.stdin = -1, -1
	for {
		k, data, err := readRecord()
		if err != nil {
			fail(err, "reading what the session is like")
		}
		if k == payload.Keep {
			break
		}
		r.take(k, data)
	}
	r.settle()
	r.furnish()
	report(payload.Ready, facts().Append(nil))
	var events [16]syscall.EpollEvent
	for {
		n, err := syscall.EpollWait(r.epoll, events[:], -1)
		if err != nil && err != syscall.EINTR {
			fail(err, "waiting")
		}
		for i := range max(n, 0) {
			r.hear(int(events[i].Fd))
		}
	}
}

// becomeFile goes on as a copy of this program that lies in the sandbox: the
// host's open file, which this process came from, would not survive a checkpoint.
func becomeFile() {
	const at = "/tmp/init"
	must(syscall.Mount("tmpfs", "/tmp", "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "size=8m,mode=0700"), "mounting a place for process 1")
	from, err := syscall.Open("/proc/self/exe", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	must(err, "/proc/self/exe")
	to, err := syscall.Open(at, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL|syscall.O_CLOEXEC, 0o700)
	must(err, at)
	buf := make([]byte, 256<<10)
	for {
		n, err := syscall.Read(from, buf)
		must(err, "reading /proc/self/exe")
		if n == 0 {
			break
		}
		must(writeFile(to, buf[:n]), at)
	}
	syscall.Close(from)
	must(syscall.Close(to), at)
	must(syscall.Exec(at, []string{"/sallyport-init", "session", "copy"}, nil), at)
}

// furnish makes what the room needs beside the sandbox.
func (r *room) furnish() {
	var err error
	must(syscall.Mkdir(payload.SessionDir, 0o755), payload.SessionDir)
	must(syscall.Mkdir(payload.SessionOwn, 0o700), payload.SessionOwn)
	must(syscall.Chown(payload.SessionOwn, agent, agent), payload.SessionOwn)
	must(syscall.Mkdir(uploads, 0o700), uploads)
	r.home, err = syscall.Open(r.dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	must(err, r.dir)
	r.epoll, err = syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	must(err, "epoll")
	var pipe [2]int
	must(syscall.Pipe2(pipe[:], syscall.O_CLOEXEC), "a pipe")
	r.kids = pipe[0]
	r.watch(r.kids)
	r.watch(fdPayload)
	syscall.CloseOnExec(fdPayload)
	syscall.CloseOnExec(fdReport)
	go reapAll(pipe[1])
}

func (r *room) watch(fd int) {
	must(syscall.EpollCtl(r.epoll, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)}), "epoll")
}

func (r *room) forget(fd int) {
	_ = syscall.EpollCtl(r.epoll, syscall.EPOLL_CTL_DEL, fd, nil)
	syscall.Close(fd)
	delete(r.streams, fd)
}

// reapAll tells of each process that ends: as its parent, or as that of orphans.
func reapAll(to int) {
	var ws syscall.WaitStatus
	for {
		pid, err := wait(&ws)
		if err == nil {
			writeAll(to, payload.AppendUint32(payload.AppendUint32(nil, uint32(pid)), uint32(ws)))
		} else if err == syscall.ECHILD { //nolint:errorlint // never wrapped; package errors would cost start-up time
			_ = syscall.Nanosleep(&syscall.Timespec{Nsec: drainStep}, nil)
		}
	}
}

// hear follows one event.
func (r *room) hear(fd int) {
	switch {
	case fd == fdPayload:
		for more := true; more; more = pending() {
			k, data, err := readRecord()
			if err != nil {
				syscall.Exit(0) // the host is gone, and with process 1 everything ends
			}
			r.follow(k, data)
		}
	case fd == r.kids:
		var b [8]byte
		if n, err := syscall.Read(fd, b[:]); n == len(b) && err == nil { // pipes keep small writes whole
			r.ended(int(payload.Uint32(b[:])), payload.Uint32(b[4:]))
		}
	case r.streams[fd] != nil:
		r.pass(fd)
	default:
		for _, t := range r.langs {
			if t.replies == fd {
				r.listen(t)
				return
			}
		}
	}
}

// follow does what one record asks for.
func (r *room) follow(k payload.Kind, data []byte) {
	switch k {
	case payload.Arg:
		r.argv = append(r.argv, string(data))
	case payload.Code:
		r.given.write(&r.given.code, payload.SessionCode, data)
	case payload.Stdin:
		r.given.write(&r.given.stdin, payload.SessionStdin, data)
	case payload.Interpret:
		r.interpret(string(data))
	case payload.Spawn:
		r.spawn(payload.Uint32(data))
	case payload.CA:
		_ = syscall.Unlink(payload.Bundle)
		trust(data)
	default:
		r.handle(k, data)
	}
}

// refuse answers a request that was not done.
func refuse(err error, what string) {
	e, _ := err.(syscall.Errno) //nolint:errorlint // never wrapped; package errors would cost start-up time
	report(payload.Refused, append(payload.AppendUint32(nil, uint32(e)), what...))
}

// launch starts a process with pipes for its output, and more descriptors from
// 3 on. stdin -1 is an empty one.
func (r *room) launch(argv []string, job uint32, stdin int, more ...int) (int, error) {
	path, err := lookPath(argv[0])
	if err != nil {
		return 0, err
	}
	var out, errs [2]int
	if err := syscall.Pipe2(out[:], syscall.O_CLOEXEC); err != nil {
		return 0, err
	}
	if err := syscall.Pipe2(errs[:], syscall.O_CLOEXEC); err != nil {
		return 0, err
	}
	_ = syscall.Fchown(out[1], agent, agent) // so that /dev/stdout can be opened
	_ = syscall.Fchown(errs[1], agent, agent)
	if stdin < 0 {
		if stdin, err = syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0); err == nil {
			defer syscall.Close(stdin)
		}
	}
	files := []uintptr{uintptr(stdin), uintptr(out[1]), uintptr(errs[1])}
	for _, fd := range more {
		files = append(files, uintptr(fd))
	}
	pid, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Dir: r.dir, Env: r.env, Files: files,
		Sys: &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: agent, Gid: agent}},
	})
	syscall.Close(out[1])
	syscall.Close(errs[1])
	if err != nil {
		syscall.Close(out[0])
		syscall.Close(errs[0])
		return 0, err
	}
	for fd, kind := range map[int]payload.Kind{out[0]: payload.Stdout, errs[0]: payload.Stderr} {
		_ = syscall.SetNonblock(fd, true)
		r.streams[fd] = &stream{pid, kind, job}
		r.watch(fd)
	}
	return pid, nil
}

// spawn runs a process of its own. The code of a job lies in a file of the job.
func (r *room) spawn(job uint32) {
	argv := r.argv
	r.argv = nil
	err := r.given.seal()
	code := payload.SessionCode
	if err == nil && job != 0 {
		code = jobFile(job)
		err = syscall.Rename(payload.SessionCode, code)
	}
	var stdin int
	if err == nil {
		stdin, err = syscall.Open(payload.SessionStdin, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	}
	if err != nil {
		refuse(err, "storing code and stdin")
		return
	}
	defer syscall.Close(stdin)
	pid, err := r.launch(append(argv, code), job, stdin)
	switch {
	case err != nil:
		refuse(err, argv[0])
	case job == 0:
		r.front = pid
		report(payload.Started, nil)
	default:
		r.jobs[pid] = job
		report(payload.OK, nil)
	}
}

// pass tells what a process wrote, and reports whether there may be more.
func (r *room) pass(fd int) bool {
	s := r.streams[fd]
	var buf [32 << 10]byte
	n, err := syscall.Read(fd, buf[:])
	if n > 0 {
		report(s.kind, append(payload.AppendUint32(nil, s.job), buf[:n]...))
		return true
	}
	if err != syscall.EAGAIN && err != syscall.EINTR {
		r.forget(fd)
	}
	return err == syscall.EINTR
}

// drain tells what a process has written by now. It ends though others may go
// on writing: a pipe holds 64 KiB.
func (r *room) drain(pid int) {
	for fd, s := range r.streams {
		if s.pid == pid {
			for n := 0; n < 4 && r.pass(fd); n++ {
			}
		}
	}
}

// ended follows the end of a process.
func (r *room) ended(pid int, ws uint32) {
	if syscall.WaitStatus(ws).Signal() == syscall.SIGBUS && diskFull() {
		hold(payload.Full, nil)
	}
	if job, ok := r.jobs[pid]; ok {
		delete(r.jobs, pid)
		r.drain(pid)
		_ = syscall.Unlink(jobFile(job))
		report(payload.JobExit, payload.AppendUint32(payload.AppendUint32(nil, job), ws))
		return
	}
	if pid == r.front {
		r.front = 0
		r.drain(pid)
		r.given.drop()
		report(payload.Exit, payload.AppendUint32(nil, ws))
		return
	}
	for name, t := range r.langs {
		if t.pid != pid {
			continue
		}
		delete(r.langs, name)
		r.forget(t.replies)
		syscall.Close(t.orders)
		r.drain(pid)
		if r.partner == t {
			r.partner = nil
			r.given.drop()
			report(payload.Exit, append(payload.AppendUint32(nil, ws), 1))
		}
	}
}
