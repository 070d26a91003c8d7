// Command sallyport-init is the first process inside a sandbox, and the last
// step before a third-party server on the host.
//
// Inside a sandbox it is process 1: it reads what to run from descriptor 3 (see
// tier/payload), makes the writable folders, drops every privilege, runs the
// program under another uid, reaps, and reports the exact wait status on
// descriptor 4. As a parent under another uid it can be neither killed nor
// traced by the program.
//
// In the sandbox of a session it stays and takes request after request (session.go).
//
// On the host it takes a third-party server from root to its own uid (exec.go), and a
// virtual machine monitor into a world of its own (confine.go).
//
// It is a program of its own, and uses no package beyond syscall and os, since
// it starts once per run.
package main

import (
	"os"
	"runtime"
	"syscall"
)

const (
	prSetNoNewPrivs = 38
	prCapBsetDrop   = 24
	lastCapability  = 40
)

func main() {
	runtime.LockOSThread() // no_new_privs and the bounding set belong to a thread
	if len(os.Args) > 2 && os.Args[1] == "exec" {
		execHost(os.Args[2:])
	}
	if len(os.Args) > 2 && os.Args[1] == "confine" {
		confine(os.Args[2:])
	}
	if os.Getpid() != 1 {
		println("sallyport-init: only for use by sallyport-sandboxd")
		os.Exit(2)
	}
	if len(os.Args) > 1 && os.Args[1] == "session" {
		fdPayload, fdReport = 0, 1
		if len(os.Args) == 2 {
			becomeFile()
		}
		runSession()
	}
	runSandbox()
}

func prctl(option, arg uintptr) error {
	if _, _, e := syscall.RawSyscall6(syscall.SYS_PRCTL, option, arg, 0, 0, 0, 0); e != 0 {
		return e
	}
	return nil
}
