package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
)

// addLayer puts one layer of an OCI image, a tar stream, over what is there
// already, as if the image were the root of a file system: a later entry wins,
// whiteouts hide what lower layers had, and links in a path are followed inside
// the image only. What no image may hold is left out (devices, FIFOs, sockets,
// extended attributes, bits that give privileges, write permission for others)
// or refused.
func (t *tree) addLayer(number int, r io.Reader) error {
	l := layer{t, number}
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := l.add(h, tr); err != nil {
			return fmt.Errorf("entry %.200q: %w", h.Name, err)
		}
	}
}

// A layer is being added to a tree.
type layer struct {
	*tree
	number int // from 1
}

const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
	aufs     = ".wh..wh." // other names with it are notes of the aufs file system
)

func (l layer) add(h *tar.Header, r io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if err := l.count(); err != nil {
		return err
	}
	p, err := cleanPath(strings.TrimLeft(h.Name, "/"))
	if err != nil && strings.Trim(h.Name, "/") != "" {
		return err
	}
	if p == "" {
		if h.Typeflag != tar.TypeDir {
			return errors.New("the root can only be a folder")
		}
		return nil
	}
	if name := path.Base(p); strings.HasPrefix(name, whiteout) {
		return l.hide(path.Dir(p), name)
	}
	n := &node{uid: owner(h.Uid), gid: owner(h.Gid), mtime: clampTime(h.ModTime.Unix()), layer: l.number}
	if err := l.fill(n, h, r); err != nil {
		return err
	}
	return l.put(p, n)
}

// fill makes the node that a header and the bytes after it describe.
func (l layer) fill(n *node, h *tar.Header, r io.Reader) (err error) {
	if sparse(h) {
		return errSparse
	}
	perm := fs.FileMode(h.Mode) & 0o755
	switch h.Typeflag {
	case tar.TypeDir:
		n.mode, n.children = fs.ModeDir|perm|0o500, map[string]*node{} // root can always go in
	case tar.TypeReg:
		n.mode, n.size = perm, h.Size
		n.off, err = l.store(r, h.Size)
	case tar.TypeSymlink:
		if badTarget(h.Linkname) {
			return fmt.Errorf("bad target %.200q of a symbolic link", h.Linkname)
		}
		n.mode, n.target = fs.ModeSymlink|0o777, h.Linkname
	case tar.TypeLink:
		return l.copyOf(n, h.Linkname)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		n.mode = fs.ModeIrregular
		l.dropped++
	default:
		return fmt.Errorf("type %q is refused: an image holds only folders, files and links", h.Typeflag)
	}
	return err
}

// copyOf makes n the same as what a hard link leads to, in this layer or a lower
// one. (A read-only image needs no more: neither can change.)
func (l layer) copyOf(n *node, target string) error {
	p, err := cleanPath(strings.TrimLeft(target, "/"))
	if err != nil {
		return fmt.Errorf("hard link: %w", err)
	}
	var first *node
	if dir, err := l.folder(path.Dir(p), false); err != nil {
		return fmt.Errorf("hard link: %w", err)
	} else if dir != nil {
		first = dir.children[path.Base(p)]
	}
	if first == nil || first.mode.IsDir() {
		return fmt.Errorf("hard link to %.200q, which is not a file of the image", target)
	}
	*n = *first
	n.layer = l.number
	return l.charge(n.size)
}

// put takes the place of whatever is at p; a folder keeps what a folder held.
func (l layer) put(p string, n *node) error {
	dir, err := l.folder(path.Dir(p), true)
	if err != nil {
		return err
	}
	name := path.Base(p)
	if old := dir.children[name]; old != nil && old.mode.IsDir() && n.mode.IsDir() {
		n.children, n.cleared = old.children, old.cleared
	}
	dir.children[name] = n
	return nil
}

// hide follows a whiteout: what lower layers had there is gone, and what this
// layer put there, before or after, stays.
func (l layer) hide(in, name string) error {
	hidden := strings.TrimPrefix(name, whiteout)
	if hidden == "" || hidden == "." || hidden == ".." {
		return errors.New("a whiteout that names nothing")
	}
	dir, err := l.folder(in, false)
	if err != nil || dir == nil {
		return err
	}
	switch {
	case name == opaque:
		l.clear(dir)
	case strings.HasPrefix(name, aufs):
	default:
		if n := dir.children[hidden]; n != nil && l.isLower(n) {
			delete(dir.children, hidden)
		}
	}
	return nil
}

// isLower reports whether nothing of n is this layer's, having taken away what
// is not.
func (l layer) isLower(n *node) bool {
	if n.mode.IsDir() {
		l.clear(n)
	}
	return n.layer < l.number && len(n.children) == 0
}

// clear takes away what lower layers had in a folder. They cannot put it back, so
// that once for each layer is enough, and a million whiteouts cost no more.
func (l layer) clear(dir *node) {
	if dir.cleared == l.number {
		return
	}
	dir.cleared = l.number
	for name, n := range dir.children {
		if l.isLower(n) {
			delete(dir.children, name)
		}
	}
}

// maxSteps bounds the parts of a path and of all links in it, so that no path
// takes long.
const maxSteps = 256

// folder returns the folder at p, following links as a process would whose root
// is the image: none leads out of it. Missing folders are made, or else nil is
// returned.
func (l layer) folder(p string, make bool) (*node, error) {
	way := []*node{l.root} // from the root to where we are
	todo := splitPath(p)
	for steps := len(todo); len(todo) > 0; {
		part, at := todo[0], way[len(way)-1]
		todo = todo[1:]
		if part == ".." {
			way = way[:max(1, len(way)-1)]
			continue
		}
		next := at.children[part]
		switch {
		case next == nil && !make:
			return nil, nil
		case next == nil:
			if err := l.count(); err != nil {
				return nil, err
			}
			if len(way) > maxDepth {
				return nil, fmt.Errorf("deeper than %d folders", maxDepth)
			}
			next = newDir(0o755)
			next.layer = l.number
			at.children[part] = next
			way = append(way, next)
		case next.mode.IsDir():
			way = append(way, next)
		case next.mode&fs.ModeSymlink != 0:
			if path.IsAbs(next.target) {
				way = way[:1]
			}
			parts := splitPath(next.target)
			if steps += len(parts) + 1; steps > maxSteps {
				return nil, errors.New("too many symbolic links in the path")
			}
			todo = append(parts, todo...)
		default:
			return nil, fmt.Errorf("path goes through %q, which is not a folder", part)
		}
	}
	return way[len(way)-1], nil
}

func splitPath(p string) (parts []string) {
	for part := range strings.SplitSeq(p, "/") {
		if part != "" && part != "." {
			parts = append(parts, part)
		}
	}
	return parts
}

// owner keeps what a number of a user can be; others become root.
func owner(id int) int {
	if id < 0 || id >= 1<<32-1 {
		return 0
	}
	return id
}

// clampTime keeps times from 1970 to 9999; a file's time may matter, since
// compiled Python is valid for one time of its source only.
func clampTime(sec int64) int64 { return min(max(sec, 1), 253402300799) }

var errSparse = errors.New("sparse files are refused: a few bytes would stand for gigabytes")

func badTarget(target string) bool {
	return target == "" || len(target) > maxPath || strings.ContainsFunc(target, isControl)
}
