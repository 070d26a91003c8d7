package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	image = "/image" // where the root is put together
	ids   = "/id"    // files that say who this machine is

	patience = 45 * time.Second // for a device, on a machine with much to do
)

// prepare puts together what the sandbox will see. The initramfs vanishes below it.
func prepare() *machine {
	for _, d := range []string{"/proc", "/sys", "/dev", "/cgroup", ids, image} {
		must(os.MkdirAll(d, 0o755), d)
	}
	mount("devtmpfs", "/dev", "devtmpfs", 0, "")
	mount("proc", "/proc", "proc", 0, "")
	mount("sysfs", "/sys", "sysfs", 0, "")
	loadModules()
	must(loopback(), "the loopback interface")
	m := &machine{group: makeGroup()}
	var err error
	m.init, err = os.Open("/sallyport-init")
	must(err, "sallyport-init")
	m.limits = watchLimits()
	must(await("/dev/vda"), "the image")
	mount("/dev/vda", image, "erofs", unix.MS_RDONLY|unix.MS_NODEV|unix.MS_NOSUID, "")
	mount("proc", image+"/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	mount("sysfs", image+"/sys", "sysfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	makeDevices(image + "/dev")
	m.random, err = os.OpenFile(image+"/dev/urandom", os.O_RDWR, 0)
	must(err, "the source of random numbers")
	m.identity = openIdentity()
	return m
}

// enter makes the image the root.
func (m *machine) enter() {
	must(unix.Chdir(image), image)
	mount(".", "/", "", unix.MS_MOVE, "")
	must(unix.Chroot("."), "the root")
	must(unix.Chdir("/"), "the root")
}

func mount(what, where, kind string, flags uintptr, data string) {
	must(unix.Mount(what, where, kind, flags, data), "mounting "+where)
}

// loadModules loads what the kernel needs and does not have built in, in order.
func loadModules() {
	order, err := os.ReadFile("/mods/order")
	if err != nil {
		return // none
	}
	for _, name := range strings.Fields(string(order)) {
		f, err := os.Open("/mods/" + filepath.Base(name))
		must(err, name)
		if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && err != unix.EEXIST && err != unix.ENODEV { // this machine may not have the device
			fail(err, name)
		}
		f.Close()
	}
}

func await(path string) error {
	for end := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		_, err := os.Stat(path)
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

func loopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, r)
}

// makeGroup makes the control group of the sandbox, which bounds its memory.
// Where a process is killed for it, all are.
func makeGroup() int {
	mount("cgroup2", "/cgroup", "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	must(os.WriteFile("/cgroup/cgroup.subtree_control", []byte("+memory"), 0), "control of memory")
	must(os.Mkdir("/cgroup/sandbox", 0o755), "a control group")
	must(os.WriteFile("/cgroup/sandbox/memory.oom.group", []byte("1"), 0), "control of memory")
	// What is asked for is not refused, and so told as a program's own failure: the group
	// bounds what is used.
	must(os.WriteFile("/proc/sys/vm/overcommit_memory", []byte("1"), 0), "control of memory")
	fd, err := unix.Open("/cgroup/sandbox", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(err, "a control group")
	return fd
}

// makeDevices makes a /dev of what programs need, and nothing else.
func makeDevices(dev string) {
	mount("tmpfs", dev, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "size=64k,mode=0755")
	for _, d := range []struct {
		name         string
		major, minor uint32
	}{{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}} {
		path := dev + "/" + d.name
		must(unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(d.major, d.minor))), path)
		must(os.Chmod(path, 0o666), path)
	}
	for name, to := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx",
	} {
		must(os.Symlink(to, dev+"/"+name), name)
	}
	for _, d := range []string{"/shm", "/pts"} {
		must(os.Mkdir(dev+d, 0o755), d)
	}
	if err := unix.Mount("devpts", dev+"/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"); err != nil && !errors.Is(err, unix.ENODEV) {
		fail(err, "terminals")
	}
}
