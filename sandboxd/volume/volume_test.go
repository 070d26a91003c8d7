package volume

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const mib = 1 << 20

// open mounts a volume, or skips where this machine has none.
func open(t *testing.T, s *Store, dir string, size Size) (release func() error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: mounting needs root")
	}
	release, err := s.Mount(dir, 12345, size)
	if errors.Is(err, ErrNone) {
		t.Skipf("skipped: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return release
}

func write(t *testing.T, path string, size int) error {
	t.Helper()
	return os.WriteFile(path, make([]byte, size), 0o600)
}

// fill writes little by little: a kernel refuses a large piece as a whole.
func fill(t *testing.T, path string) error {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for range 64 * mib / 4096 {
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return err
		}
	}
	return nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A volume takes over what the folder has, holds its size in bytes and in files,
// keeps what it has, and changes its size, but not below what it holds.
func TestVolume(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home of one")
	must(t, os.Mkdir(dir, 0o700))
	must(t, write(t, filepath.Join(dir, "before"), 1000))
	s := &Store{}
	release := open(t, s, dir, Size{4 * mib, 100})
	if info, err := os.Stat(dir); err != nil || info.Sys().(*syscall.Stat_t).Uid != 12345 || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %+v, %v", info, err)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 2 { // lost+found is the other
		t.Errorf("it begins with %v, %v", all, err)
	}
	must(t, write(t, filepath.Join(dir, "fits"), 3*mib))
	if Full(dir) {
		t.Error("it is full before it is")
	}
	if err := fill(t, filepath.Join(dir, "more")); !errors.Is(err, syscall.ENOSPC) || !Full(dir) {
		var st syscall.Statfs_t
		_ = syscall.Statfs(dir, &st)
		t.Errorf("too much: %v, full %v: %d blocks of %d", err, Full(dir), st.Bavail, st.Bsize)
	}
	must(t, os.Remove(filepath.Join(dir, "more")))
	var err error
	for i := 0; err == nil && i < 200; i++ {
		err = write(t, filepath.Join(dir, "n"+strings.Repeat("x", i)), 0)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("too many files: %v", err)
	}
	again := open(t, s, dir, Size{4 * mib, 100}) // two of one server
	must(t, release())
	if _, err := os.Stat(filepath.Join(dir, "fits")); err != nil {
		t.Errorf("while another has it: %v", err)
	}
	must(t, again())
	if _, err := os.Stat(filepath.Join(dir, "fits")); err == nil {
		t.Error("control: it is still mounted")
	}
	for _, size := range []Size{{40 * mib, 100}, {6 * mib, 100}} {
		release := open(t, s, dir, size)
		if info, err := os.Stat(filepath.Join(dir, "fits")); err != nil || info.Size() != 3*mib {
			t.Errorf("with another size: %v", err)
		}
		must(t, release())
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); { // others' namespaces may hold copies
		if used, err := deviceOf(dir + Suffix); err != nil || used == "" {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if _, err := s.Mount(dir, 12345, Size{mib, 100}); err == nil || errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "holds more than") {
		t.Errorf("smaller than what it holds: %v", err)
	}
	must(t, open(t, s, dir, Size{6 * mib, 100})()) // which did it no harm
}

// One file is never mounted twice, nor is what is no file; what a killed host left
// is taken off.
func TestVolumeIsMountedOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "one")
	must(t, os.Mkdir(dir, 0o700))
	size := Size{mib, 100}
	s := &Store{}
	open(t, s, dir, size)
	other := &Store{}
	if _, err := other.Mount(dir, 12345, size); err == nil || !strings.Contains(err.Error(), "another sandbox host") {
		t.Errorf("another host: %v", err)
	}
	must(t, s.open[dir].lock.Close()) // it is killed
	if err := Clean(filepath.Dir(dir)); err != nil || isMounted(dir) {
		t.Errorf("cleaning: %v, mounted %v", err, isMounted(dir))
	}
	must(t, open(t, other, dir, size)())
	must(t, os.Rename(dir+Suffix, dir+".elsewhere"))
	must(t, os.Symlink(dir+".elsewhere", dir+Suffix))
	if _, err := other.Mount(dir, 12345, size); err == nil || !strings.Contains(err.Error(), "is not a file") {
		t.Errorf("a link: %v", err)
	}
	if _, err := (*Store)(nil).Mount(dir, 12345, size); !errors.Is(err, ErrNone) {
		t.Errorf("no store: %v", err)
	}
}

func isMounted(dir string) bool {
	b, _ := os.ReadFile("/proc/self/mountinfo")
	return strings.Contains(string(b), " "+dir+" ")
}
