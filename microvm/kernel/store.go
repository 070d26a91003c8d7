package kernel

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	imageExt   = ".bzimage"
	modulesExt = ".cpio"

	// building begins the names of the folders of builds that are not done.
	building = ".build-"

	// maxKernel bounds what is read of a file of the cache.
	maxKernel = 128 << 20
)

func folder(cacheDir string) string { return filepath.Join(cacheDir, "kernels") }

func blob(cacheDir, sum, ext string) string {
	return filepath.Join(folder(cacheDir), "sha256-"+sum+ext)
}

// Describe returns a kernel of a cache folder by its name, without checking its
// bytes. Where there is none, the error is a fs.ErrNotExist.
func Describe(cacheDir, name string) (Kernel, error) {
	var k Kernel
	b, err := os.ReadFile(filepath.Join(folder(cacheDir), name+".json"))
	if err != nil {
		return k, missing(name, err)
	}
	if err := json.Unmarshal(b, &k); err != nil {
		return Kernel{}, unavailable("the description of the guest kernel is damaged", rebuildHint, err)
	}
	for _, sum := range []string{k.Image, k.Modules} {
		if b, err := hex.DecodeString(sum); err != nil || len(b) != sha256.Size {
			return Kernel{}, unavailable("the description of the guest kernel is damaged", rebuildHint, fmt.Errorf("%.80q is no sha256", sum))
		}
	}
	return k, nil
}

// UpToDate reports whether the cache holds a kernel of this recipe, whole.
func UpToDate(cacheDir, name string) bool {
	k, err := Describe(cacheDir, name)
	if err != nil || k.Recipe != recipe(name) {
		return false
	}
	_, image := k.read(cacheDir, k.Image, imageExt)
	_, modules := k.read(cacheDir, k.Modules, modulesExt)
	return image == nil && modules == nil
}

// read returns the bytes of a file of the cache, which are those of its name.
func (k Kernel) read(cacheDir, sum, ext string) ([]byte, error) {
	f, err := os.Open(blob(cacheDir, sum, ext))
	if err != nil {
		return nil, unavailable("the guest kernel "+k.Name+" is not whole", rebuildHint, err)
	}
	defer f.Close()
	if err := ours(f); err != nil {
		return nil, unavailable("the guest kernel "+k.Name+" cannot be trusted", rebuildHint, err)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxKernel+1))
	if err != nil {
		return nil, unavailable("the guest kernel "+k.Name+" cannot be read", rebuildHint, err)
	}
	if got := sha256.Sum256(b); hex.EncodeToString(got[:]) != sum {
		return nil, unavailable("the guest kernel "+k.Name+" was altered", rebuildHint, fmt.Errorf("%s: its bytes are sha256 %x", f.Name(), got))
	}
	return b, nil
}

// ours refuses a file that others than root and us could write.
func ours(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", f.Name())
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to uid %d", f.Name(), st.Uid)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s can be written by others (%v)", f.Name(), info.Mode().Perm())
	}
	return nil
}

// keep writes the files under their digests, then the description that names them;
// each appears whole or not at all. It deletes what no description names any more.
func keep(cacheDir, work string, k Kernel, image, modules []byte) (Kernel, error) {
	for _, f := range []struct {
		sum  *string
		ext  string
		data []byte
	}{{&k.Image, imageExt, image}, {&k.Modules, modulesExt, modules}} {
		got := sha256.Sum256(f.data)
		*f.sum = hex.EncodeToString(got[:])
		if err := put(work, blob(cacheDir, *f.sum, f.ext), f.data); err != nil {
			return Kernel{}, err
		}
	}
	k.Recipe = recipe(k.Name)
	b, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return Kernel{}, err
	}
	if err := put(work, filepath.Join(folder(cacheDir), k.Name+".json"), append(b, '\n')); err != nil {
		return Kernel{}, err
	}
	return k, prune(cacheDir)
}

func put(work, to string, data []byte) error {
	tmp := filepath.Join(work, "file")
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o444); err != nil { // whatever the umask is
		return err
	}
	return os.Rename(tmp, to)
}

func prune(cacheDir string) error {
	named := map[string]bool{}
	for _, name := range []string{Small, Debian} {
		k, err := Describe(cacheDir, name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil // it may name anything
		}
		named[blob(cacheDir, k.Image, imageExt)], named[blob(cacheDir, k.Modules, modulesExt)] = true, true
	}
	files, _ := filepath.Glob(filepath.Join(folder(cacheDir), "sha256-*")) // the pattern is well formed
	for _, f := range files {
		if named[f] {
			continue
		}
		if err := os.Remove(f); err != nil {
			return err
		}
	}
	return nil
}

// inFolder gives do a work folder while nobody else builds kernels in the cache
// folder, and sweeps up after those that were killed.
func inFolder(ctx context.Context, cacheDir string, do func(work string) (Kernel, error)) (Kernel, error) {
	if err := os.MkdirAll(folder(cacheDir), 0o755); err != nil {
		return Kernel{}, err
	}
	lock, err := os.OpenFile(filepath.Join(folder(cacheDir), ".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return Kernel{}, err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return Kernel{}, err
	}
	left, _ := filepath.Glob(filepath.Join(folder(cacheDir), building+"*")) // the pattern is well formed
	for _, dir := range left {
		if err := os.RemoveAll(dir); err != nil {
			return Kernel{}, err
		}
	}
	work, err := os.MkdirTemp(folder(cacheDir), building)
	if err != nil {
		return Kernel{}, err
	}
	defer os.RemoveAll(work)
	k, err := do(work)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return k, err
}
