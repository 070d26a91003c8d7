package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/erofs/go-erofs"

	"sallyport.dev/sallyport/image/debian"
)

func spoolFile(t testing.TB) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "spool"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// Whatever a tar stream says, the tree holds only safe entries at clean paths,
// and the image made of it reads back the same.
func FuzzAddTar(f *testing.F) {
	seed := func(entries ...tar.Header) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range entries {
			_ = w.WriteHeader(&h)
			if h.Typeflag == tar.TypeReg {
				_, _ = io.WriteString(w, strings.Repeat("x", int(h.Size)))
			}
		}
		_ = w.Close()
		f.Add(b.Bytes())
	}
	seed(tar.Header{Name: "./usr/bin/x", Typeflag: tar.TypeReg, Mode: 0o4755, Size: 10})
	seed(tar.Header{Name: "./a", Typeflag: tar.TypeSymlink, Linkname: "../.."}, tar.Header{Name: "./a/b", Typeflag: tar.TypeReg, Size: 1})
	seed(tar.Header{Name: "./bin", Typeflag: tar.TypeSymlink, Linkname: "usr/bin"}, tar.Header{Name: "./bin/sh", Typeflag: tar.TypeReg, Size: 5000})
	seed(tar.Header{Name: "./x", Typeflag: tar.TypeReg, Size: 3}, tar.Header{Name: "./y", Typeflag: tar.TypeLink, Linkname: "x"})
	seed(tar.Header{Name: "./", Typeflag: tar.TypeReg, Size: 1})
	seed(tar.Header{Name: "./dev/null", Typeflag: tar.TypeChar}, tar.Header{Name: "../x", Typeflag: tar.TypeDir})
	spool := spoolFile(f)
	out, err := os.Create(filepath.Join(f.TempDir(), "image"))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { out.Close() })
	f.Fuzz(func(t *testing.T, in []byte) {
		tr := newTree(spool, 0)
		_ = debian.Entries(bytes.NewReader(in), tr.addEntry) // a refusal leaves a tree as safe as any
		if err := tr.walk(func(p string, n *node) error { return checkNode(p, n, tr) }); err != nil {
			t.Fatal(err)
		}
		if err := out.Truncate(0); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if err := tr.write(out, t.TempDir()); err != nil {
			t.Fatal(err)
		}
		img, err := erofs.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.walk(func(p string, n *node) error { return compareNode(img, p, n, tr) }); err != nil {
			t.Fatal(err)
		}
	})
}

// Whatever the layers of an image say, what comes out is safe, and reads back the
// same.
func FuzzLayer(f *testing.F) {
	pack := func(entries ...tar.Header) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range entries {
			_ = w.WriteHeader(&h)
			_, _ = io.WriteString(w, strings.Repeat("x", int(h.Size)))
		}
		_ = w.Close()
		return b.Bytes()
	}
	reg := func(name string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o6777, Size: 3, Uid: 1 << 20}
	}
	f.Add(pack(reg("a"), reg("d/b")), pack(reg(".wh.a"), reg("d/.wh..wh..opq"), reg("d/c")))
	f.Add(pack(tar.Header{Name: "lib", Typeflag: tar.TypeSymlink, Linkname: "/usr/lib/../../.."}, reg("usr/lib/x")), pack(reg("lib/y"), reg("lib/.wh.x")))
	f.Add(pack(reg("a"), tar.Header{Name: "b", Typeflag: tar.TypeLink, Linkname: "/a"}), pack(tar.Header{Name: "c", Typeflag: tar.TypeLink, Linkname: "b"}, tar.Header{Name: "a", Typeflag: tar.TypeDir}))
	f.Add(pack(tar.Header{Name: "dev/null", Typeflag: tar.TypeChar}, tar.Header{Name: "etc", Typeflag: tar.TypeSymlink, Linkname: "."}), pack(reg("etc/passwd"), reg("../x")))
	f.Add(pack(tar.Header{Name: "/", Typeflag: tar.TypeDir}, reg("tmp"), reg("home")), pack(reg(".wh..wh..opq"), tar.Header{Name: "x", Typeflag: tar.TypeReg, PAXRecords: map[string]string{"SCHILY.xattr.user.x": "y"}}))
	spool := spoolFile(f)
	out, err := os.Create(filepath.Join(f.TempDir(), "image"))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { out.Close() })
	f.Fuzz(func(t *testing.T, lower, upper []byte) {
		tr := newTree(spool, 16<<20)
		_ = tr.addLayer(1, bytes.NewReader(lower)) // a refusal leaves a tree as safe as any
		_ = tr.addLayer(2, bytes.NewReader(upper))
		_ = tr.adapt()
		if err := tr.walk(func(p string, n *node) error { return checkLayerNode(p, n, tr) }); err != nil {
			t.Fatal(err)
		}
		if err := out.Truncate(0); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if err := tr.write(out, t.TempDir()); err != nil {
			t.Fatal(err)
		}
		img, err := erofs.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.walk(func(p string, n *node) error {
			if n.mode&fs.ModeIrregular != 0 {
				if _, err := fs.Lstat(img, p); err == nil {
					return fmt.Errorf("%s was to be left out", p)
				}
				return nil
			}
			return compareNode(img, p, n, tr)
		}); err != nil {
			t.Fatal(err)
		}
	})
}

func checkLayerNode(p string, n *node, tr *tree) error {
	for part := range strings.SplitSeq(p, "/") {
		if part == "" || part == "." || part == ".." || len(part) > maxName {
			return fmt.Errorf("path %q is not clean", p)
		}
	}
	switch {
	case n.mode&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeDevice|fs.ModeNamedPipe|fs.ModeSocket) != 0,
		n.mode&fs.ModeSymlink == 0 && n.mode.Perm()&0o022 != 0,
		n.children != nil && !n.mode.IsDir(),
		strings.Count(p, "/") > maxDepth,
		n.off < 0 || n.size < 0 || n.off+n.size > tr.end:
		return fmt.Errorf("%s: unsafe node %+v", p, n)
	}
	return nil
}

func checkNode(p string, n *node, tr *tree) error {
	if q, err := cleanPath(p); err != nil || q != p {
		return fmt.Errorf("path %q is not clean: %w", p, err)
	}
	switch {
	case n.mode&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeDevice|fs.ModeNamedPipe|fs.ModeSocket) != 0,
		n.mode&fs.ModeSymlink == 0 && n.mode.Perm()&0o022 != 0,
		n.uid != 0 || n.gid != 0,
		n.children != nil && !n.mode.IsDir(),
		n.off < 0 || n.size < 0 || n.off+n.size > tr.end:
		return fmt.Errorf("%s: unsafe node %+v", p, n)
	}
	if top, _, _ := strings.Cut(p, "/"); merged(top) {
		return fmt.Errorf("%s is not below usr", p)
	}
	return nil
}

func compareNode(img fs.FS, p string, n *node, tr *tree) error {
	info, err := fs.Lstat(img, p)
	if err != nil {
		return err
	}
	if info.Mode()&(fs.ModeType|0o7777) != n.mode { // go-erofs adds type bits as they are on disk
		return fmt.Errorf("%s: mode %v, want %v", p, info.Mode(), n.mode)
	}
	switch {
	case n.mode.IsRegular():
		want, err := io.ReadAll(tr.contents(n))
		if err != nil {
			return err
		}
		if got, err := fs.ReadFile(img, p); err != nil || !bytes.Equal(got, want) {
			return fmt.Errorf("%s: %d bytes, want %d: %w", p, len(got), len(want), err)
		}
	case n.mode&fs.ModeSymlink != 0:
		if got, err := fs.ReadLink(img, p); err != nil || got != n.target {
			return fmt.Errorf("%s: target %q, want %q: %w", p, got, n.target, err)
		}
	}
	return nil
}

// A file is bounded before it is read.
func TestStoreIsBounded(t *testing.T) {
	tr := newTree(spoolFile(t), 0)
	for _, size := range []int64{-1, MaxSize + 1} {
		if _, err := tr.store(strings.NewReader("x"), size); err == nil {
			t.Errorf("store(%d bytes) succeeded", size)
		}
	}
	tr.size = MaxSize - 1
	if _, err := tr.store(strings.NewReader("xy"), 2); err == nil {
		t.Error("the total is not bounded")
	}
	tr.entries = maxEntries
	if err := tr.addDir("x", 0o755); err == nil {
		t.Error("the number of entries is not bounded")
	}
}
