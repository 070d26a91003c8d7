package main

import (
	"syscall"
	"unsafe"

	"sallyport.dev/sallyport/cage/order"
	"sallyport.dev/sallyport/tier/payload"
)

// Numbers that package syscall does not have, or not for every processor.
const (
	prSetPdeathsig  = 1
	prCapBsetDrop   = 24
	prSetNoNewPrivs = 38
	prSetSeccomp    = 22
	seccompFilter   = 2
	lastCapability  = 63 // of those that a kernel may have; the first that it has not ends the loop

	sysCloseRange     = 436
	closeRangeCloexec = 4

	sysLandlockCreate  = 444
	sysLandlockAdd     = 445
	sysLandlockEnforce = 446
	landlockVersion    = 1
	landlockBeneath    = 1
	landlockRead       = 1<<0 | 1<<2 | 1<<3 // execute, read files, read folders
	oPath              = 0x200000
	atEmptyPath        = 0x1000
	pivotDetach        = 2 // MNT_DETACH

	// high is where this program's own descriptors are while it works: beyond what
	// is given, below what it may have.
	high = 512
)

// reportFD is where a failure is told.
var reportFD = order.Report

// enter gives up what is ordered, but for what would stop it from going on.
func (o orders) enter() {
	for _, g := range o.groups {
		join(g)
	}
	if o.host != "" {
		must(syscall.Sethostname([]byte(o.host)), "the host name")
	}
	if o.root != "" {
		o.enterRoot()
	}
	if o.uid > 0 {
		become(o.uid)
	}
	if o.noNew {
		must(prctl(prSetNoNewPrivs, 1, 0), "no_new_privs")
	}
	if o.die {
		// After the change of uid, which clears it; and before the look at whether
		// there still is somebody whose end it waits for.
		must(prctl(prSetPdeathsig, uintptr(syscall.SIGKILL), 0), "the signal at the parent's end")
		alive()
	}
}

// join joins one control group. Of version 1 this thread does, alone: the program that
// it becomes has no other. To move a whole process the kernel first waits for all
// processors, 10 ms and more.
func join(dir string) {
	fd, err := syscall.Open(dir+"/tasks", syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err == syscall.ENOENT { // version 2
		fd, err = syscall.Open(dir+"/cgroup.procs", syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	}
	must(err, "the control group")
	_, err = syscall.Write(fd, []byte("0"))
	must(err, "the control group")
	must(syscall.Close(fd), "the control group")
}

// enterRoot makes the root all that there is of file systems.
func (o orders) enterRoot() {
	must(syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""), "keeping mounts apart")
	if o.empty {
		must(syscall.Mount("cage", o.root, "tmpfs", syscall.MS_RDONLY|syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, "size=4096,nr_inodes=8,mode=0555"), "an empty root")
	} else {
		bind(o.root, o.root, 0)
	}
	for _, p := range o.places {
		for i := range len(p) {
			if p[i] == 0 {
				bind(p[:i], o.root+p[i+1:], syscall.MS_NOEXEC)
			}
		}
	}
	if o.random { // the one device
		to := o.root + order.RandomPath
		must(syscall.Mount(order.RandomPath, to, "", syscall.MS_BIND, ""), "showing "+to)
		must(syscall.Mount("", to, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY|syscall.MS_NOSUID|syscall.MS_NOEXEC, ""), "showing "+to+" read-only")
	}
	must(syscall.Chdir(o.root), "the root")
	must(syscall.PivotRoot(".", "."), "the root")
	must(syscall.Unmount(".", pivotDetach), "leaving the host's root")
	must(syscall.Chdir("/"), "the root")
}

func bind(from, to string, more uintptr) {
	must(syscall.Mount(from, to, "", syscall.MS_BIND, ""), "showing "+to)
	must(syscall.Mount("", to, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY|syscall.MS_NOSUID|syscall.MS_NODEV|more, ""), "showing "+to+" read-only")
}

// become gives up root. The calls are raw: they are for this thread.
func become(uid int) {
	for c := uintptr(0); c <= lastCapability; c++ {
		if err := prctl(prCapBsetDrop, c, 0); c > 0 && number(err) == int(syscall.EINVAL) {
			break
		} else {
			must(err, "dropping capabilities")
		}
	}
	id := uintptr(uid)
	must(raw(syscall.SYS_SETGROUPS, 0, 0, 0), "leaving groups")
	must(raw(syscall.SYS_SETRESGID, id, id, id), "changing gid")
	must(raw(syscall.SYS_SETRESUID, id, id, id), "changing uid")
}

// alive ends the program if nobody holds the other end of its orders: then the
// parent ended before its end would have ended this one.
func alive() {
	must(syscall.SetNonblock(order.FD, true), "orders")
	var b [1]byte
	n, err := syscall.Read(order.FD, b[:])
	if n != -1 || err != syscall.EAGAIN {
		must(syscall.ESRCH, "the sandbox host is gone")
	}
}

// become executes the program. What it is given lies from descriptor 3 on.
func (o orders) become() {
	reportFD = move(order.Report, high)
	must(dup3(order.Program, order.Kept), "the program")
	for i := range o.files {
		must(syscall.Dup3(order.Given+i, order.FD+i, 0), "descriptors")
	}
	for fd := order.FD + o.files; fd < order.Given+o.files; fd++ { // given, and moved
		_, _ = fcntl(fd, syscall.F_SETFD, syscall.FD_CLOEXEC)
	}
	if o.close {
		closeFrom(order.FD + o.files)
	}
	argv, err := syscall.SlicePtrFromStrings(o.argv)
	must(err, "arguments")
	env, err := syscall.SlicePtrFromStrings(o.env)
	must(err, "environment")
	filter := program(o.filter)
	empty := [1]byte{}
	if o.landlock {
		onlyRead()
	}
	for _, l := range o.limits {
		r := syscall.Rlimit{Cur: l.value, Max: l.value}
		must(raw(syscall.SYS_SETRLIMIT, uintptr(l.resource), uintptr(unsafe.Pointer(&r)), 0), "limits")
	}
	if filter != nil {
		must(prctl(prSetSeccomp, seccompFilter, uintptr(unsafe.Pointer(filter))), "the filter of system calls")
	}
	_, _, e := syscall.RawSyscall6(sysExecveat, order.Kept, uintptr(unsafe.Pointer(&empty)),
		uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&env[0])), atEmptyPath, 0)
	must(e, "executing the program")
}

// closeFrom has execution close all from a descriptor on, whoever left it open.
func closeFrom(fd int) {
	if raw(sysCloseRange, uintptr(fd), ^uintptr(0), closeRangeCloexec) == nil {
		return
	}
	var l syscall.Rlimit // a kernel before 5.11
	must(syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l), "descriptors")
	for ; fd < int(min(l.Max, 1<<20)); fd++ {
		_, _ = fcntl(fd, syscall.F_SETFD, syscall.FD_CLOEXEC) // most are none
	}
}

// A fprog is the kernel's struct sock_fprog.
type fprog struct {
	n    uint16
	code *byte
}

func program(b []byte) *fprog {
	if len(b) == 0 {
		return nil
	}
	return &fprog{uint16(len(b) / 8), &b[0]}
}

// onlyRead has landlock keep the program to reading what is in its root, and to
// the network and the other programs that it is given: none. Kernels differ in
// how much of it they know.
func onlyRead() {
	version, _, e := syscall.RawSyscall(sysLandlockCreate, 0, 0, landlockVersion)
	if e != 0 {
		must(e, "landlock")
	}
	rules := struct{ fs, net, scope uint64 }{fs: 1<<13 - 1}
	size := uintptr(8)
	if version >= 2 {
		rules.fs |= 1 << 13 // refer
	}
	if version >= 3 {
		rules.fs |= 1 << 14 // truncate
	}
	if version >= 4 {
		rules.net, size = 3, 16 // bind, connect
	}
	if version >= 5 {
		rules.fs |= 1 << 15 // ioctl of devices
	}
	if version >= 6 {
		rules.scope, size = 3, 24 // abstract sockets, signals
	}
	set, _, e := syscall.RawSyscall(sysLandlockCreate, uintptr(unsafe.Pointer(&rules)), size, 0)
	if e != 0 {
		must(e, "landlock")
	}
	root, err := syscall.Open("/", oPath|syscall.O_CLOEXEC, 0)
	must(err, "landlock")
	allow(int(set), root, landlockRead)
	allow(int(set), order.Kept, landlockRead&^(1<<3))
	must(raw(sysLandlockEnforce, set, 0, 0), "landlock")
}

func allow(set, fd int, access uint64) {
	var rule [12]byte // packed: uint64, int32
	b := payload.AppendUint64(rule[:0], access)
	payload.AppendUint32(b, uint32(fd))
	_, _, e := syscall.RawSyscall6(sysLandlockAdd, uintptr(set), landlockBeneath, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if e != 0 {
		must(e, "landlock")
	}
}

func move(fd, to int) int {
	n, err := fcntl(fd, syscall.F_DUPFD_CLOEXEC, to)
	must(err, "descriptors")
	return n
}

func dup3(from, to int) error { return syscall.Dup3(from, to, syscall.O_CLOEXEC) }

func fcntl(fd, cmd, arg int) (int, error) {
	n, _, e := syscall.RawSyscall(syscall.SYS_FCNTL, uintptr(fd), uintptr(cmd), uintptr(arg))
	if e != 0 {
		return -1, e
	}
	return int(n), nil
}

//go:uintptrescapes
func prctl(option, a, b uintptr) error { return raw(syscall.SYS_PRCTL, option, a, b) }

//go:uintptrescapes
func raw(call, a, b, c uintptr) error {
	if _, _, e := syscall.RawSyscall6(call, a, b, c, 0, 0, 0); e != 0 {
		return e
	}
	return nil
}
