package wasm

import (
	"cmp"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/hashed"
	"sallyport.dev/sallyport/tier"
)

// Bounds of the store.
const (
	maxEntries = 64
	maxStored  = 1 << 30 // bytes
)

// A store keeps compiled modules as guest.Entry files, each under the digest of
// its module and of the program that compiled it. An entry is only ever used for
// that module, and in a cage: whoever could make the compiler write bad code has
// gained what the module itself could do.
type store struct {
	dir string
	tag string // of the program
}

// openStore takes a folder that nobody else can write, and clears it of what other
// versions of the program left.
func openStore(dir string, program *os.File) (store, error) {
	if !filepath.IsAbs(dir) {
		return store{}, tier.Unavailable("give an absolute folder", "the folder of compiled modules, %q, is not absolute", dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return store{}, err
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return store{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 {
		return store{}, tier.Unavailable("remove it, or choose another", "the folder of compiled modules, %s, must be this user's, with mode 0700", dir)
	}
	sum, err := hashed.Reader(io.NewSectionReader(program, 0, 1<<40))
	if err != nil {
		return store{}, err
	}
	s := store{dir, sum[:16]}
	for _, e := range s.list() {
		if !strings.HasSuffix(e.Name(), "-"+s.tag) {
			_ = os.Remove(filepath.Join(dir, e.Name())) // another host may have
		}
	}
	return s, nil
}

func (s store) list() []os.DirEntry {
	all, _ := os.ReadDir(s.dir) // a folder that vanished has none
	return all
}

func (s store) path(digest string) string { return filepath.Join(s.dir, digest+"-"+s.tag) }

// open opens an entry, or fails with fs.ErrNotExist.
func (s store) open(digest string) (f *os.File, size int64, err error) {
	if f, err = os.Open(s.path(digest)); err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	now := time.Now()
	_ = os.Chtimes(f.Name(), now, now) // keeps it from being the oldest
	return f, info.Size(), nil
}

// put stores an entry, whole or not at all, and makes room.
func (s store) put(digest string, parts ...[]byte) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(s.dir, "new-*-"+s.tag)
	if err != nil {
		return err
	}
	for _, p := range parts {
		if err == nil {
			_, err = f.Write(p)
		}
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), s.path(digest))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	s.prune(filepath.Base(s.path(digest)))
	return nil
}

func (s store) drop(digest string) { _ = os.Remove(s.path(digest)) } // gone is gone

// prune removes the entries that were used longest ago, but never keep.
func (s store) prune(keep string) {
	var all []os.FileInfo
	var total int64
	for _, e := range s.list() {
		if info, err := e.Info(); err == nil {
			all = append(all, info)
			total += info.Size()
		}
	}
	slices.SortFunc(all, func(a, b os.FileInfo) int { return cmp.Compare(a.ModTime().UnixNano(), b.ModTime().UnixNano()) })
	for left := len(all); len(all) > 0 && (left > maxEntries || total > maxStored); all = all[1:] {
		if all[0].Name() != keep && os.Remove(filepath.Join(s.dir, all[0].Name())) == nil {
			left, total = left-1, total-all[0].Size()
		}
	}
}
