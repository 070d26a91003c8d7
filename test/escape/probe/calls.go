package main

import (
	"fmt"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// calls makes system calls of the privileged kind, with arguments that do no
// harm where they are taken. DONE means that the kernel went beyond the check
// of privileges: it did it, or found fault with the arguments only.
func calls() {
	all := append(privileged(), rings()...)
	if runtime.GOARCH == "amd64" {
		all = append(all,
			call("iopl", 172, 3), call("ioperm", 173, 0x80, 1, 1),
			unlisted("x32 getpid", 0x40000000|39), unlisted("x32 io_uring_setup", 0x40000000|425), unlisted("uselib", 134))
	}
	for _, n := range []uintptr{470, 511, 548, 600, 999, 1 << 20, 1<<31 - 1} {
		all = append(all, unlisted(fmt.Sprint("number ", n), n))
	}
	attemptAll(all)
}

// call is one system call. EPERM, EACCES and ENOSYS are a refusal; so is what
// a kernel says that has no such thing.
func call(name string, number uintptr, args ...uintptr) attempt {
	return attempt{name, func() error {
		var a [6]uintptr
		copy(a[:], args)
		_, _, e := unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
		switch e {
		case unix.EPERM, unix.EACCES, unix.ENOSYS, unix.EOPNOTSUPP, unix.ENODEV:
			return e
		}
		return nil
	}}
}

// unlisted is a call that nobody knows: it must not even be looked at.
func unlisted(name string, number uintptr) attempt {
	return attempt{"unlisted " + name, func() error {
		_, _, e := unix.Syscall6(number, 0, 0, 0, 0, 0, 0)
		if e == unix.ENOSYS || e == unix.EPERM {
			return e
		}
		return nil
	}}
}

func pointer(s string) uintptr {
	p, _ := unix.BytePtrFromString(s)
	kept = append(kept, p)
	return uintptr(unsafe.Pointer(p))
}

// kept keeps what is handed to the kernel as a number.
var kept []*byte

func privileged() []attempt {
	buf := make([]byte, 4096)
	kept = append(kept, &buf[0])
	at := uintptr(unsafe.Pointer(&buf[0]))
	return []attempt{
		call("init_module", unix.SYS_INIT_MODULE, at, 64, pointer("")),
		call("finit_module", unix.SYS_FINIT_MODULE, 0, pointer(""), 0),
		call("delete_module", unix.SYS_DELETE_MODULE, pointer("no_such_module"), unix.O_NONBLOCK),
		call("kexec_load", unix.SYS_KEXEC_LOAD, 0, 1, 0, 1<<63),
		call("bpf map", unix.SYS_BPF, 0, at, 72),
		call("bpf program", unix.SYS_BPF, 5, at, 72),
		{"perf_event_open", perf},
		call("userfaultfd", unix.SYS_USERFAULTFD, unix.O_CLOEXEC),
		call("add_key", unix.SYS_ADD_KEY, pointer("user"), pointer("probe"), at, 8, ^uintptr(1)), // -2: the process's keyring
		call("keyctl", unix.SYS_KEYCTL, 0, ^uintptr(2), 0),                                       // -3: the session's keyring
		call("request_key", unix.SYS_REQUEST_KEY, pointer("user"), pointer("probe"), 0, ^uintptr(1)),
		{"open_by_handle_at", openHandle},
		call("syslog", unix.SYS_SYSLOG, 3, at, 4096),
		call("syslog size", unix.SYS_SYSLOG, 9, 0, 0),
		call("reboot", unix.SYS_REBOOT, 1, 2, 3, 0), // no magic numbers
		{"settimeofday", func() error {
			return errnoOf(unix.Syscall(unix.SYS_SETTIMEOFDAY, 0, 0, 0))
		}},
		call("acct", unix.SYS_ACCT, pointer("/no/such/file")),
		call("swapon", unix.SYS_SWAPON, pointer("/no/such/file"), 0),
		call("quotactl", unix.SYS_QUOTACTL, 0x800002<<8, pointer("/no/such/device"), 0, at),
		call("fanotify_init", unix.SYS_FANOTIFY_INIT, 0, 0),
		call("sethostname", unix.SYS_SETHOSTNAME, hostnameNow(), hostnameLen()),
		call("setdomainname", unix.SYS_SETDOMAINNAME, pointer("(none)"), 6),
	}
}

func hostnameNow() uintptr { h, _ := os.Hostname(); return pointer(h) }
func hostnameLen() uintptr { h, _ := os.Hostname(); return uintptr(len(h)) }

func perf() error {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{}))}
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func openHandle() error {
	h, mount, err := unix.NameToHandleAt(unix.AT_FDCWD, "/tmp", 0)
	_ = mount
	if err != nil {
		// A handle of any file system: inode 2 is the root of most.
		h = unix.NewFileHandle(1, []byte{2, 0, 0, 0, 0, 0, 0, 0})
	}
	dir, err := unix.Open("/tmp", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	fd, err := unix.OpenByHandleAt(dir, h, unix.O_RDONLY)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// rings are io_uring: its operations would go around what is said about the
// usual calls.
func rings() []attempt {
	params := make([]byte, 120)
	kept = append(kept, &params[0])
	return []attempt{
		{"io_uring_setup", func() error {
			fd, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&params[0])), 0)
			if e != 0 {
				return e
			}
			unix.Close(int(fd))
			return nil
		}},
		{"openat through a ring", ringOpen},
		call("io_uring_enter", unix.SYS_IO_URING_ENTER, ^uintptr(0), 1, 0, 0),
		call("io_uring_register", unix.SYS_IO_URING_REGISTER, ^uintptr(0), 0, 0, 0),
	}
}

// ringOpen opens /dev/null through a ring.
func ringOpen() error {
	var p struct {
		sq, cq, flags, cpu, idle, features, wq uint32
		_                                      [3]uint32
		sqOff                                  struct {
			head, tail, mask, entries, flags, dropped, array, _ uint32
			_                                                   uint64
		}
		cqOff struct {
			head, tail, mask, entries, overflow, cqes, flags, _ uint32
			_                                                   uint64
		}
	}
	fd, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&p)), 0)
	if e != 0 {
		return e
	}
	defer unix.Close(int(fd))
	sq, err := unix.Mmap(int(fd), 0, int(p.sqOff.array+p.sq*4), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	cq, err := unix.Mmap(int(fd), 0x8000000, int(p.cqOff.cqes+p.cq*16), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	sqes, err := unix.Mmap(int(fd), 0x10000000, int(p.sq*64), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	const openat = 18
	sqes[0] = openat
	*(*int32)(unsafe.Pointer(&sqes[4])) = unix.AT_FDCWD
	*(*uint64)(unsafe.Pointer(&sqes[16])) = uint64(pointer("/dev/null"))
	*(*uint32)(unsafe.Pointer(&sqes[28])) = unix.O_RDONLY
	*(*uint32)(unsafe.Pointer(&sq[p.sqOff.array])) = 0
	*(*uint32)(unsafe.Pointer(&sq[p.sqOff.tail]))++
	if _, _, e := unix.Syscall6(unix.SYS_IO_URING_ENTER, fd, 1, 1, 1, 0, 0); e != 0 {
		return e
	}
	if res := *(*int32)(unsafe.Pointer(&cq[p.cqOff.cqes+8])); res < 0 {
		return unix.Errno(-res)
	}
	return nil
}

// setClock sets the clock an hour ahead. Only inside: whoever asks looks at the
// host's clock afterwards.
func setClock() error {
	t := unix.NsecToTimespec(time.Now().Add(time.Hour).UnixNano())
	return unix.ClockSettime(unix.CLOCK_REALTIME, &t)
}
