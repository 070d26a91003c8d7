package main

import (
	"bytes"
	"syscall"

	"sallyport.dev/sallyport/tier/payload"
)

const (
	prCapBsetRead   = 23
	prGetNoNewPrivs = 39
	stReadOnly      = 1 // ST_RDONLY of statfs
)

// started says that the program runs, and how it is held, where that was not
// told before: what this kernel answers now, not what the order asked for.
func (o *order) started() {
	if o.told {
		report(payload.Started, nil)
		return
	}
	report(payload.Started, facts().Append(nil))
}

func facts() (f payload.Facts) {
	var lim syscall.Rlimit
	if syscall.Getrlimit(rlimitNproc, &lim) == nil {
		f.Procs = uint32(min(lim.Cur+1, 1<<31)) // with the program's first one: see dropPrivileges
	}
	var fs syscall.Statfs_t
	if syscall.Statfs("/tmp", &fs) == nil {
		f.Disk = fs.Blocks * uint64(fs.Bsize)
	}
	if syscall.Statfs("/", &fs) == nil {
		f.ReadOnlyRoot = fs.Flags&stReadOnly != 0
	}
	nnp, _, e := syscall.RawSyscall6(syscall.SYS_PRCTL, prGetNoNewPrivs, 0, 0, 0, 0, 0)
	f.NoNewPrivs = e == 0 && nnp == 1
	for c := range uintptr(lastCapability + 1) {
		has, _, e := syscall.RawSyscall6(syscall.SYS_PRCTL, prCapBsetRead, c, 0, 0, 0, 0)
		f.Capabilities = f.Capabilities || e == 0 && has == 1
	}
	var u syscall.Utsname
	if syscall.Uname(&u) == nil {
		f.Kernel = text(u.Sysname[:]) + " " + text(u.Release[:]) + " " + text(u.Version[:])
	}
	f.Links = links()
	return f
}

// links names the network interfaces.
func links() (names []string) {
	fd, err := syscall.Open("/proc/net/dev", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return []string{"unknown"}
	}
	defer syscall.Close(fd)
	buf := make([]byte, 4096)
	n, _ := syscall.Read(fd, buf)
	for line := range bytes.Lines(buf[:max(n, 0)]) {
		if name, _, ok := bytes.Cut(line, []byte(":")); ok {
			names = append(names, string(bytes.TrimSpace(name)))
		}
	}
	return names
}

func text(b []int8) string {
	var s []byte
	for _, c := range b {
		if c == 0 {
			break
		}
		s = append(s, byte(c))
	}
	return string(s)
}
