package gvisor_test

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/erofs/go-erofs"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/image"
	"sallyport.dev/sallyport/image/oci"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/realtest"
)

// using finds images as the sandbox host does.
type using struct{ store *image.Store }

func (u using) Find(ref string) (tier.Image, error) {
	img, err := u.store.Use(ref)
	return tier.Image{Digest: img.Digest, Path: img.Path}, err
}

// unchecked finds one image and does not look at its bytes.
type unchecked struct{ img image.Image }

func (u unchecked) Find(string) (tier.Image, error) {
	return tier.Image{Digest: u.img.Digest, Path: u.img.Path}, nil
}

// An image of OCI layers is one that programs run in, from start to end: a small
// program, Python, what the second layer brought and hid. While it is in use it
// cannot be removed, and once its file was altered nothing runs in it any more.
func TestImageOfLayersRuns(t *testing.T) {
	from, err := realtest.Images(t).Find(image.DefaultName)
	if err != nil {
		t.Fatal(err)
	}
	found, err := oci.Open(context.Background(), layoutOf(t, from.Path), "")
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	store := image.NewStore(t.TempDir())
	t.Cleanup(store.Close)
	img, err := store.BuildLayers(context.Background(), found.Layers("mine", 0), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	h := gvisortest.Open(t, func(c *gvisor.Config) { c.Images = using{store} })
	mine := func(r tier.Request) tier.Request { r.Image = "mine"; return r }
	if res := run(t, h, mine(tier.Request{Argv: []string{"true"}})); res.ExitCode != 0 {
		t.Errorf("true: %d %s", res.ExitCode, res.Stderr)
	}
	res := run(t, h, mine(py("import json, getpass, os, socket; print(6*7, getpass.getuser(), os.getuid(), socket.gethostbyname('localhost'), open('/opt/second').read())")))
	if string(res.Stdout) != "42 agent 1000 127.0.0.1 layer\n" {
		t.Errorf("python: %q, %s", res.Stdout, res.Stderr)
	}
	res = run(t, h, mine(sh("ls /opt; cat /opt/link; touch /opt/x; find / -xdev -perm /6000 -o -xdev -type b -o -xdev -type c; id -un")))
	if string(res.Stdout) != "link\nsecond\nlayeragent\n" || !strings.Contains(string(res.Stderr), "Read-only") {
		t.Errorf("shell: %q, %s", res.Stdout, res.Stderr)
	}
	gone, err := image.NewStore(filepath.Dir(filepath.Dir(img.Path))).Prune(context.Background(), true, func(image.Listed) string { return "" }, func(string) {})
	if err != nil || len(gone) != 0 {
		t.Errorf("an image in use was pruned: %v, %v", gone, err)
	}
	alone := gvisortest.Open(t, func(c *gvisor.Config) { c.Images = unchecked{img} })
	if res := run(t, alone, mine(tier.Request{Argv: []string{"true"}})); res.ExitCode != 0 {
		t.Errorf("true: %d %s", res.ExitCode, res.Stderr)
	}
	alter(t, img)
	if _, err := alone.Run(context.Background(), fill(mine(tier.Request{Argv: []string{"true"}}))); err == nil || !strings.Contains(err.Error(), "failed its check") {
		t.Errorf("the host's own check: %v", err)
	}
	_, err = h.Run(context.Background(), fill(mine(tier.Request{Argv: []string{"true"}})))
	if sallyport.CodeOf(err) != sallyport.Unavailable || !strings.Contains(err.Error(), "was altered") {
		t.Errorf("a program ran in an altered image: %v", err)
	}
}

// alter changes one byte where it lies, and puts back all that a call can.
func alter(t *testing.T, img image.Image) {
	t.Helper()
	info, err := os.Stat(img.Path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(img.Path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], info.Size()/2); err != nil {
		t.Fatal(err)
	}
	b[0]++
	if _, err := f.WriteAt(b[:], info.Size()/2); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(img.Path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
}

// layoutOf makes an OCI layout of most of an image, and a second layer over it.
func layoutOf(t *testing.T, erofsFile string) string {
	t.Helper()
	top := t.TempDir()
	blobs := filepath.Join(top, "blobs", "sha256")
	if err := os.MkdirAll(blobs, 0o755); err != nil {
		t.Fatal(err)
	}
	put := func(write func(io.Writer) error) (digest string, size int64) {
		t.Helper()
		f, err := os.Create(filepath.Join(blobs, "new"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		h := sha256.New()
		if err := write(io.MultiWriter(f, h)); err != nil {
			t.Fatal(err)
		}
		size, _ = f.Seek(0, io.SeekCurrent)
		name := hex.EncodeToString(h.Sum(nil))
		if err := os.Rename(f.Name(), filepath.Join(blobs, name)); err != nil {
			t.Fatal(err)
		}
		return "sha256:" + name, size
	}
	text := func(format string, args ...any) (string, int64) {
		return put(func(w io.Writer) error { _, err := fmt.Fprintf(w, format, args...); return err })
	}
	first, firstSize := put(func(w io.Writer) error { return tarTree(w, erofsFile) })
	second, secondSize := put(func(w io.Writer) error {
		tw := tar.NewWriter(w)
		for _, h := range []tar.Header{
			{Name: "opt/.wh.first", Typeflag: tar.TypeReg}, {Name: "opt/second", Typeflag: tar.TypeReg, Mode: 0o644, Size: 5},
			{Name: "opt/link", Typeflag: tar.TypeLink, Linkname: "/opt/second"}, {Name: "usr/bin/su", Typeflag: tar.TypeReg, Mode: 0o4755},
			{Name: "opt/null", Typeflag: tar.TypeChar, Mode: 0o666, Devmajor: 1, Devminor: 3},
		} {
			if err := tw.WriteHeader(&h); err != nil {
				return err
			}
			if _, err := io.WriteString(tw, "layer"[:h.Size]); err != nil {
				return err
			}
		}
		return tw.Close()
	})
	config, configSize := text(`{"os":"linux","architecture":%q,"rootfs":{"type":"layers","diff_ids":[%q,%q]}}`, runtime.GOARCH, first, second)
	const layer = "application/vnd.oci.image.layer.v1.tar"
	manifest, manifestSize := text(`{"schemaVersion":2,"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":%q,"size":%d},"layers":[{"mediaType":%q,"digest":%q,"size":%d},{"mediaType":%q,"digest":%q,"size":%d}]}`,
		config, configSize, layer, first, firstSize, layer, second, secondSize)
	index := fmt.Sprintf(`{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":%q,"size":%d}]}`, manifest, manifestSize)
	if err := os.WriteFile(filepath.Join(top, "index.json"), []byte(index), 0o600); err != nil {
		t.Fatal(err)
	}
	return top
}

// tarTree packs an image without what is large and not needed here, and a file
// that the next layer hides.
func tarTree(w io.Writer, erofsFile string) error {
	f, err := os.Open(erofsFile)
	if err != nil {
		return err
	}
	defer f.Close()
	root, err := erofs.Open(f)
	if err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	err = fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == "." || p == "etc/passwd" {
			return err
		}
		for _, large := range []string{"libnode", "libicu", "git-core", "usr/bin/node", "usr/share", "usr/bin/git"} {
			if strings.Contains(p, large) {
				return nil
			}
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		h := tar.Header{Name: p, Mode: int64(info.Mode().Perm()), Size: info.Size(), Typeflag: tar.TypeReg}
		switch {
		case d.IsDir():
			h.Typeflag, h.Size = tar.TypeDir, 0
		case d.Type()&fs.ModeSymlink != 0:
			h.Typeflag, h.Size = tar.TypeSymlink, 0
			if h.Linkname, err = fs.ReadLink(root, p); err != nil {
				return err
			}
		}
		if err := tw.WriteHeader(&h); err != nil || h.Typeflag != tar.TypeReg {
			return err
		}
		r, err := root.Open(p)
		if err != nil {
			return err
		}
		defer r.Close()
		_, err = io.Copy(tw, r)
		return err
	})
	if err == nil {
		err = tw.WriteHeader(&tar.Header{Name: "opt/first", Typeflag: tar.TypeReg, Mode: 0o644})
	}
	if err == nil {
		err = tw.Close()
	}
	return err
}
