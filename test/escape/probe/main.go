// Command probe tries to reach what a sandbox must not reach, and prints what it
// reached. The same binary runs inside sandboxes and, as a positive control,
// outside: there it must succeed, or its silence inside proves nothing.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

func main() {
	if filepath.Base(os.Args[0]) == "python3" {
		wait()
		return
	}
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: probe [asroot] read|walk|mounts|fds|held|devices|hardware|dial|listen|mount|knobs|trace|calls|clock|leaks|identity …")
		os.Exit(2)
	}
	args := os.Args[2:]
	switch os.Args[1] {
	case "asroot":
		os.Exit(asRoot(args))
	case "read":
		read(args[0], args[1:])
	case "walk":
		walk(args[0], args[1])
	case "mounts":
		mounts()
	case "fds":
		fds()
	case "held":
		held()
	case "devices":
		devices(args)
	case "hardware":
		hardware()
	case "dial":
		dial(args)
	case "listen":
		listen(args[0])
	default:
		kernel(os.Args[1], args)
	}
	fmt.Println("END")
}

// kernel is what is tried against the kernel, not against files and networks.
func kernel(what string, args []string) {
	switch what {
	case "mount":
		mounting(args[0], args[1], args[2])
	case "knobs":
		knobs(args[0], args[1], args[2:])
	case "trace":
		trace(args[0])
	case "calls":
		calls()
	case "clock":
		attemptAll([]attempt{{"set the clock", setClock}, {"clone3", clone3Namespaces}})
	case "leaks":
		leaks()
	case "identity":
		identity()
	default:
		os.Exit(2)
	}
}

// asRoot runs the rest as root of a user namespace of its own.
func asRoot(args []string) int {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	if err := cmd.Run(); err != nil {
		fmt.Println("ASROOT", err)
		return 1
	}
	return 0
}
