// Package workerd finds and fetches Cloudflare's runtime of V8 isolates: one
// version, known by its digest, from the npm registry, in the cache.
package workerd

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/hashed"
	"sallyport.dev/sallyport/tier"
)

// Version is the one that this code was tested with. It changes together with
// the digests, by hand: `npm view @cloudflare/workerd-linux-64@VERSION dist.integrity`.
const Version = "1.20261117.1"

// A release is Version for one processor.
type release struct {
	pkg       string
	integrity string // of the package, as npm writes it
	digest    string // SHA-256 of the program in it
}

func releaseFor(arch string) (release, bool) {
	r, ok := map[string]release{
		"amd64": {
			"@cloudflare/workerd-linux-64", "sha512-gZLA8X11m/luZwn+YA3+mDu61vdxNJzpksP/QZqjydKTQ+VUCulsK5gtn9Bqst1p3KJu2kafQpJ1nDQv4B23jA==",
			"2c950df972c039779162ed3803db9fe3f407b70709db2c9ef5a523b36cac4583",
		},
		"arm64": {
			"@cloudflare/workerd-linux-arm64", "sha512-gxWngFojq41ULKNKb9rpWYvKotN5hT2I/xot+Bpy31cXzrwcTgtDLSMb2t75sW5BJxH7hihFvikgYb577kB3Zg==",
			"37007f28648931403563dbb75c6c784c3be0755d3a8793877c0d7ef33d116b7c",
		},
	}[arch]
	return r, ok
}

// Path is where a cache has the program, if it has it.
func Path(cache string) string { return filepath.Join(cache, "workerd", Version, "workerd") }

// Digest is the SHA-256 of the program on this processor, in hex.
func Digest() string {
	r, _ := releaseFor(runtime.GOARCH)
	return r.digest
}

// Find opens the program, hashed. The error says what to do where it is missing or
// is another.
func Find(cache string) (*os.File, error) {
	want, ok := releaseFor(runtime.GOARCH)
	if !ok {
		return nil, tier.Unavailable("use tier gvisor", "there are no V8 isolates for this processor (%s)", runtime.GOARCH)
	}
	f, err := os.Open(Path(cache))
	if err != nil {
		return nil, tier.Unavailable("run `make build` where npm is", "workerd %s, which runs V8 isolates, is not installed", Version)
	}
	got, err := hashed.Reader(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	if got != want.digest {
		f.Close()
		return nil, tier.Unavailable("remove it and run `make build`", "%s is not workerd %s: its SHA-256 is %s", f.Name(), Version, got)
	}
	return f, nil
}

// Install fetches the program with npm, unless the cache has it. What npm brings
// is held against what is known here.
func Install(ctx context.Context, cache, npm string) error {
	if f, err := Find(cache); err == nil {
		return f.Close()
	}
	want, ok := releaseFor(runtime.GOARCH)
	if !ok {
		return errors.New("workerd is not made for this processor")
	}
	dir := filepath.Dir(Path(cache))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(dir, "new")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	cmd := exec.CommandContext(ctx, npm, "pack", "--silent", "--ignore-scripts", want.pkg+"@"+Version)
	cmd.Dir = tmp
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm pack %s@%s: %w: %s", want.pkg, Version, err, out)
	}
	found, err := filepath.Glob(filepath.Join(tmp, "*.tgz"))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("npm pack left %d packages: %w", len(found), err)
	}
	made := filepath.Join(tmp, "workerd")
	if err := want.unpack(found[0], made); err != nil {
		return err
	}
	return os.Rename(made, Path(cache))
}

// maxProgram bounds what is unpacked; Version has 162 MB.
const maxProgram = 1 << 30

// unpack writes the program of a package, if both are what they must be.
func (r release) unpack(pkg, to string) error {
	f, err := os.Open(pkg)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha512.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum.Sum(nil)); got != r.integrity {
		return &sallyport.Error{Code: sallyport.Unavailable, Message: fmt.Sprintf("the package %s has the integrity %s, not %s", r.pkg, got, r.integrity), Hint: "do not use it; look at what your npm registry serves"}
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	for t := tar.NewReader(z); ; {
		e, err := t.Next()
		if err != nil {
			return fmt.Errorf("the package has no program: %w", err)
		}
		if strings.TrimPrefix(e.Name, "package/") != "bin/workerd" || e.Typeflag != tar.TypeReg {
			continue
		}
		out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
		if err != nil {
			return err
		}
		h := sha256.New()
		_, err = io.Copy(io.MultiWriter(out, h), io.LimitReader(t, maxProgram))
		if err = errors.Join(err, out.Close()); err != nil {
			return err
		}
		if got := hex.EncodeToString(h.Sum(nil)); got != r.digest {
			return fmt.Errorf("the program in %s has the digest %s, not %s", r.pkg, got, r.digest)
		}
		return nil
	}
}
