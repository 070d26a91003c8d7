package risk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"sallyport.dev/sallyport"
)

// trustedCache makes dir/wasm, or checks that nobody but its owner, who must be
// this user or root, can write there. It returns "" where the folder cannot be
// made or read: then there is no cache.
func trustedCache(dir string) (string, error) {
	if dir == "" {
		return "", nil
	}
	dir = filepath.Join(dir, "wasm")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
			return "", nil
		}
		return "", untrusted(dir, "it cannot be made", err)
	}
	if err := onlyOurs(filepath.Dir(dir)); err != nil {
		return "", err
	}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrPermission) {
			return fs.SkipAll
		}
		if err != nil {
			return untrusted(path, "it cannot be read", err)
		}
		return onlyOurs(path)
	})
	if err != nil {
		return "", err
	}
	return dir, nil
}

func onlyOurs(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return untrusted(path, "it cannot be read", err)
	}
	if info.Mode()&fs.ModeSymlink != 0 || !info.IsDir() && !info.Mode().IsRegular() {
		return untrusted(path, "it is neither a folder nor a file", nil)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return untrusted(path, "others than its owner can write it", nil)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() && stat.Uid != 0 {
		return untrusted(path, "another user owns it", nil)
	}
	return nil
}

func untrusted(path, why string, err error) error {
	return &sallyport.Error{
		Code: sallyport.Unavailable, Step: sallyport.Assess, Err: err,
		Message: "the cache " + path + " is not to be trusted: " + why,
		Hint:    "code in it would be run: remove it, or give it to the gateway's user with mode 0700",
	}
}

// Share lets every user read, never write, what this one compiled into the
// cache at dir: a gateway that gave root up uses what root made.
func Share(dir string) error {
	return filepath.WalkDir(filepath.Join(dir, "wasm"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.Chmod(path, 0o755)
		}
		return os.Chmod(path, 0o644)
	})
}
