package main

import (
	"os"
	"syscall"
	"unsafe"
)

// On the host: sallyport-init confine UID CGROUPS LIFE ROOT WORD… -- PROGRAM ARGV…
//
// is the last step before a program of the host that talks with hostile guests. It
// is started as root, in mount, PID, network, IPC and UTS namespaces of its own.
// It joins the control groups, makes a root of nothing but what the words name,
// becomes UID for good, without capabilities, asks to be killed with its parent,
// and becomes PROGRAM. LIFE is a descriptor that ends when the parent does; ROOT
// is an empty folder. The words:
//
//	show:PATH     the file or folder, read-only, at the same path
//	link:TO:PATH  a symbolic link
//	dev:PATH      a device like the host's, for UID
const (
	rlimitNofile = 7
	rlimitFsize  = 1
	rlimitCore   = 4

	confinedTasks = 128 // QEMU ends where it cannot have 64 threads that read, beside its own
	confinedFiles = 256
	confinedSize  = 64 << 20 // of a file that it writes
)

func confine(args []string) {
	const usage = "confine: want UID CGROUPS LIFE ROOT WORD… -- PROGRAM ARGV…"
	if len(args) < 6 {
		die(2, usage, syscall.EINVAL)
	}
	uid, life, root, words := number(args[0]), number(args[2]), args[3], args[4:]
	if uid <= 0 || life <= 0 {
		die(2, usage, syscall.EINVAL)
	}
	joinAll(args[1])
	check("mounts of its own", syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
	check(root, syscall.Mount("tmpfs", root, "tmpfs", syscall.MS_NOSUID|syscall.MS_NOEXEC, "size=64k,mode=0755"))
	for len(words) > 0 && words[0] != "--" {
		furnishRoot(root, words[0], uid)
		words = words[1:]
	}
	if len(words) < 2 {
		die(2, usage, syscall.EINVAL)
	}
	check("/proc", syscall.Mkdir(root+"/proc", 0o755))
	check("/proc", syscall.Mount("proc", root+"/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""))
	enterRoot(root)
	for what, most := range map[int]uint64{rlimitNproc: confinedTasks, rlimitNofile: confinedFiles, rlimitFsize: confinedSize, rlimitCore: 0} {
		check("limits", syscall.Setrlimit(what, &syscall.Rlimit{Cur: most, Max: most}))
	}
	becomeUser(uid)
	if closed(life) {
		die(126, "confine: the sandbox host is gone", syscall.ESRCH)
	}
	syscall.CloseOnExec(life)
	die(127, words[1], syscall.Exec(words[1], words[2:], os.Environ()))
}

func furnishRoot(root, word string, uid int) {
	kind, rest := cut(word)
	switch kind {
	case "show":
		show(root, rest)
	case "link":
		to, at := cut(rest)
		makeFolders(root + dirOf(at))
		check(at, syscall.Symlink(to, root+at))
	case "dev":
		var st syscall.Stat_t
		check(rest, syscall.Stat(rest, &st))
		makeFolders(root + dirOf(rest))
		check(rest, syscall.Mknod(root+rest, syscall.S_IFCHR|0o600, int(st.Rdev)))
		check(rest, syscall.Chown(root+rest, uid, uid))
	default:
		die(2, "confine: "+word, syscall.EINVAL)
	}
}

// show makes one file or folder of the host visible.
func show(root, path string) {
	var st syscall.Stat_t
	check(path, syscall.Stat(path, &st))
	if st.Mode&syscall.S_IFMT == syscall.S_IFDIR {
		makeFolders(root + path)
	} else {
		makeFolders(root + dirOf(path))
		fd, err := syscall.Open(root+path, syscall.O_CREAT|syscall.O_EXCL|syscall.O_WRONLY|syscall.O_CLOEXEC, 0o444)
		check(path, err)
		syscall.Close(fd)
	}
	check(path, syscall.Mount(path, root+path, "", syscall.MS_BIND, ""))
	check(path, syscall.Mount("", root+path, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY|syscall.MS_NOSUID|syscall.MS_NODEV, ""))
}

// enterRoot leaves the host's files behind.
func enterRoot(root string) {
	check(root, syscall.Chdir(root))
	check("the root", syscall.PivotRoot(".", "."))
	check("the old root", syscall.Unmount(".", syscall.MNT_DETACH))
	check("the root", syscall.Chdir("/"))
	check("the root", syscall.Mount("", "/", "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY|syscall.MS_NOSUID|syscall.MS_NOEXEC, ""))
}

// becomeUser gives up everything but being this user, for good.
func becomeUser(uid int) {
	for c := range uintptr(lastCapability + 1) {
		check("dropping capabilities", prctl(prCapBsetDrop, c))
	}
	check("setgroups", syscall.Setgroups(nil))
	check("setgid", syscall.Setgid(uid))
	check("setuid", syscall.Setuid(uid))
	check("no_new_privs", prctl(prSetNoNewPrivs, 1))
	check("parent death signal", prctl(prSetPdeathsig, uintptr(syscall.SIGKILL)))
	syscall.Umask(0o077)
}

// closed tells whether the other end of a pipe is closed.
func closed(fd int) bool {
	return readable(fd, new(syscall.Timespec)) // whoever holds the other end writes nothing
}

// readable waits, for ever if late is nil, until something can be taken or is at its
// end. A signal ends the wait, too.
func readable(fd int, late *syscall.Timespec) bool {
	p := struct {
		fd      int32
		events  int16
		revents int16
	}{int32(fd), 1, 0} // POLLIN
	n, _, _ := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(late)), 0, 0, 0)
	return n == 1
}

func cut(s string) (before, after string) {
	for i := range len(s) {
		if s[i] == ':' {
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

func dirOf(path string) string {
	dir, _ := split(path)
	return dir
}
