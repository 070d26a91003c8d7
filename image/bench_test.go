package image_test

import (
	"archive/tar"
	"context"
	"io"
	"io/fs"
	"os"
	"testing"

	"github.com/erofs/go-erofs"

	"sallyport.dev/sallyport/image"
)

// defaultTar is the default image as one layer.
func defaultTar(b *testing.B) string {
	b.Helper()
	img, err := image.Open(image.CacheDir(os.Getenv, os.Geteuid()), image.DefaultName)
	if err != nil {
		b.Skipf("there is no default image: %v", err)
	}
	f, err := os.Open(img.Path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	root, err := erofs.Open(f)
	if err != nil {
		b.Fatal(err)
	}
	out, err := os.Create(b.TempDir() + "/layer")
	if err != nil {
		b.Fatal(err)
	}
	defer out.Close()
	w := tar.NewWriter(out)
	err = fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: p, Typeflag: tar.TypeReg, Mode: 0o755, Size: info.Size()}); err != nil {
			return err
		}
		r, err := root.Open(p)
		if err != nil {
			return err
		}
		defer r.Close()
		_, err = io.Copy(w, r)
		return err
	})
	if err != nil || w.Close() != nil {
		b.Fatal(err)
	}
	return out.Name()
}

// BenchmarkLayers makes an image of a layer as large as the default image.
func BenchmarkLayers(b *testing.B) {
	layer := defaultTar(b)
	info, err := os.Stat(layer)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(info.Size())
	for b.Loop() {
		l := image.Layers{Name: "test", ID: "x", Count: 1, Open: func(context.Context, int) (io.ReadCloser, error) { return os.Open(layer) }}
		img, err := buildLayers(b, b.TempDir(), l)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(img.Size)/1e6, "MB")
	}
}

// BenchmarkUse is what a run pays for the check of its image: the first one, and
// each later one.
func BenchmarkUse(b *testing.B) {
	cache := image.CacheDir(os.Getenv, os.Geteuid())
	use := func(b *testing.B, s *image.Store) {
		if _, err := s.Use(image.DefaultName); err != nil {
			b.Skipf("there is no default image: %v", err)
		}
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			s := image.NewStore(cache)
			use(b, s)
			s.Close()
		}
	})
	b.Run("later", func(b *testing.B) {
		s := image.NewStore(cache)
		defer s.Close()
		use(b, s)
		for b.Loop() {
			use(b, s)
		}
	})
}
