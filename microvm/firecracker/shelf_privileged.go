package firecracker

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"sallyport.dev/sallyport/microvm/snapshot"
)

// shelved is how many files are kept for jails to share; those used last stay.
const shelved = 16

// insert puts a file into the jail, which Firecracker may read and not change. A jail
// takes files by name, and memory of which copies share pages is that of one file: so
// there is one copy of each file in the backend's folder, of which jails get links.
// The file itself is never linked, which would count as a change to it.
// Preconditions: Firecracker has not been started.
func (v *vm) insert(name string, f *os.File) error {
	b := v.backend
	b.shelf.Lock()
	defer b.shelf.Unlock()
	copied, err := b.shelve(f)
	if err == nil {
		err = unix.Linkat(unix.AT_FDCWD, copied, int(v.jail.root.Fd()), name, 0)
	}
	if err != nil {
		return unavailable("Firecracker's jail cannot be filled with "+name, "the run folder needs room, on one file system", err)
	}
	b.tidy()
	return nil
}

// shelve returns the path of the copy of a file.
// Preconditions: b.shelf is held.
func (b *Backend) shelve(f *os.File) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return "", err
	}
	// Numbers of files are used again; that together with the time it cannot be.
	path := filepath.Join(b.Dir, fmt.Sprintf("%x-%x-%x-%x.%x", st.Dev, st.Ino, st.Size, st.Ctim.Sec, st.Ctim.Nsec))
	now := time.Now()
	if err := os.Chtimes(path, now, now); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(b.Dir, 0o700); err != nil {
		return "", err
	}
	to, err := os.CreateTemp(b.Dir, "new-")
	if err != nil {
		return "", err
	}
	err = errors.Join(copyData(to, f, st.Size), to.Chmod(0o444), to.Close())
	if err == nil {
		err = os.Rename(to.Name(), path)
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(to.Name()))
	}
	return path, nil
}

// tidy forgets what was not used for longest. Jails keep their links.
// Preconditions: b.shelf is held.
func (b *Backend) tidy() {
	entries, _ := os.ReadDir(b.Dir) // tried again next time
	type file struct {
		path string
		used time.Time
	}
	var all []file
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			all = append(all, file{filepath.Join(b.Dir, e.Name()), info.ModTime()})
		}
	}
	slices.SortFunc(all, func(x, y file) int { return cmp.Compare(y.used.UnixNano(), x.used.UnixNano()) })
	for _, f := range all[min(shelved, len(all)):] {
		_ = os.Remove(f.path) // tried again next time
	}
}

// copyData makes a copy of a file, with the holes that it has.
func copyData(to, from *os.File, size int64) error {
	if err := to.Truncate(size); err != nil {
		return err
	}
	return snapshot.Copy(to, from, size)
}
