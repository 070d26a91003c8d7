package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/erofs/go-erofs"
	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/image"
)

// naive unpacks as a careless program would: names are joined to the folder,
// links are followed, modes and devices are made as they are asked for.
func naive(layer []byte, to string) (names []string, bytesOut int64, err error) {
	tr := tar.NewReader(bytes.NewReader(layer))
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return names, bytesOut, nil
		}
		if err != nil {
			return names, bytesOut, err
		}
		names = append(names, h.Name)
		p := h.Name
		if !filepath.IsAbs(p) {
			p = filepath.Join(to, p)
		}
		_ = os.MkdirAll(filepath.Dir(p), 0o755)
		switch h.Typeflag {
		case tar.TypeReg:
			f, err := os.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
			if err != nil {
				return names, bytesOut, err
			}
			n, _ := io.Copy(f, tr)
			bytesOut += n
			_ = f.Chmod(fs.FileMode(h.Mode & 0o777))
			f.Close()
			_ = unix.Chmod(p, uint32(h.Mode))
		case tar.TypeSymlink:
			_ = os.Symlink(h.Linkname, p)
		case tar.TypeLink:
			target := h.Linkname
			if !filepath.IsAbs(target) {
				target = filepath.Join(to, target)
			}
			_ = os.Link(target, p)
		case tar.TypeChar:
			_ = unix.Mknod(p, unix.S_IFCHR|0o666, int(unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor))))
		case tar.TypeFifo:
			_ = unix.Mkfifo(p, 0o666)
		}
	}
}

// What tries to get out of the image, or to bring what an image must not hold, is
// refused or made harmless; a careless reader falls for each.
func TestTO50_LayersContained(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	victim := filepath.Join(outside, "victim")
	deep := func() string { return filepath.Join(t.TempDir(), "1", "2", "3") }
	escaped := func(string) bool { b, _ := os.ReadFile(victim); return string(b) == "evil" }
	up := func(to string) string {
		rel, _ := filepath.Rel(to, victim)
		return rel
	}
	mode := func(to, p string, bit uint32) bool {
		var st unix.Stat_t
		return unix.Lstat(filepath.Join(to, p), &st) == nil && st.Mode&bit == bit
	}
	for _, tt := range []struct {
		name    string
		layer   func(to string) []tar.Header
		trap    func(to string) bool // what happens to a careless reader
		refused string               // "" if it is made harmless
	}{
		{"going up", func(to string) []tar.Header { return []tar.Header{file(up(to), "evil", 0o644)} }, escaped, "goes up"},
		{"absolute", func(string) []tar.Header { return []tar.Header{file(victim, "evil", 0o644)} }, escaped, ""},
		{"through an absolute link", func(string) []tar.Header {
			return []tar.Header{link(tar.TypeSymlink, "x", outside), file("x/victim", "evil", 0o644)}
		}, escaped, ""},
		{"through a relative link", func(to string) []tar.Header {
			return []tar.Header{link(tar.TypeSymlink, "x", filepath.Dir(up(to))), file("x/victim", "evil", 0o644)}
		}, escaped, ""},
		{"a link, then a file of the same name", func(string) []tar.Header {
			return []tar.Header{link(tar.TypeSymlink, "x", victim), file("x", "evil", 0o644)}
		}, escaped, ""},
		{"a hard link out, then a file of the same name", func(string) []tar.Header {
			return []tar.Header{link(tar.TypeLink, "x", victim), file("x", "evil", 0o644)}
		}, escaped, "not a file of the image"},
		{"a hard link up", func(to string) []tar.Header {
			return []tar.Header{link(tar.TypeLink, "x", up(to)), file("x", "evil", 0o644)}
		}, escaped, "goes up"},
		{"setuid", func(string) []tar.Header { return []tar.Header{file("su", "x", 0o6777)} },
			func(to string) bool { return mode(to, "su", unix.S_ISUID|unix.S_ISGID) }, ""},
		{"a device", func(string) []tar.Header {
			return []tar.Header{{Name: "mem", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}}
		}, func(to string) bool { return os.Geteuid() != 0 || mode(to, "mem", unix.S_IFCHR) }, ""},
		{"a FIFO", func(string) []tar.Header { return []tar.Header{{Name: "p", Typeflag: tar.TypeFifo}} },
			func(to string) bool { return mode(to, "p", unix.S_IFIFO) }, ""},
		{"a whiteout that goes up", func(string) []tar.Header { return []tar.Header{file("d/.wh...", "", 0o644)} }, nil, "names nothing"},
		{"a whiteout of nothing", func(string) []tar.Header { return []tar.Header{file(".wh.", "", 0o644)} }, nil, "names nothing"},
		{"links in a circle", func(string) []tar.Header {
			return []tar.Header{link(tar.TypeSymlink, "a", "b"), link(tar.TypeSymlink, "b", "a"), file("a/x", "1", 0o644)}
		}, nil, "too many symbolic links"},
		{"through a file", func(string) []tar.Header { return []tar.Header{file("a", "1", 0o644), file("a/x", "1", 0o644)} }, nil, "not a folder"},
		{"long name", func(string) []tar.Header { return []tar.Header{file(strings.Repeat("n", 300), "1", 0o644)} }, nil, "longer"},
		{"long path", func(string) []tar.Header { return []tar.Header{file(strings.Repeat("name/", 9000)+"x", "1", 0o644)} }, nil, "longer"},
		{"deep", func(string) []tar.Header { return []tar.Header{file(strings.Repeat("d/", 100)+"x", "1", 0o644)} }, nil, "deeper"},
		{"control character", func(string) []tar.Header { return []tar.Header{file("a\x1b[2J", "1", 0o644)} }, nil, "control character"},
		{"the root as a link", func(string) []tar.Header { return []tar.Header{link(tar.TypeSymlink, "./", "/etc")} }, nil, "root"},
		{"etc as a link", func(string) []tar.Header { return []tar.Header{link(tar.TypeSymlink, "etc", "/usr")} }, nil, "not a folder"},
		{"attributes that give privileges", func(string) []tar.Header {
			return []tar.Header{{Name: "ping", Typeflag: tar.TypeReg, Mode: 0o755, PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\x00\x20\x00\x00"}}}
		}, nil, ""},
		{"a file that is sparse", func(string) []tar.Header { return []tar.Header{{Name: "s", Typeflag: tar.TypeGNUSparse}} }, nil, "refused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := os.RemoveAll(outside); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(outside, 0o755); err != nil {
				t.Fatal(err)
			}
			put := func() {
				if err := os.WriteFile(victim, []byte("good"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			put()
			to := deep()
			layer := rawTar(t, tt.layer(to)...)
			if tt.trap != nil {
				if _, _, err := naive(layer, to); !tt.trap(to) {
					t.Fatalf("control: a careless reader is not caught (%v), so this proves nothing", err)
				}
				put()
			}
			img, err := buildLayers(t, t.TempDir(), layersOf(t, layer))
			if escaped("") {
				t.Fatal("the layer wrote outside of the image")
			}
			if tt.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tt.refused) {
					t.Fatalf("got %v, want an error with %q", err, tt.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			checkHarmless(t, open(t, img))
		})
	}
}

// checkHarmless holds for every image that came from outside.
func checkHarmless(t *testing.T, root fs.FS) {
	t.Helper()
	err := fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*erofs.Stat)
		if typ := info.Mode().Type(); typ != 0 && typ != fs.ModeDir && typ != fs.ModeSymlink || info.Mode()&0o6000 != 0 || len(st.Xattrs) > 0 || typ != fs.ModeSymlink && info.Mode().Perm()&0o022 != 0 {
			t.Errorf("%s: %v, attributes %v", p, info.Mode(), st.Xattrs)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// rawTar packs also what archive/tar would not write.
func rawTar(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	sparse := len(entries) == 1 && entries[0].Typeflag == tar.TypeGNUSparse
	if sparse {
		entries[0].Typeflag = tar.TypeReg
	}
	b := tarOf(t, entries...)
	if sparse {
		b[156] = tar.TypeGNUSparse
		copy(b[257:], "ustar  \x00")
		copy(b[386:], "00000000000\x0000000000000\x00") // one empty fragment
		copy(b[483:], "77777777777\x00")                // of 8 GiB
		copy(b[148:], "        ")
		sum := 0
		for _, c := range b[:512] {
			sum += int(c)
		}
		copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	}
	return b
}

// zeros is an endless file in a tar stream of which nothing is stored.
type bomb struct {
	head []byte
	left int64
}

func (b *bomb) Read(p []byte) (int, error) {
	if len(b.head) > 0 {
		n := copy(p, b.head)
		b.head = b.head[n:]
		return n, nil
	}
	if b.left <= 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), b.left)
	clear(p[:n])
	b.left -= n
	return int(n), nil
}

// headOf is the header of a file that claims a size.
func headOf(t testing.TB, size int64) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := tar.NewWriter(&b).WriteHeader(&tar.Header{Name: "bomb", Typeflag: tar.TypeReg, Mode: 0o644, Size: size}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// What is small and unpacks to much is stopped at the bound on what comes out,
// wherever in the layer it hides; the same layer within the bound is taken.
func TestTO50_LayersBounded(t *testing.T) {
	const bound, big = 4 << 20, 64 << 20
	reader := func(head []byte, n int64) func(context.Context, int) (io.ReadCloser, error) {
		return func(context.Context, int) (io.ReadCloser, error) { return io.NopCloser(&bomb{head, n}), nil }
	}
	var packed bytes.Buffer // a control: how small it is when it is compressed
	z := gzip.NewWriter(&packed)
	if _, err := io.Copy(z, &bomb{headOf(t, big), big}); err != nil || z.Close() != nil || packed.Len() > big/500 {
		t.Fatalf("control: %d bytes pack to %d, %v", big, packed.Len(), err)
	}
	many := make([]tar.Header, 0, 3000)
	for n := range cap(many) {
		many = append(many, file(fmt.Sprint(n), "1", 0o644))
	}
	links := []tar.Header{file("a", strings.Repeat("x", 64<<10), 0o644)}
	for n := range 200 {
		links = append(links, link(tar.TypeLink, fmt.Sprint("l", n), "a"))
	}
	for _, tt := range []struct {
		name  string
		open  func(context.Context, int) (io.ReadCloser, error)
		count int
		want  string // "" if it is taken
	}{
		{"a file", reader(headOf(t, big), big), 1, "larger than"},
		{"what follows the archive", reader(nil, big), 1, "unpack to more"},
		{"a file within the bound", reader(headOf(t, 1<<20), 1<<20+1024), 1, ""},
		{"the sum of layers", reader(headOf(t, 1<<20), 1<<20+1024), 5, "unpack to more"},
		{"small files, which take a block each", layersOf(t, tarOf(t, many...)).Open, 1, "larger than"},
		{"hard links, which take the file's size each", layersOf(t, tarOf(t, links...)).Open, 1, "larger than"},
		{"a file that ends early", reader(headOf(t, 1<<20), 1000), 1, "unexpected EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cache := t.TempDir()
			_, err := buildLayers(t, cache, image.Layers{Name: "test", ID: tt.name, Count: tt.count, Open: tt.open, MaxSize: bound})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if left, _ := os.ReadDir(filepath.Join(cache, "images")); err != nil && len(left) != 1 {
				t.Errorf("a refused image left %v", left)
			}
		})
	}
}

// A million entries are refused before they are all read, also when each takes
// the place of the one before.
func TestTO50_LayersMillionEntries(t *testing.T) {
	one := tarOf(t, dir("d"))[:512]
	read := 0
	endless := func(context.Context, int) (io.ReadCloser, error) {
		return io.NopCloser(readerFunc(func(p []byte) (int, error) {
			n := copy(p, one[read%512:])
			read += n
			return n, nil
		})), nil
	}
	_, err := buildLayers(t, t.TempDir(), image.Layers{Name: "test", ID: "x", Count: 1, Open: endless})
	if err == nil || !strings.Contains(err.Error(), "more than 500000 entries") || read > 512*600_000 {
		t.Errorf("got %v after %d entries", err, read/512)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
