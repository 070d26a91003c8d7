package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// trace tries to get into another process: to stop it, to read and write its
// memory, to take its descriptors, to be told what it holds.
func trace(target string) {
	pid, err := strconv.Atoi(target)
	fatal(err)
	proc := fmt.Sprintf("/proc/%d/", pid)
	reads := func(file string) attempt {
		return attempt{"read " + file, func() error { return readSome(proc + file) }}
	}
	attemptAll([]attempt{
		{"attach", func() error { return attach(pid, unix.PTRACE_ATTACH) }},
		{"seize", func() error { return attach(pid, unix.PTRACE_SEIZE) }},
		{"process_vm_readv", func() error { return processVM(pid, unix.SYS_PROCESS_VM_READV) }},
		{"process_vm_writev", func() error { return processVM(pid, unix.SYS_PROCESS_VM_WRITEV) }},
		{"open mem to read", func() error { return readMemory(pid) }},
		{"open mem to write", func() error { return openOnly(proc+"mem", unix.O_RDWR) }},
		{"pidfd_getfd", func() error { return takeFD(pid) }},
		{"kcmp", func() error {
			return errnoOf(unix.Syscall6(unix.SYS_KCMP, uintptr(os.Getpid()), uintptr(pid), 1, 0, 0, 0))
		}},
		{"move_pages", func() error { return errnoOf(unix.Syscall6(unix.SYS_MOVE_PAGES, uintptr(pid), 0, 0, 0, 0, 0)) }},
		{"process_madvise", func() error { return madviseOther(pid) }},
		{"prlimit", func() error { return unix.Prlimit(pid, unix.RLIMIT_CPU, nil, new(unix.Rlimit)) }},
		{"signal", func() error { return unix.Kill(pid, unix.SIGCONT) }},
		{"priority", func() error { return unix.Setpriority(unix.PRIO_PROCESS, pid, 0) }},
		{"enter its namespaces", func() error { return enter(pid) }},
		reads("environ"), reads("maps"), reads("auxv"), reads("syscall"), reads("stack"),
		{"look into its root", func() error { _, err := os.ReadDir(proc + "root/"); return err }},
		{"list its descriptors", func() error { _, err := os.ReadDir(proc + "fd"); return err }},
		{"open its descriptor", func() error { return openOnly(proc+"fd/3", unix.O_RDONLY|unix.O_NONBLOCK) }},
	})
}

func errnoOf(_, _ uintptr, e unix.Errno) error {
	if e != 0 {
		return e
	}
	return nil
}

func readSome(path string) error {
	b, err := os.ReadFile(path)
	if err == nil && len(b) == 0 {
		return errNoEffect
	}
	return err
}

func openOnly(path string, flags int) error {
	fd, err := unix.Open(path, flags, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func attach(pid int, how uintptr) error {
	if err := errnoOf(unix.Syscall6(unix.SYS_PTRACE, how, uintptr(pid), 0, 0, 0, 0)); err != nil {
		return err
	}
	if how == unix.PTRACE_ATTACH {
		_, _ = unix.Wait4(pid, nil, unix.WALL, nil)
		_ = unix.PtraceDetach(pid)
	}
	return nil // a seized one is let go with this thread
}

// someMapping is an address that the process has.
func someMapping(pid int) uintptr {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	for line := range bytes.Lines(b) {
		if bytes.Contains(line, []byte("[stack]")) {
			_, to, _ := bytes.Cut(bytes.Fields(line)[0], []byte("-"))
			end, _ := strconv.ParseUint(string(to), 16, 64)
			return uintptr(end) - 64
		}
	}
	return 0x400000
}

func processVM(pid int, call uintptr) error {
	var b [16]byte
	local := unix.Iovec{Base: &b[0], Len: 16}
	remote := struct{ base, size uintptr }{someMapping(pid), 16}
	do := func(call uintptr) error {
		return errnoOf(unix.Syscall6(call, uintptr(pid), uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0))
	}
	if call == unix.SYS_PROCESS_VM_WRITEV {
		if err := do(unix.SYS_PROCESS_VM_READV); err != nil && !errors.Is(err, unix.EPERM) {
			return err // what is written is what was there
		}
	}
	return do(call)
}

func readMemory(pid int) error {
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.ReadAt(make([]byte, 8), int64(someMapping(pid)))
	return err
}

func takeFD(pid int) error {
	p, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(p)
	for n := range 8 {
		var fd int
		if fd, err = unix.PidfdGetfd(p, n, 0); err == nil {
			unix.Close(fd)
			return nil
		}
	}
	return err
}

func madviseOther(pid int) error {
	p, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(p)
	v := struct{ base, size uintptr }{someMapping(pid) &^ 4095, 4096}
	return errnoOf(unix.Syscall6(unix.SYS_PROCESS_MADVISE, uintptr(p), uintptr(unsafe.Pointer(&v)), 1, unix.MADV_COLD, 0, 0))
}

// enter joins a namespace of the process that this one is not in.
func enter(pid int) error {
	var last error = errNoEffect
	for _, ns := range []string{"mnt", "net", "ipc", "uts", "pid", "user"} {
		path := fmt.Sprintf("/proc/%d/ns/%s", pid, ns)
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			last = err
			continue
		}
		if ns == "mnt" {
			_ = unix.Unshare(unix.CLONE_FS)
		}
		err = unix.Setns(fd, 0)
		unix.Close(fd)
		if err == nil {
			return nil
		}
		last = err
	}
	return last
}
