// Package volume gives a server a folder of its own that has a size: a file
// system in a file, of which no more can be written than it has room for. The
// kernel says so at the moment of writing, which nobody who looks now and then
// can.
package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Suffix of the files that hold the file systems, beside the folders.
const Suffix = ".ext4"

const (
	journal     = 4 << 20   // bytes
	tables      = 128 << 10 // bytes of what a file system has besides
	noJournal   = 32 << 20  // below this size there is no room for one
	inode       = 256       // bytes of each
	busyFor     = 20 * time.Second
	makeFor     = 2 * time.Minute
	nearlyFull  = 64 << 10 // bytes left that are as good as none
	systemPaths = "/usr/sbin:/sbin:/usr/bin:/bin"
)

// ErrNone means that this host has no file systems in files: no loop devices, no
// mkfs.ext4, or not the right to mount.
var ErrNone = errors.New("no file systems in files here")

// A Store mounts volumes. It is safe for concurrent use; nil has none.
type Store struct {
	mu   sync.Mutex
	open map[string]*mounted // by folder
}

type mounted struct {
	uses int
	lock *os.File // the file, which no other sandbox host mounts meanwhile
}

// A Size is how much a volume holds.
type Size struct {
	Bytes int64
	Files int
}

// Mount puts a volume of the size over a folder, which the uid owns; the first
// time it has what the folder has. release takes it off again, once nobody else
// has it.
func (s *Store) Mount(dir string, uid int, size Size) (release func() error, err error) {
	if s == nil {
		return nil, ErrNone
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.open[dir]; m != nil {
		m.uses++
		return func() error { return s.release(dir) }, nil
	}
	m, err := mount(dir, uid, size)
	if err != nil {
		return nil, err
	}
	if s.open == nil {
		s.open = map[string]*mounted{}
	}
	s.open[dir] = m
	return func() error { return s.release(dir) }, nil
}

func (s *Store) release(dir string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.open[dir]
	if m == nil {
		return nil // closed meanwhile
	}
	if m.uses--; m.uses > 0 {
		return nil
	}
	delete(s.open, dir)
	return errors.Join(unmount(dir), m.lock.Close())
}

// Close takes off every volume. None may be mounted after it.
func (s *Store) Close() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for dir, m := range s.open {
		errs = append(errs, unmount(dir), m.lock.Close())
		delete(s.open, dir)
	}
	return errors.Join(errs...)
}

// asWritten undoes how the kernel writes paths.
var asWritten = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// Clean takes off what a sandbox host that was killed left mounted below dir.
func Clean(dir string) error {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var errs []error
	for line := range strings.Lines(string(info)) {
		f := strings.Fields(line)
		if len(f) < 5 || !strings.Contains(line, " - ext4 /dev/loop") {
			continue
		}
		if at := asWritten.Replace(f[4]); strings.HasPrefix(at, dir+"/") {
			errs = append(errs, unmount(at))
		}
	}
	return errors.Join(errs...)
}

// Full tells whether a volume has no room left for bytes, or for files.
func Full(dir string) bool {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return false
	}
	return int64(st.Bavail)*st.Bsize < nearlyFull || st.Ffree == 0
}

func mount(dir string, uid int, size Size) (m *mounted, err error) {
	path := dir + Suffix
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, fmt.Errorf("%s is in use by another sandbox host", path)
	}
	if err := fit(path, dir, size); err != nil {
		return nil, err
	}
	if err := attach(path, dir); err != nil {
		return nil, err
	}
	if err := errors.Join(os.Chown(dir, uid, uid), os.Chmod(dir, 0o700)); err != nil {
		return nil, errors.Join(err, unmount(dir))
	}
	return &mounted{1, lock}, nil
}

// whole is how large the file is that has room for so much, beside what the file
// system itself takes.
func (s Size) whole() int64 {
	n := s.Bytes + int64(s.Files)*inode + s.Bytes/64 + tables
	if s.Bytes >= noJournal {
		n += journal
	}
	return (n + 4095) &^ 4095
}

// fit makes the file, or brings it to its size.
func fit(path, from string, size Size) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return format(path, from, size)
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a file", path)
	case info.Size() == size.whole():
		return nil
	}
	if used, err := busy(path); err != nil {
		return err
	} else if used != "" { // by a copy of an earlier mount, in a namespace of somebody else's
		slog.Warn("a server's own folder keeps its size until its next start", "file", path, "used", used)
		return nil
	}
	if err := tool("e2fsck", "-fp", path); err != nil {
		return err
	}
	if size.whole() > info.Size() {
		if err := os.Truncate(path, size.whole()); err != nil {
			return err
		}
		return tool("resize2fs", path)
	}
	if err := tool("resize2fs", path, strconv.FormatInt(size.whole()/4096, 10)); err != nil {
		return fmt.Errorf("it holds more than %d bytes: %w", size.Bytes, err)
	}
	return os.Truncate(path, size.whole())
}

// format makes the file under another name first: a half one is never used.
func format(path, from string, size Size) error {
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(fresh, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(size.whole()), f.Close()); err != nil {
		return err
	}
	args := []string{"-q", "-F", "-b", "4096", "-m", "0", "-I", strconv.Itoa(inode), "-N", strconv.Itoa(size.Files), "-E", "lazy_itable_init=1,lazy_journal_init=1", "-d", from}
	if size.Bytes >= noJournal {
		args = append(args, "-J", "size="+strconv.Itoa(journal>>20))
	} else {
		args = append(args, "-O", "^has_journal")
	}
	if err := tool("mkfs.ext4", append(args, fresh)...); err != nil {
		return errors.Join(err, os.Remove(fresh))
	}
	return os.Rename(fresh, path)
}

// tool runs a program of e2fsprogs.
func tool(name string, args ...string) error {
	for dir := range strings.SplitSeq(systemPaths, ":") {
		full := filepath.Join(dir, name)
		if _, err := os.Stat(full); err != nil {
			continue
		}
		cmd := exec.Command(full, args...)
		cmd.Env, cmd.WaitDelay = []string{"PATH=" + systemPaths, "LC_ALL=C"}, time.Second
		late := time.AfterFunc(makeFor, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		out, err := cmd.CombinedOutput()
		if err != nil && !(name == "e2fsck" && cmd.ProcessState.ExitCode() == 1) { // 1: errors were corrected
			return fmt.Errorf("%s: %w: %.300s", name, err, out)
		}
		return nil
	}
	return fmt.Errorf("%w: %s (package e2fsprogs) is not installed", ErrNone, name)
}
