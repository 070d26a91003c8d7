// Package debian fetches Debian's packages by Debian's own client, as if no package
// at all were installed here, and reads what is in them. The machine's sources and
// signing keys are used; its preferences, its package state and its live file system
// are not. None of a package's scripts ever runs.
package debian

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"

	"sallyport.dev/sallyport/hashed"
)

// A Package is one Debian package.
type Package struct {
	Name         string `json:"name"`
	Version      string `json:"version"`
	Architecture string `json:"architecture"`
	SHA256       string `json:"sha256"` // hex, of the .deb file
}

// An Archive is one .deb file.
type Archive struct {
	Package
	File string // absolute
	Size int64  // bytes, as the package lists say
}

// Check compares the file with the hash that apt's signed lists give.
func (a Archive) Check() error {
	got, err := hashed.File(a.File)
	if err != nil {
		return err
	}
	if got != a.SHA256 {
		return fmt.Errorf("%s: sha256 is %s, but the signed package list says %s", filepath.Base(a.File), got, a.SHA256)
	}
	return nil
}

// Describe reads the control fields of a local .deb file.
func Describe(ctx context.Context, file string) (Archive, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return Archive{}, err
	}
	sum, err := hashed.File(file)
	if err != nil {
		return Archive{}, err
	}
	out, err := exec.CommandContext(ctx, "dpkg-deb", "--show",
		"--showformat=${Package}\n${Version}\n${Architecture}\n", file).Output()
	if err != nil {
		return Archive{}, fmt.Errorf("%s is not a Debian package: %w", file, err)
	}
	f := strings.Split(string(out), "\n")
	if len(f) < 3 {
		return Archive{}, fmt.Errorf("%s is not a Debian package", file)
	}
	return Archive{Package: Package{Name: f[0], Version: f[1], Architecture: f[2], SHA256: sum}, File: file}, nil
}

// Walk hands take every entry of the package's contents, in the order of the archive,
// and stops at its first error. dpkg-deb only unpacks them to a tar stream.
func (a Archive) Walk(ctx context.Context, take func(*tar.Header, io.Reader) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", a.File)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	readErr := Entries(out, take)
	if readErr != nil {
		cancel() // ends dpkg-deb, which may have much more to say
	} else {
		_, readErr = io.CopyN(io.Discard, out, 1<<20) // the padding after the last entry
		if errors.Is(readErr, io.EOF) {
			readErr = nil
		}
	}
	waitErr := cmd.Wait()
	switch {
	case readErr != nil:
		return readErr
	case waitErr != nil:
		return fmt.Errorf("dpkg-deb: %w: %s", waitErr, lastLine(stderr.String()))
	}
	return nil
}

// Entries hands take every entry of a tar stream, until its first error.
func Entries(r io.Reader, take func(*tar.Header, io.Reader) error) error {
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := take(h, t); err != nil {
			return fmt.Errorf("entry %q: %w", h.Name, err)
		}
	}
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
