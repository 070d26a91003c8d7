package main

import (
	"strconv"
	"syscall"

	"sallyport.dev/sallyport/tier/payload"
)

// A service is shown folders of the host and a root on which each of them finds
// its place. When the program starts, the root is read-only again.

// placeMounts puts each mount of payload.Mounts where it belongs, tells programs
// the name of their user, and makes the root read-only.
func (o *order) placeMounts() {
	for _, p := range o.places {
		name, to := splitPlace(p)
		makeFolders(to)
		must(syscall.Mount(payload.Mounts+"/"+name, to, "", syscall.MS_BIND, ""), to)
	}
	must(syscall.Unmount(payload.Mounts, syscall.MNT_DETACH), payload.Mounts)
	if o.uid != agent {
		appendLine("/etc/passwd", "server:x:"+strconv.Itoa(o.uid)+":"+strconv.Itoa(o.uid)+"::"+o.dir+":/usr/sbin/nologin\n")
		appendLine("/etc/group", "server:x:"+strconv.Itoa(o.uid)+":\n")
	}
	must(syscall.Mount("", "/", "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY|syscall.MS_NOSUID|syscall.MS_NODEV, ""), "making the root read-only")
}

func splitPlace(p string) (name, to string) {
	for i := range len(p) {
		if p[i] == 0 {
			return p[:i], p[i+1:]
		}
	}
	fail(syscall.EINVAL, "a place")
	return "", ""
}

// makeFolders makes path and what is missing above it.
func makeFolders(path string) {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		if err := syscall.Mkdir(path[:i], 0o755); err != syscall.EEXIST {
			must(err, path[:i])
		}
	}
}

// appendLine adds a line to a file, if the image has it.
func appendLine(path, line string) {
	fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_APPEND|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, 0)
	if err == syscall.ENOENT {
		return
	}
	must(err, path)
	if !writeAll(fd, []byte(line)) {
		fail(syscall.EIO, path)
	}
	must(syscall.Close(fd), path)
}

// passOn asks the program to end, with each byte of the order's stream.
func passOn(pid int) {
	var b [1]byte
	for {
		if readFull(b[:]) != nil {
			return
		}
		_ = syscall.Kill(-pid, syscall.SIGTERM)
	}
}
