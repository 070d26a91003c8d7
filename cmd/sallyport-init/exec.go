package main

import (
	"os"
	"syscall"
)

// On the host: sallyport-init exec UID PARENT CGROUP[:CGROUP] PROGRAM ARGV…
//
// joins the cgroups, becomes UID for good, asks to be killed with the parent,
// and becomes PROGRAM. Joining comes first, since only root may; the request to
// be killed comes after the change of uid, which clears it.

const prSetPdeathsig = 1

// serverProcesses bounds the processes and threads of one third-party server,
// so that it cannot fill the machine with them.
const serverProcesses = 1024

func execHost(args []string) {
	if len(args) < 5 {
		die(2, "exec: want UID PARENT CGROUPS PROGRAM ARGV", syscall.EINVAL)
	}
	uid, parent := number(args[0]), number(args[1])
	if uid <= 0 || parent <= 0 {
		die(2, "exec: bad uid or parent", syscall.EINVAL)
	}
	joinAll(args[2])
	// The kernel counts tasks by uid, and the uid is the server's alone.
	check("limiting processes", syscall.Setrlimit(rlimitNproc, &syscall.Rlimit{Cur: serverProcesses, Max: serverProcesses}))
	becomeUser(uid)
	if os.Getppid() != parent {
		die(126, "exec: the sandbox host is gone", syscall.ESRCH)
	}
	err := syscall.Exec(args[3], args[4:], os.Environ())
	if err == syscall.EACCES {
		die(127, args[3]+" (it, and every folder above it, must be open to the server's own user)", err)
	}
	die(127, args[3], err)
}

// joinAll joins the control groups of a list with colons between.
func joinAll(groups string) {
	for start, i := 0, 0; i <= len(groups); i++ {
		if i == len(groups) || groups[i] == ':' {
			join(groups[start:i])
			start = i + 1
		}
	}
}

// join joins one control group. Of version 1 this thread does, alone: the program that
// it becomes has no other. To move a whole process the kernel first waits for all
// processors, 10 ms and more.
// Preconditions: the thread is the goroutine's own, and executes the program.
func join(dir string) {
	fd, err := syscall.Open(dir+"/tasks", syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err == syscall.ENOENT { // version 2
		fd, err = syscall.Open(dir+"/cgroup.procs", syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	}
	check(dir, err)
	_, err = syscall.Write(fd, []byte("0"))
	check(dir, err)
	syscall.Close(fd)
}

// number reads a uid or a pid. What the kernel would cut to 32 bits, and so take
// for another, is none.
func number(s string) int {
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return -1
		}
		if n = n*10 + int(s[i]-'0'); n > 1<<31-1 {
			return -1
		}
	}
	return n
}

func check(what string, err error) {
	if err != nil {
		die(126, what, err)
	}
}

func die(code int, what string, err error) {
	println("sallyport-init:", what+":", err.Error())
	os.Exit(code)
}
