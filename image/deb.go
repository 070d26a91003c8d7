package image

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// addEntry makes one entry safe: the owner is root, nobody else may write, no
// bit gives privileges (set-uid, set-gid, capabilities), and what is neither a
// folder, a file nor a link is refused.
func (t *tree) addEntry(h *tar.Header, r io.Reader) error {
	p, err := cleanPath(h.Name)
	if err != nil {
		return err
	}
	perm := fs.FileMode(h.Mode) & 0o755
	if merged(p) {
		return t.addMerged(p, h, perm)
	}
	p = intoUsr(p)
	if pruned(p) {
		return nil
	}
	if sparse(h) {
		return errSparse
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return t.addDir(p, perm)
	case tar.TypeReg:
		off, err := t.store(r, h.Size)
		if err != nil {
			return err
		}
		return t.add(p, &node{mode: perm, off: off, size: h.Size})
	case tar.TypeSymlink:
		return t.addSymlink(p, h.Linkname)
	case tar.TypeLink:
		return t.addHardLink(p, h.Linkname)
	default:
		return fmt.Errorf("type %q is refused: an image holds only folders, files and links", h.Typeflag)
	}
}

func sparse(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false // old GNU ones have a type of their own
}

// addMerged takes the folder itself (bin, lib, …), or the link that stands for it.
func (t *tree) addMerged(p string, h *tar.Header, perm fs.FileMode) error {
	switch {
	case h.Typeflag == tar.TypeDir:
		return t.addDir("usr/"+p, perm)
	case h.Typeflag == tar.TypeSymlink && h.Linkname == "usr/"+p:
		return nil // made for every image
	}
	return fmt.Errorf("/%s can only be the link to usr/%s", p, p)
}

func (t *tree) addDir(p string, perm fs.FileMode) error {
	n, err := t.dir(p)
	if err != nil {
		return err
	}
	n.mode = fs.ModeDir | perm | 0o500 // root can always go in
	return nil
}

func (t *tree) addSymlink(p, target string) error {
	if badTarget(target) {
		return fmt.Errorf("bad target %q of a symbolic link", target)
	}
	return t.add(p, &node{mode: fs.ModeSymlink | 0o777, target: target})
}

// addHardLink makes a second file with the same contents. The first must be in
// the tree already, as tar has it.
func (t *tree) addHardLink(p, target string) error {
	target, err := cleanPath(target)
	if err != nil {
		return fmt.Errorf("hard link: %w", err)
	}
	first := t.get(intoUsr(target))
	if first == nil || !first.mode.IsRegular() {
		return fmt.Errorf("hard link to %q, which is not a file of the image", target)
	}
	if err := t.charge(first.size); err != nil {
		return err
	}
	same := *first
	return t.add(p, &same)
}
