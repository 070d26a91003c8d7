package workerd

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
)

func TestFind(t *testing.T) {
	cache := t.TempDir()
	if _, err := Find(cache); sallyport.CodeOf(err) != sallyport.Unavailable || !strings.Contains(err.Error(), Version) {
		t.Errorf("missing: %v", err)
	}
	if err := os.MkdirAll(filepath.Dir(Path(cache)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(Path(cache), []byte("another"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(cache); sallyport.CodeOf(err) != sallyport.Unavailable || !strings.Contains(err.Error(), "is not workerd") {
		t.Errorf("another: %v", err)
	}
}

// What npm brings must be what is known, as a package and as a program.
func TestUnpackIsChecked(t *testing.T) {
	dir := t.TempDir()
	program := []byte("program")
	var pkg bytes.Buffer
	z := gzip.NewWriter(&pkg)
	w := tar.NewWriter(z)
	for name, content := range map[string][]byte{"package/package.json": []byte("{}"), "package/bin/workerd": program} {
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	z.Close()
	file := filepath.Join(dir, "p.tgz")
	if err := os.WriteFile(file, pkg.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	whole, part := sha512.Sum512(pkg.Bytes()), sha256.Sum256(program)
	good := release{"p", "sha512-" + base64.StdEncoding.EncodeToString(whole[:]), hex.EncodeToString(part[:])}
	if err := good.unpack(file, filepath.Join(dir, "good")); err != nil {
		t.Errorf("control: %v", err)
	}
	for name, r := range map[string]release{"integrity": {"p", "sha512-x", good.digest}, "digest": {"p", good.integrity, strings.Repeat("0", 64)}} {
		if err := r.unpack(file, filepath.Join(dir, name)); err == nil {
			t.Errorf("another %s is taken", name)
		}
	}
}

// A program that does not do what npm does leaves nothing in the cache.
func TestInstallFails(t *testing.T) {
	cache := t.TempDir()
	if err := Install(context.Background(), cache, "/bin/false"); err == nil {
		t.Error("it is installed")
	}
	if left, _ := os.ReadDir(filepath.Dir(Path(cache))); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
