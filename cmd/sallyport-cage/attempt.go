package main

import (
	"errors"
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

// attempt tries each thing that it is told, as NAME or NAME=ARGUMENT, and writes
// a line for each: its name, and the errno with which it failed or 0. Whoever
// reads them knows what each of them means.
func attempt(words []string) {
	for _, w := range words {
		name, arg := w, ""
		for i := range len(w) {
			if w[i] == '=' {
				name, arg = w[:i], w[i+1:]
				break
			}
		}
		result := -1
		if try := attempts[name]; try != nil {
			result = try(arg)
		}
		_, _ = os.Stdout.WriteString(name + " " + strconv.Itoa(result) + "\n")
	}
}

var attempts = map[string]func(arg string) int{
	"connect": func(port string) int { // TCP to the host's loopback interface
		fd, _, e := syscall.RawSyscall(syscall.SYS_SOCKET, syscall.AF_INET, syscall.SOCK_STREAM, 0)
		if e != 0 {
			return int(e)
		}
		return number(syscall.Connect(int(fd), &syscall.SockaddrInet4{Port: integer(port), Addr: [4]byte{127, 0, 0, 1}}))
	},
	"abstract": func(name string) int { // a socket without a file
		fd, _, e := syscall.RawSyscall(syscall.SYS_SOCKET, syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
		if e != 0 {
			return int(e)
		}
		return number(syscall.Connect(int(fd), &syscall.SockaddrUnix{Name: "@" + name}))
	},
	"unix": func(string) int { return call(syscall.SYS_SOCKET, syscall.AF_UNIX, syscall.SOCK_STREAM, 0) },
	"family": func(f string) int {
		return call(syscall.SYS_SOCKET, uintptr(integer(f)), syscall.SOCK_STREAM, 0)
	},
	"read":   func(path string) int { return open(path, syscall.O_RDONLY) },
	"create": func(path string) int { return open(path, syscall.O_WRONLY|syscall.O_CREAT) },
	"entries": func(string) int { // names in the root
		fd, err := syscall.Open("/", syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
		if err != nil {
			return 0
		}
		var b [64 << 10]byte
		n, _ := syscall.ReadDirent(fd, b[:])
		_, found, _ := syscall.ParseDirent(b[:max(n, 0)], -1, nil)
		return found
	},
	"signal": func(pid string) int { return call(syscall.SYS_KILL, uintptr(integer(pid)), 0, 0) },
	"trace":  func(pid string) int { return call(syscall.SYS_PTRACE, 0x4206, uintptr(integer(pid)), 0) }, // seize
	"shared": func(key string) int { return call(syscall.SYS_SHMGET, uintptr(integer(key)), 0, 0) },
	"name": func(want string) int { // whether the host name is another
		var u syscall.Utsname
		if err := syscall.Uname(&u); err != nil {
			return number(err)
		}
		for i := range len(want) {
			if byte(u.Nodename[i]) != want[i] {
				return int(syscall.ENOENT)
			}
		}
		return 0
	},
	"rename": func(string) int { return number(syscall.Sethostname([]byte("attempt"))) },
	"uid":    func(string) int { return syscall.Getuid() },
	"capabilities": func(string) int { // those that it has, or could gain
		var h = [2]uint32{0x20080522, 0}
		var d [6]uint32
		if e := call(syscall.SYS_CAPGET, uintptr(unsafe.Pointer(&h)), uintptr(unsafe.Pointer(&d)), 0); e != 0 {
			return -e
		}
		n := 0
		for _, w := range d {
			for ; w != 0; w &= w - 1 {
				n++
			}
		}
		for c := uintptr(0); c <= lastCapability; c++ {
			if v, _, _ := syscall.RawSyscall(syscall.SYS_PRCTL, 23, c, 0); v == 1 {
				n++
			}
		}
		return n
	},
	"gain": func(string) int { // privileges by executing a file: 0 where it could
		v, _, _ := syscall.RawSyscall(syscall.SYS_PRCTL, 39, 0, 0)
		return int(v)
	},
	"files": func(string) int { // descriptors that are open
		n := 0
		for fd := range 2048 {
			if _, err := fcntl(fd, syscall.F_GETFD, 0); err == nil {
				n++
			}
		}
		return n
	},
	"open": func(string) int { // descriptors that it can have
		for n := range 4096 {
			if _, err := syscall.Dup(1); err != nil {
				return n
			}
		}
		return 4096
	},
	"write":  func(size string) int { return write(integer(size)) },
	"memory": func(mib string) int { return number(reserve(integer(mib) << 20)) },
	"touch":  func(mib string) int { return touch(integer(mib) << 20) },
	"fork":   func(n string) int { return fork(integer(n)) },
	"limit":  func(r string) int { return limitOf(integer(r)) },
	"spin": func(string) int {
		n := 1
		for n != 0 { // it stays odd
			n += 2
		}
		return n
	},
	"mount":   func(string) int { return number(syscall.Mount("x", "/", "tmpfs", 0, "")) },
	"remount": func(string) int { return number(syscall.Mount("", "/", "", syscall.MS_REMOUNT|syscall.MS_BIND, "")) },
	"chroot":  func(string) int { return number(syscall.Chroot("/")) },
	"unshare": func(string) int { return call(syscall.SYS_UNSHARE, syscall.CLONE_NEWUSER, 0, 0) },
	"device":  func(string) int { return number(syscall.Mknod("/attempt", syscall.S_IFBLK|0o600, 1<<8)) },
	"call":    func(n string) int { return call(uintptr(integer(n)), 0, 0, 0) },
}

//go:uintptrescapes
func call(n, a, b, c uintptr) int { return number(raw(n, a, b, c)) }

func number(err error) int {
	if err == nil {
		return 0
	}
	var e syscall.Errno
	if errors.As(err, &e) {
		return int(e)
	}
	return -1
}

func integer(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		os.Exit(2)
	}
	return n
}

func open(path string, how int) int {
	fd, err := syscall.Open(path, how, 0o600)
	if err == nil {
		syscall.Close(fd)
	}
	return number(err)
}

// write writes size bytes to descriptor 3. The signal of a file that is too large
// is held back, so that the call fails.
func write(size int) int {
	held := uint64(1) << (uint(syscall.SIGXFSZ) - 1)
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, 0, uintptr(unsafe.Pointer(&held)), 0, 8, 0, 0)
	b := make([]byte, 4096)
	for done := 0; done < size; {
		n, err := syscall.Write(3, b[:min(len(b), size-done)])
		if err != nil {
			return number(err)
		}
		done += n
	}
	return 0
}

func reserve(size int) error {
	_, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	return err
}

func touch(size int) int {
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	return number(err)
}

// fork makes n processes that wait, and tells how many it could; they end with it.
func fork(n int) int {
	made := 0
	for range n {
		pid, _, e := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
		if e != 0 {
			break
		}
		if pid == 0 {
			for {
				_, _, _ = syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
			}
		}
		made++
	}
	return made
}

func limitOf(r int) int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(r, &l); err != nil {
		return -number(err)
	}
	return int(min(l.Max, 1<<62))
}
