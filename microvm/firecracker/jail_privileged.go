package firecracker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/microvm/snapshot"
	"sallyport.dev/sallyport/microvm/vmm"
)

// A jail is the folder that Firecracker sees as the root. It belongs to
// Firecracker's user, which can put anything in the place of anything there.
type jail struct {
	dir  string
	root *os.File
}

// execName is the name of the program in the jail, and of the folder of its jails.
const execName = "firecracker"

// newJail makes the folder where the jailer expects it.
func newJail(p vmm.Place) (*jail, error) {
	dir := filepath.Join(p.Dir, execName, p.ID, "root")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	root, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	return &jail{dir: dir, root: root}, nil
}

func (j *jail) close() { j.root.Close() }

// write makes a file of the jail that Firecracker may read and not change.
func (j *jail) write(name string, r io.Reader) error {
	fd, err := unix.Openat(int(j.root.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Chmod(0o444), f.Close())
}

// open opens a file of the jail, which must be one of its own and no link.
func (j *jail) open(name string, flags uint64) (*os.File, error) {
	fd, err := unix.Openat2(int(j.root.Fd()), name, &unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// file opens a regular file of the jail that has no other name.
func (j *jail) file(name string) (*os.File, int64, error) {
	f, err := j.open(name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, 0, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 {
		f.Close()
		return nil, 0, errors.Join(err, fmt.Errorf("%s is no file of the jail's own", name))
	}
	return f, st.Size, nil
}

// dial connects to a socket of the jail. Its path may be longer than a socket's
// address may be, and it must be in the jail itself; so it is named by descriptor.
func (j *jail) dial(ctx context.Context, name string) (net.Conn, error) {
	f, err := j.open(name, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return new(net.Dialer).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}

// take copies a file that Firecracker wrote, and may still write to, into one that
// nobody can change.
func (j *jail) take(name string, most int64) (*os.File, error) {
	f, size, err := j.file(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size == 0 || size > most {
		return nil, fmt.Errorf("%s has %d bytes", name, size)
	}
	to, err := snapshot.NewMemory(size)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(copyData(to, f, size), snapshot.Seal(to)); err != nil {
		to.Close()
		return nil, err
	}
	return to, nil
}

// jailed is the jailer's command line. Firecracker runs as a user of its own, in a
// root of its own, in the control group of its sandbox, with its own filter of system
// calls. Its namespaces are made by spawn: that of the network has nothing in it, and
// without --new-pid-ns it stays a child of ours.
func jailed(b *Backend, p vmm.Place, group string) []string {
	uid := fmt.Sprint(p.UID)
	return []string{
		"--id", p.ID, "--exec-file", b.Firecracker, "--uid", uid, "--gid", uid,
		"--chroot-base-dir", p.Dir, "--netns", "/proc/self/ns/net",
		"--cgroup-version", "2", "--parent-cgroup", group,
		"--resource-limit", "no-file=256",
		"--", "--api-sock", "/" + apiSocket,
	}
}

// groupOf finds the control group that a VMM is to be in, as the jailer wants to be
// told: its path in the hierarchy of version 2.
func groupOf(dirs []string) (string, error) {
	if len(dirs) != 1 || !unified(dirs[0]) {
		return "", unavailable("Firecracker's jailer needs control groups of version 2, in one hierarchy",
			"boot the host with systemd.unified_cgroup_hierarchy=1, or use QEMU", fmt.Errorf("groups %q", dirs))
	}
	top := dirs[0]
	for unified(filepath.Dir(top)) {
		top = filepath.Dir(top)
	}
	group := strings.TrimPrefix(strings.TrimPrefix(dirs[0], top), "/")
	if group == "" {
		return "", unavailable("a VMM cannot be in the topmost control group", "", nil)
	}
	return group, nil
}

func unified(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC
}

// contains reports whether a process is in a control group. The jailer goes on
// without a word where it could not move its process there.
func contains(group string, pid int) (bool, error) {
	b, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(b)) {
		if strings.TrimSpace(line) == fmt.Sprint(pid) {
			return true, nil
		}
	}
	return false, nil
}
