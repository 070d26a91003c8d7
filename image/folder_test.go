package image_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/image"
)

func buildFolder(t *testing.T, dir string, max int64) (image.Image, error) {
	t.Helper()
	return image.NewStore(t.TempDir()).BuildFolder(context.Background(), "test", dir, max, quiet)
}

// makeFolder makes the same contents in another order, at another time, under
// another umask and, for root, owner.
func makeFolder(t *testing.T, variant int) string {
	t.Helper()
	top := filepath.Join(t.TempDir(), strings.Repeat("deeper", variant+1))
	old := unix.Umask([]int{0o022, 0o077}[variant])
	defer unix.Umask(old)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	names := []string{"bin/run", "etc/conf", "a/b/c/deep", "z"}
	if variant == 1 {
		slices.Reverse(names)
	}
	for _, name := range names {
		p := filepath.Join(top, name)
		must(os.MkdirAll(filepath.Dir(p), 0o777))
		mode := fs.FileMode(0o666)
		if name == "bin/run" {
			mode = 0o777
		}
		must(os.WriteFile(p, []byte("contents of "+name), mode))
		at := time.Unix(int64(1e9*(variant+1)), int64(variant))
		must(os.Chtimes(p, at, at))
		if os.Geteuid() == 0 {
			must(os.Lchown(p, 1234*variant, 99*variant))
		}
	}
	must(os.Symlink("../etc/conf", filepath.Join(top, "a", "link")))
	must(os.Link(filepath.Join(top, "z"), filepath.Join(top, "hard")))
	must(unix.Mkfifo(filepath.Join(top, "fifo"), 0o600))
	return top
}

// The same contents give the same image, whoever made them, when and where.
func TestFolderReproducible(t *testing.T) {
	var digests []string
	for variant := range 2 {
		t.Setenv("TZ", []string{"UTC", "Asia/Tokyo"}[variant])
		img, err := buildFolder(t, makeFolder(t, variant), 0)
		if err != nil {
			t.Fatal(err)
		}
		root := open(t, img)
		checkShape(t, root)
		want := "a/ a/b/ a/b/c/ a/b/c/deep=contents of a/b/c/deep a/link->../etc/conf bin/ bin/run=contents of bin/run hard=contents of z z=contents of z"
		if got := tellTree(t, root); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if info, err := fs.Stat(root, "bin/run"); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("bin/run: %v, %v", info.Mode(), err)
		}
		digests = append(digests, img.Digest)
	}
	if digests[0] != digests[1] {
		t.Errorf("they differ: %v", digests)
	}
	other := makeFolder(t, 0)
	if err := os.WriteFile(filepath.Join(other, "z"), []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if img, err := buildFolder(t, other, 0); err != nil || img.Digest == digests[0] {
		t.Errorf("control: other contents, same digest (%v)", err)
	}
}

// Nothing outside of the folder gets into the image; what is too large or not
// there is refused.
func TestFolderContained(t *testing.T) {
	top := t.TempDir()
	secret := filepath.Join(top, "secret")
	dir := filepath.Join(top, "dir")
	for _, err := range []error{
		os.WriteFile(secret, []byte("secret"), 0o600), os.Mkdir(dir, 0o700),
		os.Symlink(secret, filepath.Join(dir, "abs")), os.Symlink("../secret", filepath.Join(dir, "rel")), os.Symlink("..", filepath.Join(dir, "up")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "rel")); err != nil || string(b) != "secret" {
		t.Fatalf("control: %q, %v", b, err)
	}
	img, err := buildFolder(t, dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := tellTree(t, open(t, img)), "abs->"+secret+" rel->../secret up->.."; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if raw, err := os.ReadFile(img.Path); err != nil || strings.Contains(strings.ReplaceAll(string(raw), secret, ""), "=secret") {
		t.Errorf("the secret is in the image: %v", err)
	}
	if err := os.Truncate(secret, 1<<40); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(secret, filepath.Join(dir, "huge")); err != nil {
		t.Fatal(err)
	}
	if _, err := buildFolder(t, dir, 0); err == nil || !strings.Contains(err.Error(), "larger than") || !strings.Contains(err.Error(), "huge") {
		t.Errorf("a sparse terabyte: %v", err)
	}
	for _, bad := range []string{filepath.Join(top, "none"), filepath.Join(dir, "abs"), img.Path} {
		if _, err := buildFolder(t, bad, 0); sallyport.CodeOf(err) != sallyport.Invalid {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
