// Package module looks at the WASI modules that manifests name. A module is pinned
// by what it is: a file by the digest that stands in the manifest, an artifact of a
// registry by its own. It is read whole where it is to run, and there held against
// its pin.
package module

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
)

// Language is that of manifests that name a module.
const Language = "wasm"

// A Named is what a manifest says of its module.
type Named struct {
	File   string // beside the manifest
	Digest string // sha256:HEX of the file
	Image  string // of an artifact
}

// A Found is a module as far as it is known before it runs.
type Found struct {
	Source  string // see sallyport.Script
	File    string // absolute; "" of an artifact
	Changed string // why the file is not what the manifest says, "" if it is
}

var (
	digestForm   = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	artifactForm = regexp.MustCompile(`^[a-z0-9][a-zA-Z0-9._:/-]*@sha256:[0-9a-f]{64}$`)
)

// Misplaced is what is wrong with a manifest that names a module where there is none, or
// code where a module belongs.
func Misplaced() *Wrong {
	return wrong("write language: wasm, module and digest, and no code", "module and digest belong to language: wasm, code to the other languages")
}

// Find looks at the module that a manifest of the folder names. A file that is
// another than the manifest says is found, with what changed.
func Find(folder string, n Named) (Found, *Wrong) {
	switch {
	case n.Image != "" && n.File+n.Digest == "":
		if !artifactForm.MatchString(n.Image) {
			return Found{}, wrong("write image: REGISTRY/REPOSITORY@sha256:HEX", "image must name the artifact of the module by its digest, not %.80q", n.Image)
		}
		return Found{Source: n.Image}, nil
	case n.File == "" || n.Image != "":
		return Found{}, wrong("add module: FILE and digest: sha256:HEX, or image: REGISTRY/REPOSITORY@sha256:HEX", "language: wasm needs a module, from one place")
	case !filepath.IsLocal(n.File):
		return Found{}, wrong("put it beside the manifest", "module must be a file in the manifest's folder, not %.80q", n.File)
	case n.Digest != "" && !digestForm.MatchString(n.Digest):
		return Found{}, wrong("write digest: sha256: and 64 hexadecimal digits", "digest is not that of a module: %.80q", n.Digest)
	}
	file, err := filepath.Abs(filepath.Join(folder, n.File))
	have := ""
	if err == nil {
		have, err = digest(file)
	}
	switch {
	case err != nil:
		return Found{}, wrong("put the module beside the manifest, readable for the gateway", "the module %.80q cannot be used: %v", n.File, err)
	case n.Digest == "":
		return Found{}, wrong("if it is the module that you mean, add digest: "+have, "the module %.80q is not pinned: a file can change where nobody looks", n.File)
	case n.Digest != have:
		return Found{n.Digest, file, fmt.Sprintf("the module %s changed: it is %s, and the manifest says %s; if you mean the new one, write its digest there", n.File, have, n.Digest)}, nil
	}
	return Found{Source: have, File: file}, nil
}

// A Wrong is what a manifest should not say, and what it should.
type Wrong struct{ Message, Hint string }

func wrong(hint, format string, args ...any) *Wrong {
	return &Wrong{fmt.Sprintf(format, args...), hint}
}

// digest is that of a regular file.
func digest(file string) (string, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", errors.Unwrap(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("it is not a file")
	}
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(f, sallyport.MaxModule+1))
	switch {
	case err != nil:
		return "", err
	case n > sallyport.MaxModule:
		return "", fmt.Errorf("it has more than %d bytes", sallyport.MaxModule)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}
