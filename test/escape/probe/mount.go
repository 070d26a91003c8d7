package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mounting tries to write to a folder that is mounted read-only, and to see
// what is outside, by every way to mount. work is a folder that can be written;
// outside is a file of the host, whose name is the first word of the command line of a
// process there.
func mounting(readOnly, work, outside string) {
	m := mounter{readOnly, work, outside}
	attemptAll([]attempt{
		{"write", func() error { return m.mark("write") }},
		{"remount", m.remount},
		{"remount the root", m.remountRoot},
		{"remount a bind mount on itself", m.remountBind},
		{"bind it elsewhere", m.bindElsewhere},
		{"copy of the mount", m.newAPI},
		{"overlay that leads below", m.overlay},
		{"fresh proc", m.freshProc},
		{"out of a chroot", m.chroot},
		{"pivot", m.pivot},
		{"the disk's device", m.device},
		{"file system of the new mount API", m.fsopen},
	})
}

type mounter struct{ readOnly, work, outside string }

// mark leaves a marker in the read-only folder, and says whether it is there.
func (m mounter) mark(name string) error { return m.markVia(m.readOnly, name) }

func (m mounter) markVia(dir, name string) error {
	name = "probe-" + strings.ReplaceAll(name, " ", "-")
	if err := os.WriteFile(filepath.Join(dir, name), []byte("probe"), 0o600); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(m.readOnly, name)); err != nil {
		return errNoEffect
	}
	return os.Remove(filepath.Join(dir, name))
}

func (m mounter) place(name string) (string, error) {
	p := filepath.Join(m.work, "probe-"+name)
	return p, os.MkdirAll(p, 0o700)
}

func (m mounter) remount() error {
	if err := unix.Mount("", m.readOnly, "", unix.MS_REMOUNT, ""); err != nil {
		return err
	}
	return m.mark("remount")
}

func (m mounter) remountRoot() error {
	for _, flags := range []uintptr{unix.MS_REMOUNT, unix.MS_REMOUNT | unix.MS_BIND} {
		if err := unix.Mount("", "/", "", flags, ""); err != nil {
			return err
		}
	}
	return m.mark("root")
}

func (m mounter) remountBind() error {
	if err := unix.Mount(m.readOnly, m.readOnly, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	if err := unix.Mount("", m.readOnly, "", unix.MS_REMOUNT|unix.MS_BIND, ""); err != nil {
		return err
	}
	return m.mark("bind")
}

func (m mounter) bindElsewhere() error {
	at, err := m.place("bind")
	if err != nil {
		return err
	}
	if err := unix.Mount(m.readOnly, at, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND, ""); err != nil {
		return err
	}
	return m.markVia(at, "elsewhere")
}

func (m mounter) newAPI() error {
	at, err := m.place("tree")
	if err != nil {
		return err
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, m.readOnly, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return err
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return err
	}
	return m.markVia(at, "tree")
}

func (m mounter) overlay() error {
	var dirs [3]string
	for i, n := range []string{"upper", "workdir", "merged"} {
		d, err := m.place(n)
		if err != nil {
			return err
		}
		dirs[i] = d
	}
	o := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", m.readOnly, dirs[0], dirs[1])
	if err := unix.Mount("overlay", dirs[2], "overlay", 0, o); err != nil {
		return err
	}
	return m.markVia(dirs[2], "overlay")
}

// freshProc looks for a process of the host in a proc of its own.
func (m mounter) freshProc() error {
	at, err := m.place("proc")
	if err != nil {
		return err
	}
	if err := unix.Mount("proc", at, "proc", 0, ""); err != nil {
		return err
	}
	files, _ := filepath.Glob(at + "/[0-9]*/cmdline")
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && bytes.HasPrefix(b, append([]byte(m.outside), 0)) {
			return nil
		}
	}
	return errNoEffect
}

// chroot is the oldest way out: a folder above the new root stays open.
func (m mounter) chroot() error {
	at, err := m.place("root")
	if err != nil {
		return err
	}
	up, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(up)
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	if err := unix.Chroot(at); err != nil {
		return err
	}
	if err := unix.Fchdir(up); err != nil {
		return err
	}
	for range 64 {
		_ = unix.Chdir("..") // at the top it stays
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return m.seesOutside()
}

func (m mounter) seesOutside() error {
	_, err := os.Stat(m.outside)
	return err
}

func (m mounter) pivot() error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return err
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return err
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	return m.seesOutside()
}

func (m mounter) device() error {
	at, err := m.place("device")
	if err != nil {
		return err
	}
	err = errNoEffect
	for _, dev := range []string{"/dev/vda", "/dev/vda1", "/dev/sda", "/dev/sda1", "/dev/loop0", "/dev/root"} {
		for _, kind := range []string{"ext4", "xfs", "erofs", "squashfs"} {
			if err = unix.Mount(dev, at, kind, unix.MS_RDONLY, ""); err == nil {
				return nil
			}
		}
	}
	return err
}

func (m mounter) fsopen() error {
	at, err := m.place("fsopen")
	if err != nil {
		return err
	}
	fs, err := unix.Fsopen("tmpfs", 0)
	if err != nil {
		return err
	}
	defer unix.Close(fs)
	const create = 6 // FSCONFIG_CMD_CREATE
	if _, _, e := unix.Syscall6(unix.SYS_FSCONFIG, uintptr(fs), create, 0, 0, 0, 0); e != 0 {
		return e
	}
	mnt, err := unix.Fsmount(fs, 0, 0)
	if err != nil {
		return err
	}
	defer unix.Close(mnt)
	return unix.MoveMount(mnt, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// clone3 with every namespace at once. What it gives is the guest's own.
func clone3Namespaces() error {
	args := struct{ flags, pidfd, childTID, parentTID, exit, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64 }{
		flags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP,
		exit:  uint64(unix.SIGCHLD),
	}
	pid, _, e := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
	if e != 0 {
		return e
	}
	if pid == 0 {
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	_, err := unix.Wait4(int(pid), nil, 0, nil)
	return err
}
