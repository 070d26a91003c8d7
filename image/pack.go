package image

import (
	"fmt"
	"io/fs"
	"os"
	"path"
)

// Pack writes the folders, files and symbolic links below root, for instance an
// installed package, as an EROFS image of its own: everything belongs to root
// and nobody may write. What is something else is refused. No link is followed.
// spoolDir holds what is on its way.
func Pack(out *os.File, root *os.Root, spoolDir string) error {
	spool, err := os.CreateTemp(spoolDir, "spool-")
	if err != nil {
		return err
	}
	defer spool.Close()
	defer os.Remove(spool.Name())
	t := newTree(spool, 0)
	err = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := t.pack(root, p, d.Type()); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return t.write(out, spoolDir)
}

func (t *tree) pack(root *os.Root, name string, kind fs.FileMode) error {
	p, err := cleanPath(name)
	switch {
	case err != nil:
		return err
	case kind.IsDir():
		return t.addDir(p, 0o755)
	case kind == fs.ModeSymlink:
		target, err := root.Readlink(name)
		if err != nil {
			return err
		}
		if path.IsAbs(target) {
			return fmt.Errorf("a link to %q, which is outside", target)
		}
		return t.addSymlink(p, target)
	case !kind.IsRegular():
		return fmt.Errorf("neither a folder nor a file nor a link")
	}
	return t.addFileOf(root, p)
}
