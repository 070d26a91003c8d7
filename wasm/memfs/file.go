package memfs

import (
	"io"
	"maps"
	"slices"
	"time"

	"github.com/tetratelabs/wazero/experimental/sys"
	wasys "github.com/tetratelabs/wazero/sys"
)

// pages hold a file. Those that were never written take no room.
type pages struct {
	size int64
	at   map[int64]*page
}

const pageSize = 4096

type page [pageSize]byte

func (p *pages) readAt(b []byte, off int64) int {
	b = b[:max(0, min(int64(len(b)), p.size-off))]
	n := len(b)
	for len(b) > 0 {
		var part int
		if pg := p.at[off/pageSize]; pg != nil {
			part = copy(b, pg[off%pageSize:])
		} else {
			part = min(len(b), int(pageSize-off%pageSize))
			clear(b[:part])
		}
		b, off = b[part:], off+int64(part)
	}
	return n
}

// maxSize bounds a file that takes no room.
const maxSize = 1 << 40

// writeAt writes what fits.
func (n *node) writeAt(b []byte, off int64) (done int, errno sys.Errno) {
	if off < 0 || off > maxSize {
		return 0, sys.EINVAL
	}
	if n.data.at == nil {
		n.data.at = map[int64]*page{}
	}
	for len(b) > 0 {
		pg := n.data.at[off/pageSize]
		if pg == nil {
			if !n.disk.take(pageSize, 0) {
				break
			}
			pg = &page{}
			n.data.at[off/pageSize] = pg
		}
		part := copy(pg[off%pageSize:], b)
		b, off, done = b[part:], off+int64(part), done+part
		n.data.size = max(n.data.size, off)
	}
	n.mtim = time.Now().UnixNano()
	if done == 0 && len(b) > 0 {
		return 0, noSpace
	}
	return done, 0
}

func (n *node) resize(size int64) sys.Errno {
	if size < 0 || size > maxSize {
		return sys.EINVAL
	}
	n.cut(size)
	return 0
}

// cut makes a file so long: what is beyond is gone, what it lacks is zero.
func (n *node) cut(size int64) {
	for i, pg := range n.data.at {
		switch {
		case i*pageSize >= size:
			delete(n.data.at, i)
			n.disk.left += pageSize
		case (i+1)*pageSize > size:
			clear(pg[size%pageSize:])
		}
	}
	n.data.size, n.mtim = size, time.Now().UnixNano()
}

// free gives back the room of what nobody can reach any more.
func (n *node) free() {
	if n.gone && n.open == 0 {
		n.disk.left += int64(len(n.data.at)) * pageSize
		n.data = pages{}
	}
}

func (n *node) touch(mtim int64) {
	if mtim != sys.UTIME_OMIT {
		n.mtim = mtim
	}
}

func (n *node) stat() wasys.Stat_t {
	return wasys.Stat_t{Dev: 1, Ino: n.ino, Mode: n.mode, Nlink: 1, Size: n.data.size, Atim: n.mtim, Mtim: n.mtim, Ctim: n.mtim}
}

func (n *node) sorted() []string { return slices.Sorted(maps.Keys(n.inner)) }

func (n *node) shut() sys.Errno {
	n.open--
	n.free()
	return 0
}

// An offset is an int64 by another name: vet takes Seek(int64, int) for that of
// io.Seeker.
type offset = int64

// A file is an open one.
type file struct {
	sys.UnimplementedFile
	node                   *node
	off                    int64
	reads, writes, appends bool
}

// Dev implements sys.File.
func (f *file) Dev() (uint64, sys.Errno) { return 1, 0 }

// Ino implements sys.File.
func (f *file) Ino() (wasys.Inode, sys.Errno) { return f.node.ino, 0 }

// IsAppend implements sys.File.
func (f *file) IsAppend() bool { return f.appends }

// SetAppend implements sys.File.
func (f *file) SetAppend(on bool) sys.Errno {
	f.appends = on
	return 0
}

// Stat implements sys.File.
func (f *file) Stat() (wasys.Stat_t, sys.Errno) { return f.node.stat(), 0 }

// Read implements sys.File.
func (f *file) Read(b []byte) (int, sys.Errno) {
	n, errno := f.Pread(b, f.off)
	f.off += int64(n)
	return n, errno
}

// Pread implements sys.File.
func (f *file) Pread(b []byte, off int64) (int, sys.Errno) {
	switch {
	case !f.reads:
		return 0, sys.EBADF
	case off < 0:
		return 0, sys.EINVAL
	}
	return f.node.data.readAt(b, off), 0
}

// Seek implements sys.File.
func (f *file) Seek(off offset, whence int) (int64, sys.Errno) {
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		off += f.off
	case io.SeekEnd:
		off += f.node.data.size
	default:
		return 0, sys.EINVAL
	}
	if off < 0 {
		return 0, sys.EINVAL
	}
	f.off = off
	return off, 0
}

// Write implements sys.File.
func (f *file) Write(b []byte) (int, sys.Errno) {
	if f.appends {
		f.off = f.node.data.size
	}
	n, errno := f.Pwrite(b, f.off)
	f.off += int64(n)
	return n, errno
}

// Pwrite implements sys.File.
func (f *file) Pwrite(b []byte, off int64) (int, sys.Errno) {
	if !f.writes {
		return 0, sys.EBADF
	}
	return f.node.writeAt(b, off)
}

// Truncate implements sys.File.
func (f *file) Truncate(size int64) sys.Errno {
	if !f.writes {
		return sys.EBADF
	}
	return f.node.resize(size)
}

// Utimens implements sys.File.
func (f *file) Utimens(_, mtim int64) sys.Errno {
	f.node.touch(mtim)
	return 0
}

// Close implements sys.File.
func (f *file) Close() sys.Errno { return f.node.shut() }

// A folder is an open one.
type folder struct {
	sys.DirFile
	node *node
	next int // entry
	list []string
}

// Dev implements sys.File.
func (f *folder) Dev() (uint64, sys.Errno) { return 1, 0 }

// Ino implements sys.File.
func (f *folder) Ino() (wasys.Inode, sys.Errno) { return f.node.ino, 0 }

// Stat implements sys.File.
func (f *folder) Stat() (wasys.Stat_t, sys.Errno) { return f.node.stat(), 0 }

// Seek implements sys.File: to the beginning only.
func (f *folder) Seek(off offset, whence int) (int64, sys.Errno) {
	if off != 0 || whence != io.SeekStart {
		return 0, sys.EINVAL
	}
	f.next, f.list = 0, nil
	return 0, 0
}

// Readdir implements sys.File.
func (f *folder) Readdir(n int) (out []sys.Dirent, _ sys.Errno) {
	if f.list == nil {
		f.list = f.node.sorted()
	}
	for ; f.next < len(f.list) && (n <= 0 || len(out) < n); f.next++ {
		if at := f.node.inner[f.list[f.next]]; at != nil { // it may be gone
			out = append(out, sys.Dirent{Ino: at.ino, Name: f.list[f.next], Type: at.mode.Type()})
		}
	}
	return out, 0
}

// Sync implements sys.File.
func (f *folder) Sync() sys.Errno { return 0 }

// Datasync implements sys.File.
func (f *folder) Datasync() sys.Errno { return 0 }

// Utimens implements sys.File.
func (f *folder) Utimens(_, mtim int64) sys.Errno {
	f.node.touch(mtim)
	return 0
}

// Close implements sys.File.
func (f *folder) Close() sys.Errno { return f.node.shut() }
