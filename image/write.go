package image

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/erofs/go-erofs"
)

// buildTime stands for every time that its source does not fix, so that bytes
// depend on contents alone. (The release day of Debian 12; any fixed day would do.)
var buildTime = time.Date(2023, 6, 10, 0, 0, 0, 0, time.UTC)

// write writes the tree as an EROFS image. The order is sorted and no
// time is that of the build: equal trees give equal bytes. spoolDir holds the writer's own copy.
func (t *tree) write(out *os.File, spoolDir string) error {
	w := erofs.Create(out, erofs.WithBuildTime(uint64(buildTime.Unix()), 0), erofs.WithTempDir(spoolDir))
	if err := w.Mkdir("/", 0o755); err != nil {
		return err
	}
	if err := w.Chtimes("/", buildTime, buildTime); err != nil {
		return err
	}
	err := t.walk(func(p string, n *node) error {
		if n.mode&fs.ModeIrregular != 0 { // a dropped one
			return nil
		}
		if err := t.writeNode(w, "/"+p, n); err != nil {
			return fmt.Errorf("/%s: %w", p, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := moveInlineData(out); err != nil {
		return fmt.Errorf("moving inline data: %w", err)
	}
	return out.Sync()
}

func (t *tree) writeNode(w *erofs.Writer, p string, n *node) error {
	var err error
	switch {
	case n.mode.IsDir():
		err = w.Mkdir(p, n.mode.Perm())
	case n.mode.IsRegular():
		err = t.writeFile(w, p, n)
	default:
		err = w.Symlink(n.target, p)
	}
	if err != nil {
		return err
	}
	if n.mode&fs.ModeSymlink == 0 {
		if err := w.Chmod(p, n.mode); err != nil {
			return err
		}
	}
	if err := w.Chown(p, n.uid, n.gid); err != nil {
		return err
	}
	at := buildTime
	if n.mtime != 0 {
		at = time.Unix(n.mtime, 0)
	}
	return w.Chtimes(p, at, at)
}

func (t *tree) writeFile(w *erofs.Writer, p string, n *node) error {
	f, err := w.Create(p)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, t.contents(n)); err != nil {
		return err
	}
	return f.Close()
}

// What moveInlineData needs of the EROFS format (the kernel's
// fs/erofs/erofs_fs.h): all numbers are little-endian.
const (
	blockSize     = 4096
	superAt       = 1024
	superBlocksAt = superAt + 36 // u32: blocks of the image
	superMetaAt   = superAt + 40 // u32: first block of the inodes
	inodeUnit     = 32           // a nid counts these
	inodeDataAt   = 16           // u32 in an inode: first block of a plain file
	layoutInline  = 2            // bits 1–3 of an inode's first u16; plain is 0
)

// moveInlineData gives every small file a block of its own. The writer puts the
// contents of files that fit beside their inode, where they cannot be mapped
// into memory: gVisor then fails to execute them, or to map a locale, with "bad
// address". It is what mkfs.erofs does under -E noinline_data.
func moveInlineData(f *os.File) error {
	img, err := erofs.Open(f)
	if err != nil {
		return err
	}
	var super [4]byte
	if _, err := f.ReadAt(super[:], superMetaAt); err != nil {
		return err
	}
	meta := int64(binary.LittleEndian.Uint32(super[:])) * blockSize
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	next := uint32((size + blockSize - 1) / blockSize)
	err = fs.WalkDir(img, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		moved, err := moveFile(f, img, p, d, meta, next)
		if moved {
			next++
		}
		return err
	})
	if err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(super[:], next)
	if _, err := f.WriteAt(super[:], superBlocksAt); err != nil {
		return err
	}
	return f.Truncate(int64(next) * blockSize)
}

func moveFile(f *os.File, img fs.FS, p string, d fs.DirEntry, meta int64, block uint32) (moved bool, err error) {
	info, err := d.Info()
	if err != nil {
		return false, err
	}
	st, ok := info.Sys().(*erofs.Stat)
	if !ok {
		return false, errors.New("the reader gives no inode numbers")
	}
	if st.InodeLayout != layoutInline {
		return false, nil
	}
	data, err := fs.ReadFile(img, p)
	if err != nil {
		return false, err
	}
	if len(data) > blockSize {
		return false, fmt.Errorf("%s: %d bytes beside an inode", p, len(data))
	}
	if _, err := f.WriteAt(append(data, make([]byte, blockSize-len(data))...), int64(block)*blockSize); err != nil {
		return false, err
	}
	at := meta + st.Ino*inodeUnit
	var inode [inodeDataAt + 4]byte
	if _, err := f.ReadAt(inode[:], at); err != nil {
		return false, err
	}
	format := binary.LittleEndian.Uint16(inode[:])
	if format>>1&7 != layoutInline {
		return false, fmt.Errorf("%s: its inode is not where it should be", p)
	}
	binary.LittleEndian.PutUint16(inode[:], format&^(7<<1))
	binary.LittleEndian.PutUint32(inode[inodeDataAt:], block)
	_, err = f.WriteAt(inode[:], at)
	return err == nil, err
}
