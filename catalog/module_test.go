package catalog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
)

const anyModule = "\x00asm\x01\x00\x00\x00"

// sumOfModule is the digest of anyModule.
const sumOfModule = "sha256:93a44bbb96c751218e4c00d479e4c14358122a389acca16205b1e4d0dc5f9476"

func wasmManifest(t *testing.T, keys string) (Manifest, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "greet.wasm"), []byte(anyModule), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	return ParseManifest(filepath.Join(dir, "greet.yaml"), []byte("name: greet\nlanguage: wasm\n"+keys))
}

// A tool's module is pinned by its digest: the tool is what it was when an operator
// wrote that down, or it is quarantined.
func TestModuleIsPinned(t *testing.T) {
	m, err := wasmManifest(t, "module: greet.wasm\ndigest: "+sumOfModule+"\n")
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Options{Manifests: []Manifest{m}})
	if err != nil {
		t.Fatal(err)
	}
	tool, err := c.Resolve("", "greet")
	if err != nil || tool.Status != sallyport.ToolActive || tool.Code.Language != "wasm" || tool.Code.Source != sumOfModule || filepath.Base(tool.Code.File) != "greet.wasm" || !filepath.IsAbs(tool.Code.File) {
		t.Errorf("%+v, %+v, %v", tool, tool.Code, err)
	}
	if err := os.WriteFile(tool.Code.File, []byte(anyModule+"\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	changed, err := ParseManifest(m.File, []byte("name: greet\nlanguage: wasm\nmodule: greet.wasm\ndigest: "+sumOfModule+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Set(nil, []Manifest{changed}); err != nil {
		t.Fatal(err)
	}
	now, err := c.Resolve("", "greet")
	if err != nil || now.Status != sallyport.ToolQuarantined || !strings.Contains(now.StatusReason, "greet.wasm changed") || now.Digest != tool.Digest {
		t.Errorf("after a change: %+v, %v", now, err)
	}
	other, err := wasmManifest(t, "image: ghcr.io/owner/greet@"+sumOfModule+"\n")
	if err != nil || other.Code != "ghcr.io/owner/greet@"+sumOfModule || other.Rules.Image != "" || other.define().Code.File != "" {
		t.Errorf("an artifact: %+v, %v", other, err)
	}
}

func TestModuleMistakes(t *testing.T) {
	for keys, want := range map[string]string{
		"":                                     "needs a module",
		"code: x\n":                            "no code",
		"module: greet.wasm\n":                 "add digest: " + sumOfModule,
		"digest: " + sumOfModule + "\n":        "needs a module",
		"module: greet.wasm\ndigest: sha1:x\n": "64 hexadecimal digits",
		"module: ../greet.wasm\n":              "beside the manifest",
		"module: /etc/passwd\n":                "beside the manifest",
		"module: no.wasm\n":                    "no such file",
		"module: folder\n":                     "not a file",
		"image: ghcr.io/owner/greet:latest\n":  "by its digest",
		"image: default\n":                     "by its digest",
		"module: greet.wasm\ndigest: " + sumOfModule + "\nimage: a/b@" + sumOfModule + "\n": "from one place",
	} {
		_, err := wasmManifest(t, keys)
		e, _ := err.(*sallyport.Error)
		if e == nil || !strings.Contains(e.Message+" "+e.Hint, want) || !strings.Contains(e.Message, "greet.yaml:1") {
			t.Errorf("%q: %v; want %q", keys, err, want)
		}
	}
	for _, text := range []string{"name: a\nlanguage: python\ncode: x\nmodule: a.wasm\n", "server: s\ntool: t\ndigest: " + sumOfModule + "\n"} {
		if _, err := ParseManifest("a.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), "module and digest belong to language: wasm") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
