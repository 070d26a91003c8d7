package main

import (
	"syscall"

	"sallyport.dev/sallyport/tier/payload"
)

// Descriptors that process 1 talks on.
var (
	fdPayload = 3
	fdReport  = 4
)

// fdLine is where the order of an interpreter that is started ahead comes from.
const fdLine = payload.AheadLine

const (
	agent = 1000 // uid and gid of the program, if the order names no other

	rlimitNproc = 6

	// drain is how long processes that outlive the main one may go on.
	drainStep  = 2_000_000 // ns
	drainSteps = 100       // 200 ms in all
)

// An order is what the payload asks for.
type order struct {
	settled bool
	disk    string
	procs   uint32
	dir     string
	uid     int
	places  []string // see payload.Place
	stays   bool     // the stream goes on after Go
	argv    []string
	env     []string
	file    int // descriptor of the file being written, -1 if none
	ready   bool
	output  bool     // there is a folder for results
	ahead   int      // process of the interpreter that was started ahead, 0 if there is none
	made    []string // files so far
	told    bool     // how it is held
	line    *line    // to whoever had the program run, nil if there is none
	proxy   *string  // socket that the proxy leads to, "" = it denies by itself, nil = no proxy
}

func runSandbox() {
	for fd := 3; fd <= fdLine; fd++ {
		syscall.CloseOnExec(fd)
	}
	o := order{file: -1, uid: agent}
	o.read()
	if o.ahead > 0 {
		go o.provide()
		o.reap(o.ahead)
	}
	o.settle()
	if !o.stays && o.line == nil {
		syscall.Close(fdPayload)
	}
	pid := o.start()
	if o.stays {
		go passOn(pid)
	} else if o.line != nil {
		go o.provide()
	}
	o.reap(pid)
}

// read takes records until Go, or until an interpreter waits for its order.
func (o *order) read() {
	for o.ahead == 0 {
		k, data, err := readRecord()
		if err != nil {
			fail(err, "reading what to run")
		}
		if k == payload.Go {
			break
		}
		o.take(k, data)
	}
	o.closeFile()
}

// settle does, once, what is the same for every program of this sandbox.
func (o *order) settle() {
	if o.settled {
		return
	}
	o.settled = true
	o.prepare()
	if o.proxy != nil {
		startProxy(*o.proxy)
	}
	dropPrivileges(o.procs)
}

// take follows one record.
func (o *order) take(k payload.Kind, data []byte) {
	switch k {
	case payload.Disk:
		o.disk = string(data)
	case payload.Procs:
		o.procs = payload.Uint32(data)
	case payload.Dir:
		o.dir = string(data)
	case payload.User:
		o.uid = int(payload.Uint32(data))
	case payload.Place:
		o.places = append(o.places, string(data))
	case payload.Stay:
		o.stays = true
	case payload.Folder:
		o.prepare()
		must(syscall.Mkdir(string(data), 0o755), string(data))
		must(syscall.Lchown(string(data), o.uid, o.uid), string(data))
	case payload.File:
		o.prepare()
		o.closeFile()
		fd, err := syscall.Open(string(data), syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, 0o644)
		must(err, string(data))
		must(syscall.Fchown(fd, o.uid, o.uid), string(data))
		o.file = fd
		o.made = append(o.made, string(data))
	case payload.Data:
		for len(data) > 0 {
			n, err := syscall.Write(o.file, data)
			must(err, "writing a file")
			data = data[n:]
		}
	case payload.Arg:
		o.argv = append(o.argv, string(data))
	case payload.Output:
		o.output = true
	case payload.Talk:
		o.prepare()
		o.line = openLine()
	case payload.Said:
		o.line.say(data)
	case payload.Ahead:
		o.startAhead()
	case payload.CA:
		o.prepare()
		trust(data)
	case payload.Proxy:
		socket := string(data)
		o.proxy = &socket
	case payload.Env:
		o.env = append(o.env, string(data))
	default:
		fail(syscall.EINVAL, "unknown record")
	}
}

func (o *order) closeFile() {
	if o.file >= 0 {
		must(syscall.Close(o.file), "closing a file")
		o.file = -1
	}
}

// prepare makes the writable folders, once. All of them are parts of one
// tmpfs, so that one size bounds them together.
func (o *order) prepare() {
	if o.ready {
		return
	}
	o.ready = true
	const flags = syscall.MS_NOSUID | syscall.MS_NODEV
	must(syscall.Mount("tmpfs", "/run", "tmpfs", flags, o.disk+",mode=0755"), "mounting /run")
	for _, f := range []struct {
		from, to string
		mode     uint32
	}{
		{"/run/tmp", "/tmp", 0o1777},
		{"/run/shm", "/dev/shm", 0o1777},
		{"/run/home", "/home", 0o755},
		{"/run/run", "/run", 0o1777}, // last: it hides the others
	} {
		must(syscall.Mkdir(f.from, 0o755), f.from)
		must(syscall.Chmod(f.from, f.mode), f.from)
		must(syscall.Mount(f.from, f.to, "", syscall.MS_BIND, ""), f.to)
	}
	for _, dev := range []string{"/dev/fuse", "/dev/net/tun"} { // gVisor's own; nobody here needs them
		if err := syscall.Unlink(dev); err != syscall.ENOENT {
			must(err, dev)
		}
	}
	must(syscall.Mkdir(o.dir, 0o755), o.dir)
	must(syscall.Chown(o.dir, o.uid, o.uid), o.dir)
	if o.stays {
		o.placeMounts()
	}
	must(syscall.Chdir(o.dir), o.dir)
	if o.output {
		must(syscall.Mkdir(payload.OutputDir, 0o755), payload.OutputDir)
		must(syscall.Chown(payload.OutputDir, o.uid, o.uid), payload.OutputDir)
	}
	for fd := 0; fd <= 2 && fdPayload > 2; fd++ { // else they are process 1's own
		_ = syscall.Fchown(fd, o.uid, o.uid) // so that /dev/stdout can be opened; what can't be chowned stays
	}
}

func dropPrivileges(procs uint32) {
	// The kernel counts tasks for the uid that made them: the program's first one
	// was made by us, before it changed its uid.
	procs = max(procs, 1) - 1
	lim := syscall.Rlimit{Cur: uint64(procs), Max: uint64(procs)}
	must(syscall.Setrlimit(rlimitNproc, &lim), "limiting processes")
	for c := range uintptr(lastCapability + 1) {
		must(prctl(prCapBsetDrop, c), "dropping capabilities")
	}
	must(prctl(prSetNoNewPrivs, 1), "no_new_privs")
}

func (o *order) start() int {
	path, err := lookPath(o.argv[0])
	must(err, o.argv[0])
	pid, err := syscall.ForkExec(path, o.argv, &syscall.ProcAttr{
		Env:   o.env,
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: uint32(o.uid), Gid: uint32(o.uid)}},
	})
	must(err, o.argv[0])
	o.started()
	closeStreams()
	return pid
}

func closeStreams() {
	for fd := 0; fd <= 2; fd++ {
		syscall.Close(fd)
	}
}

// lookPath finds a program as execvp would.
func lookPath(name string) (string, error) {
	for i := range len(name) {
		if name[i] == '/' {
			return name, nil
		}
	}
	for _, dir := range []string{"/usr/local/bin/", "/usr/bin/", "/bin/"} {
		if syscall.Access(dir+name, 1) == nil {
			return dir + name, nil
		}
	}
	return "", syscall.ENOENT
}

// reap waits for the main process, reports its status, gives the others a
// moment to end, and ends; the kernel then kills whatever is left.
func (o *order) reap(main int) {
	var ws syscall.WaitStatus
	for {
		pid, err := wait(&ws)
		if err != nil {
			fail(err, "waiting")
		}
		if pid == main {
			break
		}
	}
	if o.line != nil {
		o.line.drain()
	}
	hold(payload.Exit, payload.AppendUint32(nil, uint32(ws)))
	if diskFull() {
		hold(payload.Full, nil)
	}
	for range drainSteps {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err == syscall.ECHILD {
			break
		}
		if pid == 0 {
			flush()
			_ = syscall.Nanosleep(&syscall.Timespec{Nsec: drainStep}, nil)
		}
	}
	if o.output {
		new(collector).collect()
	}
	report(payload.Done, nil)
	syscall.Exit(0)
}

// diskFull is whether the writable folders have no room left. Whoever wrote there
// through a mapping was told by SIGBUS alone, which no trace of system calls shows.
func diskFull() bool {
	var fs syscall.Statfs_t
	return syscall.Statfs("/run", &fs) == nil && fs.Blocks > 0 && fs.Bfree == 0
}

// wait waits until a child has ended. One that has itself traced by its parent, which
// is this, and stops for that, goes on without, or ends where it cannot.
func wait(ws *syscall.WaitStatus) (pid int, err error) {
	for {
		pid, err = syscall.Wait4(-1, ws, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err == nil && ws.Stopped():
			sig := ws.StopSignal()
			if sig == syscall.SIGTRAP { // told to who traces
				sig = 0
			}
			if _, _, e := syscall.RawSyscall6(syscall.SYS_PTRACE, syscall.PTRACE_DETACH, uintptr(pid), 0, uintptr(sig), 0, 0); e != 0 { // a parent is a thread
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		default:
			return pid, err
		}
	}
}

func must(err error, what string) {
	if err != nil {
		fail(err, what)
	}
}

func fail(err error, what string) {
	e, _ := err.(syscall.Errno) //nolint:errorlint // never wrapped; package errors would cost start-up time
	report(payload.Failed, append(payload.AppendUint32(nil, uint32(e)), what+": "+err.Error()...))
	syscall.Exit(3)
}
