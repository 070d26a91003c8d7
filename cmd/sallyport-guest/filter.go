package main

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// refused are calls that whoever is in the sandbox may otherwise make, of kernels
// that have them, as itself or as root of a user namespace, and that programs do not
// need: they fail as where the kernel has none. What else only root may do, the
// kernel refuses by itself.
var refused = append([]uint32{
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_FANOTIFY_INIT,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_SYSLOG, unix.SYS_MEMFD_SECRET,
	unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_ACCT, unix.SYS_SWAPON, unix.SYS_SWAPOFF,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD,
}, refusedHere...)

// families are the kinds of sockets that can be made. Of others a kernel may have many,
// each with code that nobody here needs.
var families = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}

const otherABI = 0x40000000 // the x32 bit of a call's number; no call of any processor is so high

// refuseCalls puts a filter before the kernel, for what this thread becomes. Calls of
// another processor's kind are refused altogether.
func refuseCalls() error {
	runtime.LockOSThread() // never unlocked
	prog := filter()
	f := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&f)))
	if e != 0 {
		return e
	}
	return nil
}

func filter() (prog []unix.SockFilter) {
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		more   = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		result = unix.BPF_RET | unix.BPF_K

		call, arch, firstArg = 0, 4, 16 // in what the kernel tells; the lower half, on little endian processors
	)
	add := func(code uint16, yes, no uint8, k uint32) {
		prog = append(prog, unix.SockFilter{Code: code, Jt: yes, Jf: no, K: k})
	}
	fails := func(e unix.Errno) { add(result, 0, 0, unix.SECCOMP_RET_ERRNO|uint32(e)) }
	add(load, 0, 0, arch)
	add(equal, 1, 0, auditArch)
	fails(unix.ENOSYS)
	add(load, 0, 0, call)
	add(more, 0, 1, otherABI)
	fails(unix.ENOSYS)
	for _, n := range refused {
		add(equal, 0, 1, n)
		fails(unix.ENOSYS)
	}
	add(equal, 2, 0, unix.SYS_SOCKET)
	add(equal, 1, 0, unix.SYS_SOCKETPAIR) // TIPC's, too
	add(result, 0, 0, unix.SECCOMP_RET_ALLOW)
	add(load, 0, 0, firstArg)
	for _, family := range families {
		add(equal, 0, 1, family)
		add(result, 0, 0, unix.SECCOMP_RET_ALLOW)
	}
	fails(unix.EAFNOSUPPORT)
	return prog
}
