package hashed_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"

	"sallyport.dev/sallyport/hashed"
)

func TestFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	const want = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" // FIPS 180-2, B.1
	if got, err := hashed.File(file); err != nil || got != want {
		t.Errorf("%s, %v", got, err)
	}
	if got, err := hashed.File(file + "x"); !errors.Is(err, fs.ErrNotExist) || got != "" {
		t.Errorf("no file: %q, %v", got, err)
	}
	broken := errors.New("broken")
	if got, err := hashed.Reader(iotest.ErrReader(broken)); !errors.Is(err, broken) || got != "" {
		t.Errorf("half a file: %q, %v", got, err)
	}
}
