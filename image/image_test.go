package image_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/erofs/go-erofs"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/image"
)

// debOf writes a .deb file by hand, so that it can hold what dpkg-deb would
// never pack.
func debOf(t *testing.T, name string, entries ...tar.Header) string {
	t.Helper()
	control := tarOf(t, tar.Header{Name: "./control", Typeflag: tar.TypeReg, Mode: 0o644, Linkname: "Package: " + name + "\nVersion: 1\nArchitecture: all\nMaintainer: nobody\nDescription: test\n"})
	var ar bytes.Buffer
	ar.WriteString("!<arch>\n")
	for _, m := range []struct {
		name string
		data []byte
	}{{"debian-binary", []byte("2.0\n")}, {"control.tar", control}, {"data.tar", tarOf(t, entries...)}} {
		fmt.Fprintf(&ar, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", m.name, 0, 0, 0, "100644", len(m.data))
		ar.Write(m.data)
		if len(m.data)%2 == 1 {
			ar.WriteByte('\n')
		}
	}
	file := filepath.Join(t.TempDir(), name+".deb")
	if err := os.WriteFile(file, ar.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// tarOf packs headers; a regular file's Linkname is its contents.
func tarOf(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		text := ""
		if h.Typeflag == tar.TypeReg {
			text, h.Linkname = h.Linkname, ""
			h.Size = int64(len(text))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func file(name, text string, mode int64) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode, Linkname: text}
}

func dir(name string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755}
}

func link(typ byte, name, target string) tar.Header {
	return tar.Header{Name: name, Typeflag: typ, Mode: 0o777, Linkname: target}
}

func build(t *testing.T, cache string, debs ...string) (image.Image, error) {
	t.Helper()
	return image.Build(context.Background(), cache, image.Spec{Name: "test", Debs: debs}, nil, func(string) {})
}

func open(t *testing.T, img image.Image) fs.FS {
	t.Helper()
	f, err := os.Open(img.Path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	root, err := erofs.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// A package as a packager makes it gives the same image each time, whatever the
// times in it.
func TestBuildIsReproducible(t *testing.T) {
	var digests []string
	for i := range 2 {
		top := filepath.Join(t.TempDir(), "pkg")
		for name, text := range map[string]string{
			"DEBIAN/control":             "Package: hello\nVersion: 1.0\nArchitecture: all\nMaintainer: nobody\nDescription: test\n",
			"DEBIAN/postinst":            "#!/bin/sh\ntouch " + filepath.Join(top, "RAN") + "\n",
			"bin/dash":                   "#!shell\n",
			"usr/bin/hello":              "#!/bin/sh\necho hello\n",
			"usr/bin/big":                strings.Repeat("0123456789abcdef", 1000),
			"usr/share/doc/hello/README": "dropped",
			"usr/share/ca-certificates/mozilla/B Főtanú.crt": "cert B",
			"usr/share/ca-certificates/mozilla/A.crt":        "cert A\n",
		} {
			p := filepath.Join(top, name)
			if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(p, []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		deb := filepath.Join(t.TempDir(), "hello.deb")
		cmd := exec.Command("dpkg-deb", "-b", top, deb)
		cmd.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", 1_000_000_000+i))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		cache := t.TempDir()
		img, err := build(t, cache, deb)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(top, "RAN")); err == nil {
			t.Error("a maintainer script ran")
		}
		digests = append(digests, img.Digest)
		checkHello(t, cache, img)
	}
	if digests[0] != digests[1] {
		t.Errorf("two builds of the same contents differ: %v", digests)
	}
}

func checkHello(t *testing.T, cache string, img image.Image) {
	t.Helper()
	again, err := image.Open(cache, "test")
	if err != nil || again.Digest != img.Digest || again.Path != img.Path {
		t.Fatalf("Open by name = %+v, %v; want %+v", again, err, img)
	}
	if p := again.Packages; len(p) != 1 || p[0].Name != "hello" || p[0].Version != "1.0" || len(p[0].SHA256) != 64 {
		t.Errorf("packages = %+v", p)
	}
	if _, err := image.Open(cache, img.Digest); err != nil {
		t.Errorf("Open by digest: %v", err)
	}
	list, err := image.List(cache)
	if err != nil || len(list) != 1 || list[0].Name != "test" || list[0].Digest != img.Digest {
		t.Errorf("List = %+v, %v", list, err)
	}
	root := open(t, img)
	for name, want := range map[string]string{
		"usr/bin/hello":                     "#!/bin/sh\necho hello\n",
		"usr/bin/dash":                      "#!shell\n",
		"bin/sh":                            "#!shell\n", // through /bin → usr/bin and sh → dash
		"usr/bin/big":                       strings.Repeat("0123456789abcdef", 1000),
		"etc/group":                         "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n",
		"etc/ssl/certs/ca-certificates.crt": "cert A\ncert B\n",
	} {
		if got, err := fs.ReadFile(root, name); err != nil || string(got) != want {
			t.Errorf("%s = %.60q, %v; want %.60q", name, got, err, want)
		}
	}
	for _, name := range []string{"tmp", "home/agent", "dev/shm", "run/sallyport", "proc", "sys", "work", "var/tmp"} {
		if info, err := fs.Stat(root, name); err != nil || !info.IsDir() {
			t.Errorf("mount point %s: %v", name, err)
		}
	}
	if _, err := fs.Stat(root, "usr/share/doc/hello/README"); err == nil {
		t.Error("documentation is in the image")
	}
	checkShape(t, root)
}

// checkShape holds for every image: no special files, no privileges, nothing
// that others could write but the temporary folders, all small files mappable.
func checkShape(t *testing.T, root fs.FS) {
	t.Helper()
	const layoutPlain = 0
	err := fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := info.Mode()
		if typ := mode.Type(); typ != 0 && typ != fs.ModeDir && typ != fs.ModeSymlink {
			t.Errorf("%s is a %v", p, mode)
		}
		// go-erofs leaves these three as they are on disk, not as fs.Mode has them.
		const setuid, setgid, sticky = 0o4000, 0o2000, 0o1000
		if mode&(setuid|setgid) != 0 {
			t.Errorf("%s gives privileges: %v", p, mode)
		}
		if mode.Perm()&0o022 != 0 && mode&sticky == 0 && mode.Type() != fs.ModeSymlink {
			t.Errorf("%s can be written by all: %v", p, mode)
		}
		st := info.Sys().(*erofs.Stat)
		if mode.IsRegular() && st.InodeLayout != layoutPlain {
			t.Errorf("%s lies beside its inode: gVisor could not map it", p)
		}
		if len(st.Xattrs) > 0 || st.Mtime != 1686355200 {
			t.Errorf("%s has xattrs %v, mtime %d", p, st.Xattrs, st.Mtime)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Archives that try to reach out of the image, or to bring what an image must
// not hold, are refused; what can be made safe is.
func TestHostilePackages(t *testing.T) {
	for _, tt := range []struct {
		name    string
		entries []tar.Header
		refused string // "" if it is made safe
	}{
		{"traversal", []tar.Header{file("./../../etc/cron.d/x", "x", 0o644)}, "goes up"},
		{"traversal inside", []tar.Header{file("./usr/../../x", "x", 0o644)}, "goes up"},
		{"absolute", []tar.Header{file("/etc/passwd", "x", 0o644)}, "absolute"},
		{"write through a link", []tar.Header{link(tar.TypeSymlink, "./usr/x", "/etc"), file("./usr/x/passwd", "x", 0o644)}, "not a folder"},
		{"folder over a link", []tar.Header{link(tar.TypeSymlink, "./usr/x", "/etc"), dir("./usr/x/")}, "not a folder"},
		{"file over a file", []tar.Header{file("./usr/x", "x", 0o644), file("./usr/x", "y", 0o644)}, "already"},
		{"bin elsewhere", []tar.Header{link(tar.TypeSymlink, "./bin", "/tmp")}, "only be the link"},
		{"hard link out", []tar.Header{link(tar.TypeLink, "./usr/x", "../../etc/shadow")}, "goes up"},
		{"hard link absolute", []tar.Header{link(tar.TypeLink, "./usr/x", "/etc/shadow")}, "absolute"},
		{"hard link to a link", []tar.Header{link(tar.TypeSymlink, "./usr/x", "/etc/shadow"), link(tar.TypeLink, "./usr/y", "./usr/x")}, "not a file of the image"},
		{"block device", []tar.Header{{Name: "./dev/sda", Typeflag: tar.TypeBlock, Devmajor: 8}}, "refused"},
		{"character device", []tar.Header{{Name: "./dev/mem", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 1}}, "refused"},
		{"fifo", []tar.Header{{Name: "./tmp/f", Typeflag: tar.TypeFifo}}, "refused"},
		{"control character", []tar.Header{file("./usr/bin/a\nb", "x", 0o644)}, "control character"},
		{"deep", []tar.Header{dir("./" + strings.Repeat("a/", 60))}, "deeper"},
		{"long", []tar.Header{dir("./" + strings.Repeat("abcdefghijklmno/", 40) + strings.Repeat("b", 600))}, "longer"},
		{"passwd is a folder", []tar.Header{file("./etc/passwd/x", "x", 0o644)}, "put a folder there"},
		{"tmp is a link", []tar.Header{link(tar.TypeSymlink, "./tmp", "/usr")}, "not a folder"},
		{"root is a link", []tar.Header{link(tar.TypeSymlink, "./", "/usr")}, "root"},

		{"setuid", []tar.Header{file("./usr/bin/su", "x", 0o6777)}, ""},
		{"capabilities", []tar.Header{{Name: "./usr/bin/ping", Typeflag: tar.TypeReg, Mode: 0o755,
			PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\x00\x20\x00\x00"}}}, ""},
		{"owner", []tar.Header{{Name: "./usr/bin/x", Typeflag: tar.TypeReg, Mode: 0o666, Uid: 1000, Gid: 1000}}, ""},
		{"own passwd", []tar.Header{file("./etc/passwd", "evil::0:0::/:/bin/sh\n", 0o666)}, ""},
		{"link out of the image", []tar.Header{link(tar.TypeSymlink, "./usr/x", "../../../../etc/shadow")}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cache := t.TempDir()
			img, err := build(t, cache, debOf(t, "hostile", tt.entries...))
			if tt.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tt.refused) {
					t.Fatalf("Build = %v; want an error with %q", err, tt.refused)
				}
				if sallyport.CodeOf(err) != sallyport.Unavailable {
					t.Errorf("code = %s", sallyport.CodeOf(err))
				}
				left, _ := os.ReadDir(filepath.Join(cache, "images"))
				if slices.ContainsFunc(left, func(e fs.DirEntry) bool { return e.Name() != ".lock" }) {
					t.Errorf("a refused build left %v", left)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			root := open(t, img)
			checkShape(t, root)
			if b, err := fs.ReadFile(root, "etc/passwd"); err != nil || !bytes.HasPrefix(b, []byte("root:x:0:0")) {
				t.Errorf("/etc/passwd = %q, %v", b, err)
			}
		})
	}
}

// A damaged package is an error, not a smaller image.
func TestTruncatedPackage(t *testing.T) {
	whole := debOf(t, "cut", file("./usr/bin/x", strings.Repeat("x", 9000), 0o755))
	b, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(t.TempDir(), "cut.deb")
	if err := os.WriteFile(cut, b[:len(b)-6000], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := build(t, t.TempDir(), cut); err == nil {
		t.Error("a truncated package was accepted")
	}
	if _, err := build(t, t.TempDir(), whole); err != nil {
		t.Errorf("the whole one was not: %v", err)
	}
}

func TestOpenChecksTheBytes(t *testing.T) {
	cache := t.TempDir()
	img, err := build(t, cache, debOf(t, "x", file("./usr/bin/x", "x", 0o755)))
	if err != nil {
		t.Fatal(err)
	}
	store := image.NewStore(cache)
	for range 2 { // the second time it is not hashed again
		if _, err := store.Open("test"); err != nil {
			t.Fatal(err)
		}
	}
	for _, ref := range []string{"other", "sha256-" + strings.Repeat("0", 64)} {
		if _, err := store.Open(ref); sallyport.CodeOf(err) != sallyport.NotFound {
			t.Errorf("Open(%q) = %v; want not_found", ref, err)
		}
	}
	for _, ref := range []string{"", "../test", "/etc/passwd", "Test", "sha256-0", "a/b"} {
		if _, err := store.Open(ref); err == nil {
			t.Errorf("Open(%q) succeeded", ref)
		}
	}
	altered := func(what string, change func()) {
		t.Helper()
		change()
		if _, err := store.Open("test"); sallyport.CodeOf(err) != sallyport.Unavailable {
			t.Errorf("%s: Open = %v; want unavailable", what, err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(img.Path)
	must(err)
	altered("writable by others", func() { must(os.Chmod(img.Path, 0o666)) })
	altered("one byte changed, size and mtime kept", func() {
		must(os.Chmod(img.Path, 0o644))
		f, err := os.OpenFile(img.Path, os.O_WRONLY, 0)
		must(err)
		_, err = f.WriteAt([]byte{1}, info.Size()-1)
		must(err)
		must(f.Close())
		must(os.Chtimes(img.Path, info.ModTime(), info.ModTime()))
	})
	altered("a link", func() {
		must(os.Remove(img.Path))
		must(os.Symlink("/dev/zero", img.Path))
	})
}

// The default image, where `make build` left one, is whole and lean, and holds
// what the built-in tools need.
func TestDefaultImage(t *testing.T) {
	cache := image.CacheDir(os.Getenv, os.Geteuid())
	img, err := image.Open(cache, image.DefaultName)
	if sallyport.CodeOf(err) == sallyport.NotFound {
		t.Skipf("there is no default image in %s: `make build` makes it", cache)
	}
	if err != nil {
		t.Fatal(err)
	}
	if img.Size > 300<<20 {
		t.Errorf("the default image has %d MB", img.Size>>20)
	}
	root := open(t, img)
	checkShape(t, root)
	for _, name := range []string{
		"bin/sh", "bin/bash", "bin/ls", "usr/bin/env", "usr/bin/find", "bin/grep", "bin/sed", "usr/bin/awk", "bin/tar",
		"bin/gzip", "usr/bin/curl", "usr/bin/git", "usr/bin/ps", "usr/bin/python3", "usr/bin/node", "usr/bin/sqlite3",
		"etc/passwd", "usr/lib/locale/C.utf8/LC_CTYPE", "lib64/ld-linux-x86-64.so.2", "usr/share/zoneinfo/Europe/Paris",
	} {
		if info, err := fs.Stat(root, name); err != nil || info.Size() == 0 {
			t.Errorf("/%s: %v", name, err)
		}
	}
	if b, err := fs.ReadFile(root, "etc/ssl/certs/ca-certificates.crt"); err != nil || bytes.Count(b, []byte("BEGIN CERTIFICATE")) < 100 {
		t.Errorf("the certificate bundle has %d bytes: %v", len(b), err)
	}
}
