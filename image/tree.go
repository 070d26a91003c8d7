package image

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sort"
	"strings"
	"unicode/utf8"
)

// The bounds of one image. What goes beyond them is refused.
const (
	// MaxSize bounds the bytes that an image's files take, unless a Spec says
	// otherwise.
	MaxSize = 4 << 30

	maxEntries = 500_000 // seen, whether or not a later one replaces them
	maxDepth   = 48
	maxPath    = 1024
	maxName    = 255
)

// A node is one entry of the image to be. Its type is a directory, a regular
// file or a symbolic link; nothing else can be expressed.
type node struct {
	mode     fs.FileMode // type and permission bits
	uid, gid int
	mtime    int64  // seconds since 1970; 0 is buildTime
	layer    int    // that made it, from 1; 0 in what was built otherwise
	cleared  int    // the last layer that hid what was in this folder
	target   string // of a symbolic link
	off      int64  // of the contents in the spool
	size     int64
	children map[string]*node // of a directory
}

// A tree is the image to be, kept in memory; contents go to a spool file.
// Paths never touch the host's file system, so no entry can reach out of it.
type tree struct {
	root    *node
	spool   *os.File
	end     int64 // of the spool
	size    int64 // of all files in whole blocks, each hard link counted
	maxSize int64
	entries int
	dropped int // devices, FIFOs and sockets that were left out
}

func newTree(spool *os.File, maxSize int64) *tree {
	return &tree{root: newDir(0o755), spool: spool, maxSize: cmp.Or(maxSize, MaxSize), entries: 1}
}

func newDir(perm fs.FileMode) *node {
	return &node{mode: fs.ModeDir | perm.Perm(), children: map[string]*node{}}
}

// cleanPath turns the name of an archive's entry ("./usr/bin/x") into a path
// ("usr/bin/x", "" for the root), or refuses it.
func cleanPath(name string) (string, error) {
	switch {
	case name == "":
		return "", errors.New("empty name")
	case strings.HasPrefix(name, "/"):
		return "", errors.New("absolute path")
	case len(name) > maxPath:
		return "", fmt.Errorf("path longer than %d bytes", maxPath)
	case !utf8.ValidString(name):
		return "", errors.New("name is not UTF-8")
	}
	depth := 0
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", errors.New("path goes up (..)")
		}
		if len(part) > maxName {
			return "", fmt.Errorf("name longer than %d bytes", maxName)
		}
		if depth++; depth > maxDepth {
			return "", fmt.Errorf("deeper than %d folders", maxDepth)
		}
	}
	if strings.ContainsFunc(name, isControl) {
		return "", errors.New("name has a control character")
	}
	p := path.Clean(name)
	if p == "." {
		return "", nil
	}
	return p, nil
}

func isControl(r rune) bool { return r < 0x20 || r == 0x7f }

// merged are the folders of the root that are symbolic links into usr: /bin is
// usr/bin, and so on.
func merged(top string) bool {
	switch top {
	case "bin", "sbin", "lib", "lib32", "lib64", "libx32":
		return true
	}
	return false
}

// intoUsr maps a path below a merged folder to where it really is.
func intoUsr(p string) string {
	top, _, _ := strings.Cut(p, "/")
	if merged(top) {
		return "usr/" + p
	}
	return p
}

// get returns the node at a path, or nil. It follows no links.
func (t *tree) get(p string) *node {
	n := t.root
	if p == "" {
		return n
	}
	for part := range strings.SplitSeq(p, "/") {
		if n = n.children[part]; n == nil {
			return nil
		}
	}
	return n
}

// dir returns the folder at p and makes the missing ones above it. It refuses a
// path that goes through anything but folders.
func (t *tree) dir(p string) (*node, error) {
	n := t.root
	if p == "" || p == "." {
		return n, nil
	}
	for part := range strings.SplitSeq(p, "/") {
		next := n.children[part]
		if next == nil {
			if err := t.count(); err != nil {
				return nil, err
			}
			next = newDir(0o755)
			n.children[part] = next
		}
		if !next.mode.IsDir() {
			return nil, fmt.Errorf("path goes through %q, which is not a folder", part)
		}
		n = next
	}
	return n, nil
}

func (t *tree) count() error {
	if t.entries++; t.entries > maxEntries {
		return fmt.Errorf("more than %d entries", maxEntries)
	}
	return nil
}

// add puts a node at a path that nothing else holds.
func (t *tree) add(p string, n *node) error {
	if p == "" {
		return errors.New("the root can only be a folder")
	}
	parent, err := t.dir(path.Dir(p))
	if err != nil {
		return err
	}
	name := path.Base(p)
	if old := parent.children[name]; old != nil {
		return errors.New("there is something at this path already")
	}
	if err := t.count(); err != nil {
		return err
	}
	parent.children[name] = n
	return nil
}

// charge counts a file of the image to be: each takes whole blocks, and each
// hard link is a file of its own.
func (t *tree) charge(size int64) error {
	if size < 0 || size > t.maxSize || t.size+size > t.maxSize {
		return fmt.Errorf("%d bytes more would make the image larger than %d", size, t.maxSize)
	}
	t.size += (size + blockSize - 1) / blockSize * blockSize
	return nil
}

// store copies size bytes of r to the spool.
func (t *tree) store(r io.Reader, size int64) (off int64, err error) {
	if err := t.charge(size); err != nil {
		return 0, err
	}
	n, err := io.Copy(io.NewOffsetWriter(t.spool, t.end), io.LimitReader(r, size))
	if err == nil && n != size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return 0, err
	}
	off = t.end
	t.end += size
	return off, nil
}

// contents returns the bytes of a regular file.
func (t *tree) contents(n *node) io.Reader { return io.NewSectionReader(t.spool, n.off, n.size) }

// walk visits every entry below the root: folders before what they hold,
// siblings sorted by name.
func (t *tree) walk(visit func(p string, n *node) error) error { return walk("", t.root, visit) }

func walk(p string, n *node, visit func(string, *node) error) error {
	names := make([]string, 0, len(n.children))
	for name := range n.children {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		child := n.children[name]
		at := path.Join(p, name)
		if err := visit(at, child); err != nil {
			return err
		}
		if err := walk(at, child, visit); err != nil {
			return err
		}
	}
	return nil
}
