package image

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// addFolder adds what is below dir of root at the path p of the image. Owner is
// root, no time is kept, and of permissions only whether the owner may execute:
// the user, the umask, the clock and the file system leave no trace.
func (t *tree) addFolder(ctx context.Context, root *os.Root, dir, p string) error {
	f, err := root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	entries, err := f.ReadDir(-1)
	f.Close()
	if err != nil {
		return err
	}
	for _, e := range entries { // in any order: the image is sorted when it is written
		if ctx.Err() != nil {
			return ctx.Err()
		}
		at := path.Join(p, e.Name())
		if _, err := cleanPath(at); err != nil {
			return fmt.Errorf("%q: %w", at, err)
		}
		if err := t.addFound(ctx, root, at, e.Type()); err != nil {
			return fmt.Errorf("%q: %w", at, err)
		}
	}
	return nil
}

func (t *tree) addFound(ctx context.Context, root *os.Root, p string, typ fs.FileMode) error {
	switch {
	case typ.IsDir():
		if err := t.addDir(p, 0o755); err != nil {
			return err
		}
		return t.addFolder(ctx, root, p, p)
	case typ&fs.ModeSymlink != 0:
		target, err := root.Readlink(p)
		if err != nil {
			return err
		}
		return t.addSymlink(p, target)
	case typ.IsRegular():
		return t.addFileOf(root, p)
	default:
		t.dropped++
		return nil
	}
}

// addFileOf reads a file that may have become something else meanwhile: it does
// not follow a link, and does not wait for a FIFO.
func (t *tree) addFileOf(root *os.Root, p string) error {
	f, err := root.OpenFile(p, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("it became %s while it was read", info.Mode().Type())
	}
	n := &node{mode: 0o644, size: info.Size()}
	if info.Mode()&0o100 != 0 {
		n.mode = 0o755
	}
	if n.off, err = t.store(f, n.size); err != nil {
		return err
	}
	if more, _ := io.CopyN(io.Discard, f, 1); more > 0 {
		return fmt.Errorf("it grew while it was read")
	}
	return t.add(p, n)
}
