package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
)

// Root hands over a folder in which the gateway's user may be at work already:
// a gateway that was taken over, or one that ends just now. So nothing here is
// named by a path: each step opens one name under a folder that is open, without
// following links, and acts on what it opened.

// theirs are the parts of the data folder that the gateway reads but never
// writes: they stay with their owner. None are not its business at all.
var (
	theirs = []string{"sallyport.yaml", "policies", "tools", "owner"}
	none   = []string{"agents"}
)

// give hands the data folder to the gateway's user, but for what is only to be
// read. Links are refused, of both kinds, and so is what is not a file, a folder
// or a socket.
//
// The folder itself stays with its owner. The gateway's group may write in it,
// and the sticky bit keeps it from renaming what is not its own; others may only
// walk through, to be told on the socket that they are not wanted.
func give(data string, owner, uid, gid int) error {
	root, err := os.Open(data)
	if err != nil {
		return err
	}
	defer root.Close()
	err = each(root, data, func(name string, fd int, st *unix.Stat_t) error {
		path := filepath.Join(data, name)
		switch {
		case slices.Contains(none, name):
			return nil
		case slices.Contains(theirs, name):
			return tree(fd, path, st, func(fd int, st *unix.Stat_t) error { return readable(fd, st, gid) })
		}
		return tree(fd, path, st, func(fd int, _ *unix.Stat_t) error { return chown(fd, uid, gid) })
	})
	if err != nil {
		return err
	}
	if err := root.Chown(owner, gid); err != nil {
		return err
	}
	return root.Chmod(os.ModeSticky | 0o771)
}

// each opens every name in a folder, checks what it is and passes it on.
func each(dir *os.File, path string, do func(name string, fd int, st *unix.Stat_t) error) error {
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := one(dir, path, name, do); err != nil {
			return err
		}
	}
	return nil
}

func one(dir *os.File, path, name string, do func(name string, fd int, st *unix.Stat_t) error) error {
	path = filepath.Join(path, name)
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	what := ""
	switch kind := st.Mode & unix.S_IFMT; {
	case kind == unix.S_IFLNK:
		what = "is a link"
	case kind != unix.S_IFREG && kind != unix.S_IFDIR && kind != unix.S_IFSOCK:
		what = "is neither a file nor a folder"
	case kind == unix.S_IFREG && st.Nlink > 1:
		what = "has a second name elsewhere (a hard link)"
	}
	if what != "" {
		return &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf("%s %s, which does not belong into a data folder", path, what),
			Hint: "move it away, then start again"}
	}
	return do(name, fd, &st)
}

// tree does something to what is open as fd and to all below it.
func tree(fd int, path string, st *unix.Stat_t, do func(fd int, st *unix.Stat_t) error) error {
	if err := do(fd, st); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	inner, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	dir := os.NewFile(uintptr(inner), path)
	defer dir.Close()
	return each(dir, path, func(name string, fd int, st *unix.Stat_t) error {
		return tree(fd, filepath.Join(path, name), st, do)
	})
}

// readable lets the gateway's group, and nobody else but the owner, read one
// file or folder.
func readable(fd int, st *unix.Stat_t, gid int) error {
	if err := chown(fd, -1, gid); err != nil {
		return err
	}
	mode := os.FileMode(st.Mode&0o770) | 0o040
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		mode |= 0o010
	}
	return os.Chmod("/proc/self/fd/"+strconv.Itoa(fd), mode)
}

func chown(fd, uid, gid int) error {
	return unix.Fchownat(fd, "", uid, gid, unix.AT_EMPTY_PATH)
}

// closeInherited keeps what the caller left open in this process, whoever that
// was, from the programs that it becomes and starts.
func closeInherited() error {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if fd, err := strconv.Atoi(name); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}
