package module_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/image/module"
)

const (
	code     = "\x00asm\x01\x00\x00\x00"
	digest   = "sha256:93a44bbb96c751218e4c00d479e4c14358122a389acca16205b1e4d0dc5f9476" // of code
	artifact = "ghcr.io/owner/greet@sha256:0000000000000000000000000000000000000000000000000000000000000001"
)

// A file runs as it was pinned, or not at all.
func TestFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "greet.wasm")
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	script := sallyport.Script{Language: "wasm", Source: digest, File: file}
	write(code + "x")
	s := module.NewStore(t.TempDir())
	refused := func(what string, err error) {
		t.Helper()
		if sallyport.CodeOf(err) != sallyport.Unavailable || !errors.Is(err, sallyport.ErrNotExecuted) || !strings.Contains(err.Error(), "greet.wasm") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := s.Find(script)
	refused("another file", err)
	write(code)
	if b, err := s.Find(script); err != nil || string(b.Code) != code || "sha256:"+b.Digest != digest {
		t.Fatalf("%q, %v", b, err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if b, err := s.Find(script); err != nil || string(b.Code) != code {
		t.Errorf("what was pinned is gone with its file: %q, %v", b, err)
	}
	_, err = module.NewStore(t.TempDir()).Find(script)
	refused("no file", err)
	if err := os.Mkdir(file, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err = module.NewStore(t.TempDir()).Find(script)
	refused("a folder", err)
}

func TestArtifact(t *testing.T) {
	cache := t.TempDir()
	script := sallyport.Script{Language: "wasm", Source: artifact}
	_, err := module.NewStore(cache).Find(script)
	if e, _ := err.(*sallyport.Error); e == nil || e.Hint != "sallyport sandbox pull --module "+artifact {
		t.Errorf("before it was pulled: %v", err)
	}
	if err := module.NewStore(cache).Put("ghcr.io/owner/greet:latest", []byte(code)); err == nil {
		t.Error("a tag was taken for a digest")
	}
	if err := module.NewStore(cache).Put(artifact, []byte(code)); err != nil {
		t.Fatal(err)
	}
	if b, err := module.NewStore(cache).Find(script); err != nil || string(b.Code) != code {
		t.Errorf("%q, %v", b, err)
	}
	files, _ := filepath.Glob(filepath.Join(cache, "modules", "*"))
	if len(files) != 1 {
		t.Fatalf("%q", files)
	}
	if err := os.WriteFile(files[0], []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := module.NewStore(cache).Find(script); err == nil {
		t.Error("a damaged file was given out")
	}
	for _, source := range []string{"", "x", "sha256:1", "../../etc/passwd", "a@b@" + digest} {
		if _, err := module.NewStore(cache).Find(sallyport.Script{Source: source}); err == nil {
			t.Errorf("%q: found", source)
		}
	}
}
