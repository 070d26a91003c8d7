package secret

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/store"
)

func TestRows(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	if _, err := OpenRows(dir); sallyport.CodeOf(err) != sallyport.Unavailable || !strings.Contains(err.Error(), KeyFile) {
		t.Errorf("without a key: %v", err)
	}
	var boxes [2]*Rows
	for i, d := range []string{dir, other} {
		if err := CreateKey(d); err != nil {
			t.Fatal(err)
		}
		var err error
		if boxes[i], err = OpenRows(d); err != nil {
			t.Fatal(err)
		}
	}
	b := boxes[0]
	for _, plain := range [][]byte{nil, []byte("x"), bytes.Repeat([]byte("canary"), 10_000)} {
		sealed := b.Seal("t", "ticket 1", plain)
		if sealed[0] != store.SealedRow || len(plain) > 8 && bytes.Contains(sealed, plain) || bytes.Equal(sealed, b.Seal("t", "ticket 1", plain)) {
			t.Errorf("%d bytes sealed as %.60x", len(plain), sealed)
		}
		if got, err := b.Open("t", "ticket 1", sealed); err != nil || !bytes.Equal(got, plain) {
			t.Errorf("opened %d bytes as %d, %v", len(plain), len(got), err)
		}
		altered := bytes.Clone(sealed)
		altered[len(altered)-1] ^= 1
		for what, open := range map[string]func() ([]byte, error){
			"another tenant": func() ([]byte, error) { return b.Open("u", "ticket 1", sealed) },
			"another row":    func() ([]byte, error) { return b.Open("t", "ticket 2", sealed) },
			"shifted":        func() ([]byte, error) { return b.Open("tt", "icket 1", sealed) },
			"another key":    func() ([]byte, error) { return boxes[1].Open("t", "ticket 1", sealed) },
			"altered":        func() ([]byte, error) { return b.Open("t", "ticket 1", altered) },
			"cut short":      func() ([]byte, error) { return b.Open("t", "ticket 1", sealed[:10]) },
			"not sealed":     func() ([]byte, error) { return b.Open("t", "ticket 1", []byte(`{}`)) },
			"nothing":        func() ([]byte, error) { return b.Open("t", "ticket 1", nil) },
		} {
			if got, err := open(); err == nil || sallyport.CodeOf(err) != sallyport.Unavailable || got != nil {
				t.Errorf("%s: %d bytes, %v", what, len(got), err)
			}
		}
	}
	// The rows' key is another than the secrets'.
	v, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if sealed := b.Seal("t", "r", []byte("x")); true {
		if _, err := v.aead.Open(nil, sealed[1:rowHead], sealed[rowHead:], associated("sallyport row v1\x00", "t", "r")); err == nil {
			t.Error("the secrets' key opens rows")
		}
	}
	if err := os.Chmod(filepath.Join(dir, KeyFile), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenRows(dir); err == nil {
		t.Error("a key that others may read was taken")
	}
}

func BenchmarkRows(b *testing.B) {
	dir := b.TempDir()
	if err := CreateKey(dir); err != nil {
		b.Fatal(err)
	}
	r, err := OpenRows(dir)
	if err != nil {
		b.Fatal(err)
	}
	for name, size := range map[string]int{"1KiB": 1 << 10, "64KiB": 64 << 10} {
		plain := make([]byte, size)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				if _, err := r.Open("t", "row", r.Seal("t", "row", plain)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
