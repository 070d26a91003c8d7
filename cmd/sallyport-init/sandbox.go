package main

import (
	"syscall"

	"sallyport.dev/sallyport/gvisor/payload"
)

const (
	fdPayload = 3
	fdReport  = 4

	uid = 1000
	gid = 1000

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
	argv    []string
	env     []string
	file    int // descriptor of the file being written, -1 if none
	ready   bool
	ahead   interpreter
	proxy   *string // socket that the proxy leads to, "" = it denies by itself, nil = no proxy
}

func runSandbox() {
	for fd := 3; fd <= 4; fd++ {
		syscall.CloseOnExec(fd)
	}
	o := order{file: -1}
	for {
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
	o.settle()
	syscall.Close(fdPayload)
	if o.ahead.pid > 0 {
		reap(o.release())
	}
	reap(o.start())
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
	case payload.Folder:
		o.prepare()
		must(syscall.Mkdir(string(data), 0o755), string(data))
		must(syscall.Lchown(string(data), uid, gid), string(data))
	case payload.File:
		o.prepare()
		o.closeFile()
		fd, err := syscall.Open(string(data), syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, 0o644)
		must(err, string(data))
		must(syscall.Fchown(fd, uid, gid), string(data))
		o.file = fd
	case payload.Data:
		for len(data) > 0 {
			n, err := syscall.Write(o.file, data)
			must(err, "writing a file")
			data = data[n:]
		}
	case payload.Arg:
		o.argv = append(o.argv, string(data))
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
	must(syscall.Chown(o.dir, uid, gid), o.dir)
	must(syscall.Chdir(o.dir), o.dir)
	for fd := 0; fd <= 2; fd++ {
		_ = syscall.Fchown(fd, uid, gid) // so that /dev/stdout can be opened; what can't be chowned stays
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
		Sys:   &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: uid, Gid: gid}},
	})
	must(err, o.argv[0])
	started()
	for fd := 0; fd <= 2; fd++ {
		syscall.Close(fd)
	}
	return pid
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
func reap(main int) {
	var ws syscall.WaitStatus
	for {
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			fail(err, "waiting")
		}
		if pid == main {
			break
		}
	}
	report(payload.Exit, payload.AppendUint32(nil, uint32(ws)))
	for range drainSteps {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err == syscall.ECHILD {
			break
		}
		if pid == 0 {
			_ = syscall.Nanosleep(&syscall.Timespec{Nsec: drainStep}, nil)
		}
	}
	report(payload.Done, nil)
	syscall.Exit(0)
}

func readRecord() (payload.Kind, []byte, error) {
	var h [payload.HeaderSize]byte
	if err := readFull(h[:]); err != nil {
		return 0, nil, err
	}
	k, n, err := payload.Header(h[:])
	if err != nil {
		return 0, nil, syscall.EMSGSIZE
	}
	data := make([]byte, n)
	return k, data, readFull(data)
}

func readFull(b []byte) error {
	for len(b) > 0 {
		n, err := syscall.Read(fdPayload, b)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return syscall.EPIPE
		}
		b = b[n:]
	}
	return nil
}

func report(k payload.Kind, data []byte) {
	b := payload.Append(nil, k, data)
	for len(b) > 0 {
		n, err := syscall.Write(fdReport, b)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			syscall.Exit(3)
		}
		b = b[n:]
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
