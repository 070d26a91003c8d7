package main

import (
	"syscall"
	"unsafe"

	"sallyport.dev/sallyport/tier/payload"
)

// Files of a session are moved by process 1, from within the sandbox: a path of
// a request is resolved by the sandbox's kernel, beneath the working folder, so
// whatever links a program makes, and whenever it swaps them, nothing else is
// ever reached. A file that comes in lies in a folder of process 1 until it is
// whole, and then appears at once.

const (
	uploads = "/home/.incoming" // on the working folder's file system

	sysOpenat2     = 437 // on every architecture
	resolveBeneath = 0x08
	resolveNoMagic = 0x02
	oPath          = 0x200000
	unknownSize    = ^uint64(0)
	chunk          = 256 << 10
)

// An upload is a file on its way in.
type upload struct {
	fd   int
	path string
	size uint64
	got  uint64
	err  error
}

const incoming = uploads + "/file"

// openat2 opens a path beneath a folder.
func openat2(dir int, path string, flags int) (int, error) {
	p, err := syscall.BytePtrFromString(path)
	if err != nil {
		return -1, err
	}
	how := struct{ flags, mode, resolve uint64 }{uint64(flags | syscall.O_CLOEXEC), 0, resolveBeneath | resolveNoMagic}
	fd, _, e := syscall.Syscall6(sysOpenat2, uintptr(dir), uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how), 0, 0)
	if e != 0 {
		return -1, e
	}
	return int(fd), nil
}

// handle does what one record asks of the files.
func (r *room) handle(k payload.Kind, data []byte) {
	switch k {
	case payload.Folder:
		fd, err := r.folder(string(data))
		if err != nil {
			refuse(err, "making the folder")
			return
		}
		syscall.Close(fd)
		report(payload.OK, nil)
	case payload.Put:
		r.begin(payload.Uint64(data), string(data[8:]))
	case payload.Data:
		r.up.add(data)
	case payload.Commit:
		if err := r.commit(); err != nil {
			refuse(err, "storing the file")
			return
		}
		report(payload.OK, nil)
	case payload.Abort:
		r.abort()
		report(payload.OK, nil)
	case payload.Get:
		r.get(payload.Uint64(data), payload.Uint64(data[8:]), string(data[16:]))
	case payload.Collect:
		r.out.collect()
		report(payload.OK, nil)
	case payload.List:
		r.list(string(data))
	default:
		fail(syscall.EINVAL, "unknown record")
	}
}

// folder opens a folder of the working folder, and makes what is missing of it.
func (r *room) folder(path string) (int, error) {
	fd, err := openat2(r.home, path, oPath|syscall.O_DIRECTORY)
	if err != syscall.ENOENT || path == "." { //nolint:errorlint // never wrapped; package errors would cost start-up time
		return fd, err
	}
	dir, name := split(path)
	parent, err := r.folder(dir)
	if err != nil {
		return -1, err
	}
	defer syscall.Close(parent)
	if err := syscall.Mkdirat(parent, name, 0o755); err != nil && err != syscall.EEXIST {
		return -1, err
	}
	fd, err = openat2(parent, name, oPath|syscall.O_DIRECTORY|syscall.O_NOFOLLOW)
	if err != nil {
		return -1, err
	}
	_ = syscall.Fchownat(fd, "", agent, agent, 0x1000) // AT_EMPTY_PATH
	return fd, nil
}

func split(path string) (dir, name string) {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '/' {
			return path[:i], path[i+1:]
		}
	}
	return ".", path
}

// begin makes room for a file, or refuses what cannot fit before any of it came.
func (r *room) begin(size uint64, path string) {
	r.abort()
	var fs syscall.Statfs_t
	if err := syscall.Fstatfs(r.home, &fs); err != nil {
		refuse(err, "looking for space")
		return
	}
	free := fs.Bavail * uint64(fs.Bsize)
	if size != unknownSize && size > free {
		refuse(syscall.ENOSPC, "storing the file")
		return
	}
	fd, err := syscall.Open(incoming, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		refuse(err, "storing the file")
		return
	}
	r.up = &upload{fd: fd, path: path, size: size}
	report(payload.OK, payload.AppendUint64(nil, free))
}

func (u *upload) add(data []byte) {
	if u != nil && u.err == nil {
		u.err = writeFile(u.fd, data)
		u.got += uint64(len(data))
	}
}

// commit shows the file under its name. Only a file, or nothing, is replaced.
func (r *room) commit() error {
	u := r.up
	if u == nil {
		return syscall.EINVAL
	}
	defer r.abort()
	if u.err == nil && u.size != unknownSize && u.got != u.size {
		u.err = syscall.EIO
	}
	if u.err != nil {
		return u.err
	}
	if err := syscall.Fchown(u.fd, agent, agent); err != nil {
		return err
	}
	dir, name := split(u.path)
	parent, err := r.folder(dir)
	if err != nil {
		return err
	}
	defer syscall.Close(parent)
	if old, err := openat2(parent, name, oPath|syscall.O_NOFOLLOW); err == nil {
		kind, _, _ := kindOf(old)
		syscall.Close(old)
		if kind == 'd' {
			return syscall.EISDIR
		}
		if kind != 'f' {
			return syscall.EEXIST
		}
	} else if err != syscall.ENOENT { //nolint:errorlint // never wrapped; package errors would cost start-up time
		return err
	}
	return syscall.Renameat(atCwd, incoming, parent, name)
}

const atCwd = -100

// abort forgets a file that is not whole. After a commit nothing is left to do.
func (r *room) abort() {
	if r.up != nil {
		syscall.Close(r.up.fd)
		r.up = nil
	}
	_ = syscall.Unlink(incoming)
}

func kindOf(fd int) (kind byte, size, at uint64) {
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return '?', 0, 0
	}
	switch st.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		kind = 'f'
	case syscall.S_IFDIR:
		kind = 'd'
	case syscall.S_IFLNK:
		kind = 'l'
	default:
		kind = '?'
	}
	return kind, uint64(st.Size), uint64(st.Mtim.Nano())
}

// get tells a file's content, as long as it was when it was opened. Nothing but
// a file is read, and nothing is waited for.
func (r *room) get(offset, length uint64, path string) {
	fd, err := openat2(r.home, path, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY)
	if err != nil {
		refuse(err, "reading "+path)
		return
	}
	defer syscall.Close(fd)
	kind, size, _ := kindOf(fd)
	switch {
	case kind == 'd':
		refuse(syscall.EISDIR, "reading the file")
		return
	case kind != 'f':
		refuse(syscall.EINVAL, "reading what is no file")
		return
	}
	left := min(length, size-min(offset, size))
	buf := make([]byte, chunk)
	for at := int64(min(offset, size)); left > 0; {
		n, err := syscall.Pread(fd, buf[:min(left, chunk)], at)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			refuse(err, "reading the file")
			return
		}
		if n == 0 {
			break
		}
		report(payload.Data, buf[:n])
		at, left = at+int64(n), left-uint64(n)
	}
	report(payload.OK, payload.AppendUint64(nil, size))
}

// list tells what is in a folder, links as links.
func (r *room) list(path string) {
	dir, err := openat2(r.home, path, syscall.O_RDONLY|syscall.O_DIRECTORY)
	if err != nil {
		refuse(err, "reading "+path)
		return
	}
	defer syscall.Close(dir)
	buf := make([]byte, 32<<10)
	for told := 0; ; {
		n, err := syscall.ReadDirent(dir, buf)
		if err != nil {
			refuse(err, "reading the folder")
			return
		}
		if n <= 0 {
			break
		}
		_, _, names := syscall.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			if told++; told > payload.MaxEntries {
				report(payload.OK, []byte("more"))
				return
			}
			entry(dir, name)
		}
	}
	report(payload.OK, nil)
}

func entry(dir int, name string) {
	fd, err := openat2(dir, name, oPath|syscall.O_NOFOLLOW)
	if err != nil {
		return // it is gone
	}
	kind, size, at := kindOf(fd)
	syscall.Close(fd)
	report(payload.Entry, append(payload.AppendUint64(payload.AppendUint64([]byte{kind}, size), at), name...))
}
