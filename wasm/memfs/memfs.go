// Package memfs is a small file system in memory, bounded in bytes and in names,
// for modules that must see no file of a host. It has no links and no parent
// folders: from a Folder, no path leads anywhere but into it.
package memfs

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tetratelabs/wazero/experimental/sys"
	wasys "github.com/tetratelabs/wazero/sys"
)

// A Disk bounds what its folders hold together. It is not safe for concurrent use:
// a module has one thread.
type Disk struct {
	left  int64 // bytes
	names int64
	last  wasys.Inode

	// Full says that something did not fit.
	Full bool
}

const (
	bytesPerName = 4096 // of the bound: a name costs memory too
	leastNames   = 256
	maxName      = 255
)

// NewDisk bounds all files by so many bytes.
func NewDisk(size int64) *Disk { return &Disk{left: size, names: max(leastNames, size/bytesPerName)} }

// A node is a file or a folder.
type node struct {
	disk  *Disk
	ino   wasys.Inode
	mode  fs.FileMode
	mtim  int64
	inner map[string]*node // of a folder
	data  pages            // of a file
	open  int              // how often
	gone  bool             // without a name
}

func (d *Disk) node(mode fs.FileMode) *node {
	d.last++
	return &node{disk: d, ino: d.last, mode: mode, mtim: time.Now().UnixNano()}
}

// A Folder implements sys.FS: what is below one folder.
type Folder struct {
	sys.UnimplementedFS
	top *node
}

// NewFolder makes an empty folder.
func (d *Disk) NewFolder() *Folder {
	top := d.node(fs.ModeDir | 0o755)
	top.inner = map[string]*node{}
	return &Folder{top: top}
}

// walk finds the folder that holds the last part of p; name is "" for the top.
func (f *Folder) walk(p string) (in *node, name string, errno sys.Errno) {
	parts := strings.FieldsFunc(p, func(r rune) bool { return r == '/' })
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "." })
	in = f.top
	for i, s := range parts {
		switch {
		case s == ".." || strings.ContainsRune(s, 0):
			return nil, "", sys.EPERM
		case len(s) > maxName:
			return nil, "", sys.ENAMETOOLONG
		case in.inner == nil:
			return nil, "", sys.ENOTDIR
		case i == len(parts)-1:
			return in, s, 0
		}
		if in = in.inner[s]; in == nil {
			return nil, "", sys.ENOENT
		}
	}
	return in, "", 0
}

// find finds what p names.
func (f *Folder) find(p string) (*node, sys.Errno) {
	in, name, errno := f.walk(p)
	switch {
	case errno != 0 || name == "":
		return in, errno
	case in.inner[name] == nil:
		return nil, sys.ENOENT
	case strings.HasSuffix(p, "/") && in.inner[name].inner == nil:
		return nil, sys.ENOTDIR
	}
	return in.inner[name], 0
}

// add makes what p names.
func (f *Folder) add(p string, mode fs.FileMode) (*node, sys.Errno) {
	in, name, errno := f.walk(p)
	switch {
	case errno != 0:
		return nil, errno
	case name == "" || in.inner[name] != nil:
		return nil, sys.EEXIST
	case in.gone:
		return nil, sys.ENOENT
	case !in.disk.take(0, 1):
		return nil, noSpace
	}
	n := in.disk.node(mode)
	if mode.IsDir() {
		n.inner = map[string]*node{}
	}
	in.inner[name], in.mtim = n, n.mtim
	return n, 0
}

// noSpace is what a module is told of a full disk: wazero's errors have no
// ENOSPC.
const noSpace = sys.EIO

// take takes room, if there is any.
func (d *Disk) take(size, names int64) bool {
	if size > d.left || names > d.names {
		d.Full = true
		return false
	}
	d.left -= size
	d.names -= names
	return true
}

// OpenFile implements sys.FS.
func (f *Folder) OpenFile(p string, flag sys.Oflag, perm fs.FileMode) (sys.File, sys.Errno) {
	n, errno := f.find(p)
	switch {
	case errno == sys.ENOENT && flag&sys.O_CREAT != 0 && flag&sys.O_DIRECTORY == 0:
		if strings.HasSuffix(p, "/") {
			return nil, sys.EISDIR
		}
		n, errno = f.add(p, perm.Perm())
	case errno == 0 && flag&(sys.O_CREAT|sys.O_EXCL) == sys.O_CREAT|sys.O_EXCL:
		return nil, sys.EEXIST
	}
	writes := flag&(sys.O_WRONLY|sys.O_RDWR) != 0
	switch {
	case errno != 0:
		return nil, errno
	case n.inner != nil && (writes || flag&sys.O_CREAT != 0):
		return nil, sys.EISDIR
	case n.inner == nil && flag&sys.O_DIRECTORY != 0:
		return nil, sys.ENOTDIR
	}
	n.open++
	if n.inner != nil {
		return &folder{node: n}, 0
	}
	if flag&sys.O_TRUNC != 0 {
		n.cut(0)
	}
	return &file{node: n, reads: flag&sys.O_WRONLY == 0, writes: writes, appends: flag&sys.O_APPEND != 0}, 0
}

// Stat implements sys.FS.
func (f *Folder) Stat(p string) (wasys.Stat_t, sys.Errno) {
	n, errno := f.find(p)
	if errno != 0 {
		return wasys.Stat_t{}, errno
	}
	return n.stat(), 0
}

// Lstat implements sys.FS: there are no links.
func (f *Folder) Lstat(p string) (wasys.Stat_t, sys.Errno) { return f.Stat(p) }

// Readlink implements sys.FS.
func (f *Folder) Readlink(p string) (string, sys.Errno) {
	if _, errno := f.find(p); errno != 0 {
		return "", errno
	}
	return "", sys.EINVAL
}

// Mkdir implements sys.FS.
func (f *Folder) Mkdir(p string, perm fs.FileMode) sys.Errno {
	_, errno := f.add(p, fs.ModeDir|perm.Perm())
	return errno
}

// Chmod implements sys.FS.
func (f *Folder) Chmod(p string, perm fs.FileMode) sys.Errno {
	n, errno := f.find(p)
	if errno == 0 {
		n.mode = n.mode.Type() | perm.Perm()
	}
	return errno
}

// Utimens implements sys.FS.
func (f *Folder) Utimens(p string, _, mtim int64) sys.Errno {
	n, errno := f.find(p)
	if errno == 0 {
		n.touch(mtim)
	}
	return errno
}

// Rmdir implements sys.FS.
func (f *Folder) Rmdir(p string) sys.Errno {
	n, errno := f.find(p)
	switch {
	case errno != 0:
		return errno
	case n.inner == nil:
		return sys.ENOTDIR
	case n == f.top:
		return sys.EINVAL
	case len(n.inner) > 0:
		return sys.ENOTEMPTY
	}
	f.remove(p)
	return 0
}

// Unlink implements sys.FS.
func (f *Folder) Unlink(p string) sys.Errno {
	n, errno := f.find(p)
	switch {
	case errno != 0:
		return errno
	case n.inner != nil:
		return sys.EISDIR
	}
	f.remove(p)
	return 0
}

// remove takes a name away; what it named goes when nothing has it open.
// Preconditions: p names something that may go.
func (f *Folder) remove(p string) {
	in, name, _ := f.walk(p)
	n := in.inner[name]
	delete(in.inner, name)
	in.mtim = time.Now().UnixNano()
	in.disk.names++
	n.gone = true
	n.free()
}

// Rename implements sys.FS, within one folder and below it.
func (f *Folder) Rename(from, to string) sys.Errno {
	n, errno := f.find(from)
	if errno != 0 {
		return errno
	}
	in, name, errno := f.walk(to)
	switch {
	case errno != 0:
		return errno
	case name == "" || n == f.top || in.gone || inside(in, n):
		return sys.EINVAL
	}
	if old := in.inner[name]; old == n {
		return 0
	} else if old != nil {
		switch {
		case old.inner != nil && n.inner == nil:
			return sys.EISDIR
		case old.inner == nil && n.inner != nil:
			return sys.ENOTDIR
		case len(old.inner) > 0:
			return sys.ENOTEMPTY
		}
		f.remove(to)
	}
	was, short, _ := f.walk(from)
	delete(was.inner, short)
	in.inner[name] = n
	in.mtim = time.Now().UnixNano()
	was.mtim = in.mtim
	return 0
}

// inside reports whether n is top or somewhere below it.
func inside(n, top *node) bool {
	if n == top {
		return true
	}
	for _, below := range top.inner {
		if below.inner != nil && inside(n, below) {
			return true
		}
	}
	return false
}

// Put makes a file with all folders above it.
func (f *Folder) Put(p string, content []byte) sys.Errno {
	if errno := f.PutFolder(path.Dir(p)); errno != 0 {
		return errno
	}
	n, errno := f.add(p, 0o644)
	if errno == 0 {
		_, errno = n.writeAt(content, 0)
	}
	return errno
}

// PutFolder makes a folder with all folders above it.
func (f *Folder) PutFolder(p string) sys.Errno {
	if p == "." {
		return 0
	}
	if errno := f.PutFolder(path.Dir(p)); errno != 0 {
		return errno
	}
	if errno := f.Mkdir(p, 0o755); errno != sys.EEXIST {
		return errno
	}
	return 0
}

// Each tells of every file, in the order of names, until tell says no.
func (f *Folder) Each(tell func(path string, size int64, read func() []byte) bool) {
	f.top.each("", tell)
}

func (n *node) each(at string, tell func(string, int64, func() []byte) bool) bool {
	for _, name := range n.sorted() {
		p, below := path.Join(at, name), n.inner[name]
		if below.inner != nil {
			if !below.each(p, tell) {
				return false
			}
			continue
		}
		read := func() []byte {
			b := make([]byte, below.data.size)
			below.data.readAt(b, 0)
			return b
		}
		if !tell(p, below.data.size, read) {
			return false
		}
	}
	return true
}
