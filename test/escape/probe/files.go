package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// read tries paths of the host in every way that could lead there.
func read(canary string, paths []string) {
	tried := 0
	for _, p := range paths {
		for _, prefix := range []string{
			"", "/proc/1/root", "/proc/self/root", "/proc/1/cwd/../../../../..", "/proc/self/cwd/../../../../../..",
			"../../../../../../../../..", "/proc/self/fd/0/../../../..", "/proc/thread-self/root",
		} {
			tried++
			hit(canary, prefix+p)
		}
	}
	for _, pattern := range []string{"/proc/*/environ", "/proc/*/cmdline", "/proc/*/mountinfo", "/proc/*/maps", "/proc/1/fd/*", "/proc/self/fd/*"} {
		files, _ := filepath.Glob(pattern)
		for _, f := range files {
			tried++
			hit(canary, f)
		}
	}
	fmt.Println("TRIED", tried)
}

func hit(canary, path string) {
	info, err := os.Stat(path)
	if err != nil || info.Mode()&(fs.ModeCharDevice|fs.ModeNamedPipe|fs.ModeSocket) != 0 {
		return // a stream could block
	}
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, 4<<20))
	if bytes.Contains(b, []byte(canary)) {
		fmt.Println("HIT", path)
	}
}

// walk reads every file below root.
func walk(canary, root string) {
	read := 0
	_ = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil
		case p == "/proc" || p == "/sys":
			return fs.SkipDir
		case strings.Contains(d.Name(), canary):
			fmt.Println("HIT", p)
		case d.Type().IsRegular():
			if info, err := d.Info(); err == nil && info.Size() < 1<<20 {
				read++
				hit(canary, p)
			}
		}
		return nil
	})
	fmt.Println("TRIED", read)
}

// mounts prints what is mounted where.
func mounts() {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		fmt.Println("ERROR", err)
	}
	for line := range strings.Lines(string(b)) {
		before, after, _ := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if len(f) > 5 && len(g) > 1 {
			fmt.Println("MOUNT", f[4], g[0], strings.Split(f[5], ",")[0])
		}
	}
}

// fds prints the open descriptors, and tries to write to and to walk from those
// that it was not given.
func fds() {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		fmt.Println("ERROR", err)
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, n := range names {
		target, err := os.Readlink("/proc/self/fd/" + n)
		if err != nil || n == fmt.Sprint(dir.Fd()) || strings.HasPrefix(target, "anon_inode:") || strings.Contains(target, "eventpoll") {
			continue // ours: the folder, and the Go runtime's poller
		}
		fmt.Println("FD", n, target)
	}
	for n := range 64 {
		if err := os.Chdir(fmt.Sprintf("/proc/self/fd/%d", n)); err == nil && n > 2 && n != int(dir.Fd()) {
			fmt.Println("CHDIR", n)
		}
	}
}

// held prints which descriptors are open, where /proc is not there to tell: all but
// those of the Go runtime's poller, which it made itself.
func held() {
	for n := range 1024 {
		var st syscall.Stat_t
		if syscall.Fstat(n, &st) == nil && st.Mode&syscall.S_IFMT != 0 {
			fmt.Printf("HELD %d %o\n", n, st.Mode)
		}
	}
}

// devices tries to make and to open devices; dir is where nodes may be made.
func devices(args []string) {
	entries, _ := os.ReadDir("/dev")
	for _, e := range entries {
		fmt.Println("DEV", e.Name())
	}
	for _, d := range []struct {
		name         string
		kind         uint32
		major, minor int
	}{
		{"null", syscall.S_IFCHR, 1, 3}, {"mem", syscall.S_IFCHR, 1, 1}, {"kvm", syscall.S_IFCHR, 10, 232}, {"tun", syscall.S_IFCHR, 10, 200},
		{"fuse", syscall.S_IFCHR, 10, 229}, {"port", syscall.S_IFCHR, 1, 4}, {"kmsg", syscall.S_IFCHR, 1, 11}, {"vhost-net", syscall.S_IFCHR, 10, 238},
		{"vhost-vsock", syscall.S_IFCHR, 10, 241}, {"nvidia0", syscall.S_IFCHR, 195, 0}, {"uinput", syscall.S_IFCHR, 10, 223}, {"hwrng", syscall.S_IFCHR, 10, 183}, {"ttyS0", syscall.S_IFCHR, 4, 64},
		{"dm-0", syscall.S_IFBLK, 253, 0}, {"nvme0", syscall.S_IFBLK, 259, 0}, {"ram0", syscall.S_IFBLK, 1, 0}, {"vda", syscall.S_IFBLK, 254, 0}, {"sda", syscall.S_IFBLK, 8, 0}, {"loop0", syscall.S_IFBLK, 7, 0},
	} {
		for _, dir := range args {
			p := filepath.Join(dir, d.name)
			if err := syscall.Mknod(p, d.kind|0o666, d.major<<8|d.minor); err == nil {
				fmt.Println("MKNOD", p)
				open(p)
			}
		}
	}
	for _, p := range []string{
		"/dev/mem", "/dev/kmem", "/dev/port", "/dev/kvm", "/dev/fuse", "/dev/net/tun", "/dev/loop0", "/dev/loop-control", "/dev/vda", "/dev/sda",
		"/dev/vhost-net", "/dev/vhost-vsock", "/dev/nvidia0", "/dev/dri/card0", "/dev/kmsg", "/dev/mapper/control", "/dev/vport0p1", "/dev/virtio-ports/sallyport",
		"/dev/vsock", "/dev/hwrng", "/dev/uinput", "/dev/rtc0", "/dev/dm-0", "/dev/nvme0n1", "/dev/pmem0", "/dev/sg0", "/dev/ttyS0", "/dev/console", "/dev/nvidiactl", "/dev/nvidia-uvm",
		"/dev/userfaultfd", "/dev/cpu/0/msr", "/dev/snapshot", "/dev/autofs", "/dev/btrfs-control", "/dev/udmabuf", "/dev/dma_heap/system", "/dev/null",
	} {
		open(p)
	}
}

func open(p string) {
	if fd, err := syscall.Open(p, syscall.O_RDONLY|syscall.O_NONBLOCK, 0); err == nil {
		fmt.Println("OPEN", p)
		syscall.Close(fd)
	}
}
