package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
)

// cacheOf is a cache folder with kernels of these names, and a folder of programs.
func cacheOf(t testing.TB, names ...string) (cache, programs string) {
	t.Helper()
	cache, programs = t.TempDir(), t.TempDir()
	for _, name := range names {
		_, err := inFolder(t.Context(), cache, func(work string) (Kernel, error) {
			modules := pack([]module{{"b.ko", []byte("B")}, {"a.ko", []byte("A of " + name)}})
			return keep(cache, work, Kernel{Name: name, Release: "6.1-" + name}, []byte("image of "+name), modules)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range inside {
		if err := os.WriteFile(filepath.Join(programs, p.program), []byte("program "+p.program), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return cache, programs
}

func TestOpen(t *testing.T) {
	cache, programs := cacheOf(t, Debian)
	g, err := Open(cache, programs)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if b, err := io.ReadAll(g.Image); err != nil || string(b) != "image of debian" {
		t.Errorf("the kernel is %q, %v", b, err)
	}
	initrd, err := io.ReadAll(g.Initrd)
	if err != nil {
		t.Fatal(err)
	}
	files := unpackCpio(t, initrd)
	for name, want := range map[string]string{
		"dev": "040755 ", "proc": "040755 ", "sys": "040755 ", "mods": "040755 ",
		"mods/a.ko": "100644 A of debian", "mods/b.ko": "100644 B", "mods/order": "100644 b.ko\na.ko\n",
		"init": "100755 program sallyport-guest", "sallyport-init": "100755 program sallyport-init",
	} {
		if files[name] != want {
			t.Errorf("%s is %q, want %q", name, files[name], want)
		}
	}
	again, err := Open(cache, programs)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	if again.Digest != g.Digest {
		t.Error("the same files gave another digest")
	}
	if err := os.WriteFile(filepath.Join(programs, "sallyport-init"), []byte("another program"), 0o755); err != nil {
		t.Fatal(err)
	}
	other, err := Open(cache, programs)
	if err != nil {
		t.Fatal(err)
	}
	other.Close()
	if other.Digest == g.Digest {
		t.Error("another program gave the same digest")
	}
}

// What a VMM is given cannot be changed, not even by who opened it.
func TestSealed(t *testing.T) {
	cache, programs := cacheOf(t, Debian)
	g, err := Open(cache, programs)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	control := filepath.Join(t.TempDir(), "control")
	if err := os.WriteFile(control, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	write := func(path string) error {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteAt([]byte("y"), 0)
		return errors.Join(err, f.Close())
	}
	if err := write(control); err != nil {
		t.Fatal("the control:", err)
	}
	for _, f := range []*os.File{g.Image, g.Initrd} {
		if _, err := f.WriteAt([]byte("y"), 0); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s was written to: %v", f.Name(), err)
		}
		if err := write(fmt.Sprintf("/proc/self/fd/%d", f.Fd())); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s was written to by its path: %v", f.Name(), err)
		}
		if err := f.Truncate(0); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s was cut: %v", f.Name(), err)
		}
	}
}

// Whatever is not what its description says is refused, in words that say what to do.
func TestRefused(t *testing.T) {
	find := func(t *testing.T, cache, ext string) string {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(folder(cache), "sha256-*"+ext))
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		return files[0]
	}
	for name, tt := range map[string]struct {
		spoil func(t *testing.T, cache, programs string) error
		want  string
	}{
		"an altered kernel": {func(t *testing.T, cache, _ string) error {
			f := find(t, cache, imageExt)
			return errors.Join(os.Remove(f), os.WriteFile(f, []byte("image of Debian"), 0o444))
		}, "was altered"},
		"altered modules": {func(t *testing.T, cache, _ string) error {
			f := find(t, cache, modulesExt)
			return errors.Join(os.Remove(f), os.WriteFile(f, pack(nil), 0o444))
		}, "was altered"},
		"others may write": {func(t *testing.T, cache, _ string) error { return os.Chmod(find(t, cache, imageExt), 0o666) }, "cannot be trusted"},
		"no kernel file":   {func(t *testing.T, cache, _ string) error { return os.Remove(find(t, cache, imageExt)) }, "is not whole"},
		"a folder": {func(t *testing.T, cache, _ string) error {
			f := find(t, cache, modulesExt)
			return errors.Join(os.Remove(f), os.Mkdir(f, 0o755))
		}, "cannot be trusted"},
		"a damaged description": {func(t *testing.T, cache, _ string) error {
			return os.WriteFile(filepath.Join(folder(cache), "debian.json"), []byte("{"), 0o644)
		}, "is damaged"},
		"a path for a digest": {func(t *testing.T, cache, _ string) error {
			return os.WriteFile(filepath.Join(folder(cache), "debian.json"), []byte(`{"image":"../../etc/passwd","modules":""}`), 0o644)
		}, "is damaged"},
		"no kernel at all": {func(t *testing.T, cache, _ string) error { return os.RemoveAll(folder(cache)) }, "no guest kernel"},
		"no guest program": {func(t *testing.T, _, programs string) error {
			return os.Remove(filepath.Join(programs, "sallyport-guest"))
		}, "sallyport-guest"},
	} {
		t.Run(name, func(t *testing.T) {
			cache, programs := cacheOf(t, Debian)
			if err := tt.spoil(t, cache, programs); err != nil {
				t.Fatal(err)
			}
			_, err := Open(cache, programs)
			e, ok := errors.AsType[*sallyport.Error](err)
			if !ok || e.Code != sallyport.Unavailable || !strings.Contains(e.Message, tt.want) || e.Hint == "" {
				t.Errorf("%v, want %q and a hint", err, tt.want)
			}
			if name != "no guest program" && UpToDate(cache, Debian) {
				t.Error("it counts as up to date, and would not be made again")
			}
		})
	}
}

// The small kernel is preferred; where it is damaged, none stands in for it.
func TestPreferred(t *testing.T) {
	cache, programs := cacheOf(t, Debian, Small)
	g, err := Open(cache, programs)
	if err != nil {
		t.Fatal(err)
	}
	g.Close()
	if g.Kernel.Name != Small {
		t.Errorf("the kernel is %s", g.Kernel.Name)
	}
	if err := os.Remove(blob(cache, g.Kernel.Image, imageExt)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(cache, programs); err == nil {
		t.Error("another kernel stood in for one that is damaged")
	}
	description := filepath.Join(folder(cache), "small.json")
	if err := errors.Join(os.Remove(description), os.WriteFile(description, []byte("{"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(cache, programs); err == nil {
		t.Error("another kernel stood in for one whose description is damaged")
	}
	if err := os.Remove(description); err != nil {
		t.Fatal(err)
	}
	if g, err = Open(cache, programs); err != nil {
		t.Fatal("control:", err)
	}
	g.Close()
}

// A kernel that replaces another one leaves nothing of it, and nothing of the builds
// that were killed.
func TestReplaced(t *testing.T) {
	cache, _ := cacheOf(t, Debian, Small)
	if !UpToDate(cache, Debian) || !UpToDate(cache, Small) {
		t.Fatal("what was just made is not up to date")
	}
	left := filepath.Join(folder(cache), building+"left")
	if err := os.MkdirAll(filepath.Join(left, "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := inFolder(t.Context(), cache, func(work string) (Kernel, error) {
		return keep(cache, work, Kernel{Name: Debian}, []byte("newer"), []byte("newer"))
	}); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(folder(cache))
	if err != nil || len(entries) != 7 { // two descriptions, two files each, the lock
		t.Errorf("%v, %v", entries, err)
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cache := t.TempDir()
	_, err := inFolder(ctx, cache, func(string) (Kernel, error) { cancel(); return Kernel{}, nil })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := Build(t.Context(), cache, "other", func(string) {}); err == nil {
		t.Error("a kernel without a recipe was made")
	}
}

// unpackCpio reads archives one after the other as the kernel does: name → mode in
// octal and contents.
func unpackCpio(t testing.TB, b []byte) map[string]string {
	t.Helper()
	files := map[string]string{}
	number := func(field int) int {
		n, err := strconv.ParseUint(string(b[6+8*field:14+8*field]), 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		return int(n)
	}
	for len(b) > 0 {
		if !bytes.HasPrefix(b, []byte("070701")) {
			t.Fatalf("no entry after %v: %q", slices.Sorted(maps.Keys(files)), b[:min(16, len(b))])
		}
		mode, size, end := number(1), number(6), 110+number(11)
		name := string(b[110 : end-1])
		from := (end + 3) &^ 3
		if name != "TRAILER!!!" {
			files[name] = fmt.Sprintf("%06o %s", mode, b[from:from+size])
		}
		b = b[min(len(b), (from+size+3)&^3):]
	}
	return files
}
