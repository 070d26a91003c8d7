package memfs

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/tetratelabs/wazero/experimental/sys"
	"golang.org/x/sys/unix"
)

func write(t *testing.T, f *Folder, p string, b []byte, flag sys.Oflag) (int, sys.Errno) {
	t.Helper()
	h, errno := f.OpenFile(p, flag, 0o600)
	if errno != 0 {
		return 0, errno
	}
	defer h.Close()
	return h.Write(b)
}

func read(t *testing.T, f *Folder, p string) string {
	t.Helper()
	h, errno := f.OpenFile(p, sys.O_RDONLY, 0)
	if errno != 0 {
		return errno.Error()
	}
	defer h.Close()
	b := make([]byte, 1<<20)
	n, _ := h.Read(b)
	return string(b[:n])
}

func TestErrors(t *testing.T) {
	f := NewDisk(1 << 20).NewFolder()
	for _, e := range []sys.Errno{f.Mkdir("d", 0o755), f.Mkdir("d/e", 0o755), f.Put("d/f", []byte("x")), f.Put("g", nil)} {
		if e != 0 {
			t.Fatal(e)
		}
	}
	open := func(p string, flag sys.Oflag) sys.Errno {
		h, errno := f.OpenFile(p, flag, 0o600)
		if errno == 0 {
			h.Close()
		}
		return errno
	}
	for name, c := range map[string]struct{ got, want sys.Errno }{
		"missing":               {open("no", sys.O_RDONLY), sys.ENOENT},
		"below a file":          {open("g/x", sys.O_RDONLY), sys.ENOTDIR},
		"a file as a folder":    {open("g", sys.O_DIRECTORY), sys.ENOTDIR},
		"a file with a slash":   {open("g/", sys.O_RDONLY), sys.ENOTDIR},
		"a new one with slash":  {open("new/", sys.O_CREAT|sys.O_WRONLY), sys.EISDIR},
		"write a folder":        {open("d", sys.O_WRONLY), sys.EISDIR},
		"there already":         {open("g", sys.O_CREAT|sys.O_EXCL|sys.O_WRONLY), sys.EEXIST},
		"up":                    {open("../etc/passwd", sys.O_RDONLY), sys.EPERM},
		"up inside":             {open("d/../../x", sys.O_CREAT|sys.O_WRONLY), sys.EPERM},
		"a NUL":                 {open("a\x00b", sys.O_CREAT|sys.O_WRONLY), sys.EPERM},
		"a long name":           {open(string(bytes.Repeat([]byte("x"), 256)), sys.O_CREAT|sys.O_WRONLY), sys.ENAMETOOLONG},
		"a folder twice":        {f.Mkdir("d", 0o755), sys.EEXIST},
		"unlink a folder":       {f.Unlink("d"), sys.EISDIR},
		"rmdir a file":          {f.Rmdir("g"), sys.ENOTDIR},
		"rmdir a full one":      {f.Rmdir("d"), sys.ENOTEMPTY},
		"rmdir the top":         {f.Rmdir("."), sys.EINVAL},
		"rename into itself":    {f.Rename("d", "d/e/x"), sys.EINVAL},
		"rename onto a full":    {f.Rename("g", "d"), sys.EISDIR},
		"rename over a file":    {f.Rename("d", "g"), sys.ENOTDIR},
		"rename to itself":      {f.Rename("g", "g"), 0},
		"a link":                {f.Symlink("/etc/passwd", "l"), sys.ENOSYS},
		"a hard link":           {f.Link("g", "h"), sys.ENOSYS},
		"readlink":              {func() sys.Errno { _, e := f.Readlink("g"); return e }(), sys.EINVAL},
		"the top with a period": {open("./.", sys.O_DIRECTORY), 0},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
}

func TestContent(t *testing.T) {
	f := NewDisk(1 << 20).NewFolder()
	const rw = sys.O_CREAT | sys.O_RDWR
	h, errno := f.OpenFile("a", rw, 0o600)
	if errno != 0 {
		t.Fatal(errno)
	}
	h.Write([]byte("hello"))
	h.Pwrite([]byte("J"), 0)
	h.Seek(10_000, io.SeekStart)
	h.Write([]byte("end"))
	want := "Jello" + string(make([]byte, 10_000-5)) + "end"
	if got := read(t, f, "a"); got != want {
		t.Errorf("%d bytes, want %d", len(got), len(want))
	}
	h.Truncate(3)
	h.Truncate(6)
	if got := read(t, f, "a"); got != "Jel\x00\x00\x00" {
		t.Errorf("%q after it was cut", got)
	}
	if _, errno := write(t, f, "a", []byte("+"), sys.O_WRONLY|sys.O_APPEND); errno != 0 || read(t, f, "a") != "Jel\x00\x00\x00+" {
		t.Errorf("appended: %q, %v", read(t, f, "a"), errno)
	}
	if _, errno := h.Seek(-1, io.SeekStart); errno != sys.EINVAL {
		t.Error(errno)
	}
	if errno := f.Unlink("a"); errno != 0 {
		t.Error(errno)
	}
	b := make([]byte, 3)
	if n, _ := h.Pread(b, 0); string(b[:n]) != "Jel" {
		t.Errorf("an open file that has no name holds %q", b[:n])
	}
	ro, _ := f.OpenFile("b", sys.O_CREAT|sys.O_RDONLY, 0o600)
	if _, errno := ro.Write(b); errno != sys.EBADF {
		t.Errorf("written though it was opened to read: %v", errno)
	}
}

// Whatever is done, the files take no more room than there is, and all of it is
// there again when they are gone.
func TestRoom(t *testing.T) {
	const size = 64 << 10
	d := NewDisk(size)
	f := d.NewFolder()
	block := make([]byte, 8<<10)
	h, _ := f.OpenFile("open", sys.O_CREAT|sys.O_RDWR, 0o600)
	if errno := f.Unlink("open"); errno != 0 {
		t.Fatal(errno)
	}
	total := 0
	for range 100 {
		n, _ := h.Write(block)
		total += n
	}
	if total != size || !d.Full {
		t.Errorf("%d bytes of a deleted file fit in %d, full: %v", total, size, d.Full)
	}
	if errno := f.Put("x", []byte("x")); errno == 0 {
		t.Error("there was more room than there is")
	}
	h.Close()
	f.Unlink("x")
	if errno := h.Truncate(1 << 50); errno != sys.EINVAL {
		t.Errorf("a file of a petabyte: %v", errno)
	}
	sparse, _ := f.OpenFile("sparse", sys.O_CREAT|sys.O_RDWR, 0o600)
	if errno := sparse.Truncate(1 << 39); errno != 0 || d.left != size {
		t.Errorf("a file with nothing in it: %v, %d bytes are left", errno, d.left)
	}
	sparse.Close()
	f.Unlink("sparse")
	made := 0
	for i := range 10_000 {
		if f.Mkdir(strconv.Itoa(i), 0o755) == 0 {
			made++
		}
	}
	if made != leastNames {
		t.Errorf("%d names, want %d", made, leastNames)
	}
	for name := range f.top.inner {
		if errno := f.Rmdir(name); errno != 0 {
			t.Fatal(errno)
		}
	}
	if d.left != size || d.names != leastNames {
		t.Errorf("%d bytes and %d names are left of %d and %d", d.left, d.names, size, leastNames)
	}
}

// FuzzAgainstLinux does the same here and in a folder of the host, and compares.
func FuzzAgainstLinux(f *testing.F) {
	f.Add([]byte("a1b2c3"))
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18})
	names := []string{"a", "b", "a/x", "a/y", "b/x/z", "a/x/z"}
	f.Fuzz(func(t *testing.T, steps []byte) {
		mem := NewDisk(1 << 20).NewFolder()
		at := t.TempDir()
		dir, err := os.OpenRoot(at)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		for i := 0; i+2 < len(steps) && i < 300; i += 3 {
			p, q := names[int(steps[i+1])%len(names)], names[int(steps[i+2])%len(names)]
			var errno sys.Errno
			var real error
			switch steps[i] % 5 {
			case 0:
				errno, real = mem.Mkdir(p, 0o755), dir.Mkdir(p, 0o755)
			case 1:
				_, errno = write(t, mem, p, []byte(q), sys.O_CREAT|sys.O_WRONLY|sys.O_TRUNC)
				real = dir.WriteFile(p, []byte(q), 0o600)
			case 2:
				if errno = mem.Unlink(p); errno == sys.EISDIR {
					errno = mem.Rmdir(p)
				}
				real = dir.Remove(p)
			case 3:
				errno, real = mem.Rename(p, q), unix.Rename(filepath.Join(at, p), filepath.Join(at, q)) // os.Rename would say EEXIST itself
			case 4:
				h, e := mem.OpenFile(p, sys.O_WRONLY, 0)
				if errno = e; e == 0 {
					errno = h.Truncate(int64(len(q)))
					h.Close()
				}
				g, e2 := dir.OpenFile(p, os.O_WRONLY, 0)
				if real = e2; e2 == nil {
					real = g.Truncate(int64(len(q)))
					g.Close()
				}
			}
			if (errno == 0) != (real == nil) {
				t.Fatalf("step %d: %d %s %s: %v, on a disk %v", i/3, steps[i]%5, p, q, errno, real)
			}
		}
		here := map[string]string{}
		mem.Each(func(p string, _ int64, read func() []byte) bool { here[p] = string(read()); return true })
		err = fs.WalkDir(dir.FS(), ".", func(p string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				b, _ := dir.ReadFile(p)
				if here[p] != string(b) {
					t.Errorf("%s holds %q, on a disk %q", p, here[p], b)
				}
				delete(here, p)
			}
			return err
		})
		if err != nil || len(here) > 0 {
			t.Errorf("%v, more than on a disk: %v", err, here)
		}
	})
}
