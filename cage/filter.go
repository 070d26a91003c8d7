package cage

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/cage/order"
)

// The filter of system calls. It is a list of what is allowed: all else fails
// with EPERM, and calls of another processor's kind end the program.

// A rule allows a call; where arg ≥ 0, only if that argument is one of values, or
// has all the bits of mask.
type rule struct {
	call   uint32
	arg    int
	values []uint32
	mask   uint32
}

// plain are the calls that a program may make whatever their arguments: none
// makes or reaches what is outside of the cage.
var plain = []uint32{
	// memory, threads and waiting
	unix.SYS_FUTEX, unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_MREMAP, unix.SYS_BRK,
	unix.SYS_SET_ROBUST_LIST, unix.SYS_GET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_SET_TID_ADDRESS, unix.SYS_MEMBARRIER, unix.SYS_PKEY_ALLOC, unix.SYS_PKEY_FREE, unix.SYS_PKEY_MPROTECT,
	unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_SCHED_GETPARAM, unix.SYS_SCHED_GETSCHEDULER, unix.SYS_GETCPU,
	unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES, unix.SYS_GETTIMEOFDAY,
	unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_DELETE, unix.SYS_SETITIMER, unix.SYS_TIMERFD_CREATE, unix.SYS_TIMERFD_SETTIME,
	unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
	// signals to itself
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_RT_SIGTIMEDWAIT, unix.SYS_RT_SIGPENDING, unix.SYS_SIGALTSTACK, unix.SYS_TGKILL, unix.SYS_RESTART_SYSCALL, unix.SYS_SIGNALFD4,
	// descriptors that it has
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_PREAD64, unix.SYS_PWRITE64, unix.SYS_PREADV, unix.SYS_PWRITEV, unix.SYS_LSEEK,
	unix.SYS_CLOSE, unix.SYS_CLOSE_RANGE, unix.SYS_DUP, unix.SYS_DUP3, unix.SYS_FCNTL, unix.SYS_FSTAT, unix.SYS_FTRUNCATE, unix.SYS_FADVISE64,
	unix.SYS_PIPE2, unix.SYS_EVENTFD2, unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2, unix.SYS_PPOLL, unix.SYS_PSELECT6,
	// files of the read-only root
	unix.SYS_OPENAT, unix.SYS_NEWFSTATAT, unix.SYS_STATX, unix.SYS_READLINKAT, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_GETDENTS64, unix.SYS_GETCWD, unix.SYS_FSTATFS,
	// sockets that it was given
	unix.SYS_ACCEPT4, unix.SYS_SENDTO, unix.SYS_RECVFROM, unix.SYS_SENDMSG, unix.SYS_RECVMSG, unix.SYS_SHUTDOWN, unix.SYS_GETSOCKNAME, unix.SYS_GETPEERNAME, unix.SYS_GETSOCKOPT, unix.SYS_SETSOCKOPT,
	// itself
	unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETPPID, unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID, unix.SYS_UNAME, unix.SYS_GETRANDOM, unix.SYS_GETRUSAGE, unix.SYS_CAPGET,
}

// bounded are the calls that it may make with some arguments.
var bounded = []rule{
	{call: unix.SYS_CLONE, arg: 0, mask: unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND}, // a thread, not a process
	{call: unix.SYS_PRCTL, arg: 0, values: []uint32{unix.PR_SET_NAME, unix.PR_GET_NAME, unix.PR_SET_VMA, unix.PR_CAPBSET_READ, unix.PR_GET_NO_NEW_PRIVS}},
	{call: unix.SYS_IOCTL, arg: 1, values: []uint32{fionread, fionbio, fioclex, unix.TCGETS}},
	{call: unix.SYS_PRLIMIT64, arg: 2, values: []uint32{0}},             // only read
	{call: unix.SYS_SOCKETPAIR, arg: 0, values: []uint32{unix.AF_UNIX}}, // with itself
	{call: unix.SYS_EXECVEAT, arg: 0, values: []uint32{order.Kept}},
}

// connects are the calls of a program that may connect to the unix sockets that it is
// shown.
var connects = []rule{
	{call: unix.SYS_SOCKET, arg: 0, values: []uint32{unix.AF_UNIX}},
	{call: unix.SYS_CONNECT, arg: -1},
}

const (
	bpfLoad   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	bpfEqual  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	bpfAtMost = unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K
	bpfAnd    = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	bpfReturn = unix.BPF_RET | unix.BPF_K

	offsetCall = 0
	offsetArch = 4
	offsetArgs = 16

	resultAllow = unix.SECCOMP_RET_ALLOW
	resultKill  = unix.SECCOMP_RET_KILL_PROCESS
	resultErrno = unix.SECCOMP_RET_ERRNO

	fionread, fionbio, fioclex = 0x541b, 0x5421, 0x5451

	otherABI = 0x40000000 // the x32 bit of a call's number; no call of any processor is so high
)

// filterProgram is the filter as the kernel takes it.
func filterProgram(connect bool) (prog []byte) {
	add := func(code uint16, yes, no uint8, k uint32) {
		prog = binary.NativeEndian.AppendUint16(prog, code)
		prog = binary.NativeEndian.AppendUint32(append(prog, yes, no), k)
	}
	add(bpfLoad, 0, 0, offsetArch)
	add(bpfEqual, 1, 0, auditArch)
	add(bpfReturn, 0, 0, resultKill)
	add(bpfLoad, 0, 0, offsetCall)
	add(bpfAtMost, 0, 1, otherABI-1)
	add(bpfReturn, 0, 0, resultKill)
	for _, n := range slices.Concat(plain, olderCalls) {
		add(bpfEqual, 0, 1, n)
		add(bpfReturn, 0, 0, resultAllow)
	}
	add(bpfEqual, 0, 1, unix.SYS_CLONE3) // its arguments cannot be seen: the C library takes clone then
	add(bpfReturn, 0, 0, resultErrno|uint32(unix.ENOSYS))
	rules := bounded
	if connect {
		rules = slices.Concat(bounded, connects)
	}
	for _, r := range rules {
		switch {
		case r.arg < 0:
			add(bpfEqual, 0, 1, r.call)
			add(bpfReturn, 0, 0, resultAllow)
			continue
		case r.mask != 0:
			add(bpfEqual, 0, 5, r.call)
			add(bpfLoad, 0, 0, offsetOf(r.arg))
			add(bpfAnd, 0, 0, r.mask)
			add(bpfEqual, 0, 1, r.mask)
			add(bpfReturn, 0, 0, resultAllow)
		default:
			add(bpfEqual, 0, uint8(2+2*len(r.values)), r.call)
			add(bpfLoad, 0, 0, offsetOf(r.arg))
			for _, v := range r.values {
				add(bpfEqual, 0, 1, v)
				add(bpfReturn, 0, 0, resultAllow)
			}
		}
		add(bpfReturn, 0, 0, resultErrno|uint32(unix.EPERM))
	}
	add(bpfReturn, 0, 0, resultErrno|uint32(unix.EPERM))
	return prog
}

// offsetOf is where the lower half of an argument is, on the little endian
// processors that there are: the kernel reads these arguments as 32 bits, or
// ignores the rest.
func offsetOf(arg int) uint32 { return uint32(offsetArgs + 8*arg) }
