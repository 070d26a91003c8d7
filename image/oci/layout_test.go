package oci_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/erofs/go-erofs"
	"github.com/klauspost/compress/zstd"

	"sallyport.dev/sallyport/image"
	"sallyport.dev/sallyport/image/oci"
)

type object = map[string]any

// blobs is an OCI layout in the making, by path.
type blobs map[string][]byte

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(s[:])
}

func (b blobs) add(content []byte) string {
	d := sum(content)
	b["blobs/sha256/"+d[7:]] = content
	return d
}

func (b blobs) descriptor(mediaType string, content []byte) object {
	return object{"mediaType": mediaType, "digest": b.add(content), "size": len(content)}
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"
)

// tarOf packs names and their contents.
func tarOf(pairs ...string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(pairs); i += 2 {
		_ = w.WriteHeader(&tar.Header{Name: pairs[i], Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(pairs[i+1]))})
		_, _ = w.Write([]byte(pairs[i+1]))
	}
	_ = w.Close()
	return b.Bytes()
}

func gzipOf(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(b)
	_ = w.Close()
	return out.Bytes()
}

func zstdOf(b []byte) []byte {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	return w.EncodeAll(b, nil)
}

// An image as the tests make it. Each part can be changed before it is hashed.
type made struct {
	arch   string
	plain  [][]byte
	stored [][]byte
	config object
	change func(manifest object)
}

// manifest adds the image's blobs and returns its descriptor.
func (m made) manifest(b blobs) object {
	var ids []string
	var layers []object
	for i, p := range m.plain {
		ids = append(ids, sum(p))
		layers = append(layers, b.descriptor(typeLayer+[]string{"", "+gzip", "+zstd"}[i%3], m.stored[i]))
	}
	config := object{"os": "linux", "architecture": m.arch, "rootfs": object{"type": "layers", "diff_ids": ids}}
	for k, v := range m.config {
		config[k] = v
	}
	manifest := object{"schemaVersion": 2, "mediaType": typeManifest, "config": b.descriptor(typeConfig, encode(config)), "layers": layers}
	if m.change != nil {
		m.change(manifest)
	}
	d := b.descriptor(typeManifest, encode(manifest))
	d["platform"] = object{"os": "linux", "architecture": m.arch}
	return d
}

// standard is an image of three layers, stored in three ways.
func standard(arch string) made {
	m := made{arch: arch, plain: [][]byte{
		tarOf("a", "1", "d/b", "1", "arch", arch), tarOf("a", "2", "d/.wh.b", ""), tarOf("c", "3"),
	}}
	m.stored = [][]byte{m.plain[0], gzipOf(m.plain[1]), zstdOf(m.plain[2])}
	return m
}

func (b blobs) index(all ...object) blobs {
	b["index.json"] = encode(object{"schemaVersion": 2, "mediaType": typeIndex, "manifests": all})
	b["oci-layout"] = []byte(`{"imageLayoutVersion":"1.0.0"}`)
	return b
}

func (b blobs) folder(t testing.TB) string {
	t.Helper()
	top := t.TempDir()
	for name, content := range b {
		p := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return top
}

func (b blobs) archive(t testing.TB) string {
	t.Helper()
	var pairs []string
	for name, content := range b {
		pairs = append(pairs, name, string(content))
	}
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(file, tarOf(pairs...), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func build(t testing.TB, find func() (*oci.Image, error)) (image.Image, error) {
	t.Helper()
	found, err := find()
	if err != nil {
		return image.Image{}, err
	}
	defer found.Close()
	return image.NewStore(t.TempDir()).BuildLayers(context.Background(), found.Layers("test", 64<<20), func(string) {})
}

func fromFile(t testing.TB, file, ref string) (image.Image, error) {
	t.Helper()
	return build(t, func() (*oci.Image, error) { return oci.Open(context.Background(), file, ref) })
}

// contents checks that it is the standard image, made for this machine.
func contents(t testing.TB, img image.Image) {
	t.Helper()
	f, err := os.Open(img.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	root, err := erofs.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"a": "2", "c": "3", "arch": runtime.GOARCH, "d/b": "", "d/.wh.b": ""} {
		got, err := fs.ReadFile(root, name)
		if string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%s = %q, %v; want %q", name, got, err, want)
		}
	}
}

// other is a processor that this machine does not have.
func other() string {
	if runtime.GOARCH == "amd64" {
		return "arm64"
	}
	return "amd64"
}
