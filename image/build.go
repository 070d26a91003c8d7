package image

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
)

// Build makes an image and gives it spec.Name in the cache folder. It tells
// progress what it is doing, one line at a time.
func Build(ctx context.Context, cacheDir string, spec Spec, progress func(string)) (Image, error) {
	return NewStore(cacheDir).Build(ctx, spec, progress)
}

// Build makes an image and gives it spec.Name. It needs apt-get with a source of
// spec.Release (unless spec.Packages is empty) and dpkg-deb, but not root. One
// build at a time runs in a cache folder; others wait.
func (s *Store) Build(ctx context.Context, spec Spec, progress func(string)) (Image, error) {
	if !nameForm.MatchString(spec.Name) || digestForm.MatchString(spec.Name) {
		return Image{}, &sallyport.Error{Code: sallyport.Invalid, Step: sallyport.Execute,
			Message: fmt.Sprintf("%q is no name for an image", spec.Name), Hint: "use [a-z][a-z0-9._-]*"}
	}
	if err := haveTools(spec); err != nil {
		return Image{}, err
	}
	cacheDir, err := filepath.Abs(s.cacheDir)
	if err != nil {
		return Image{}, buildFailed(err)
	}
	s = NewStore(cacheDir) // absolute; dpkg-deb and apt-get need it
	if err := os.MkdirAll(s.dir(), 0o755); err != nil {
		return Image{}, buildFailed(err)
	}
	unlock, err := s.lock()
	if err != nil {
		return Image{}, buildFailed(err)
	}
	defer unlock()
	work, err := os.MkdirTemp(s.dir(), ".build-")
	if err != nil {
		return Image{}, buildFailed(err)
	}
	defer os.RemoveAll(work)
	img, err := s.build(ctx, spec, work, progress)
	if err != nil {
		return Image{}, buildFailed(err)
	}
	return img, nil
}

func (s *Store) build(ctx context.Context, spec Spec, work string, progress func(string)) (Image, error) {
	archives, err := fetch(ctx, spec, work, progress)
	if err != nil {
		return Image{}, err
	}
	spool, err := os.Create(filepath.Join(work, "spool"))
	if err != nil {
		return Image{}, err
	}
	defer spool.Close()
	t := newTree(spool)
	progress(fmt.Sprintf("reading %d packages", len(archives)))
	for _, a := range archives {
		if err := t.addDeb(ctx, a.file); err != nil {
			return Image{}, fmt.Errorf("package %s: %w", a.pkg.Name, err)
		}
	}
	if err := t.complete(); err != nil {
		return Image{}, err
	}
	progress(fmt.Sprintf("writing the image: %d entries, %d MB", t.entries, t.end/1e6))
	img := Image{Name: spec.Name, Recipe: spec.digest()}
	for _, a := range archives {
		img.Packages = append(img.Packages, a.pkg)
	}
	return s.keep(t, work, img)
}

// fetch returns the archives whose contents make the image, checked and in the
// order in which they are added.
func fetch(ctx context.Context, spec Spec, work string, progress func(string)) ([]archive, error) {
	var archives []archive
	if len(spec.Packages) > 0 {
		var err error
		if archives, err = fetchPackages(ctx, spec, work, progress); err != nil {
			return nil, err
		}
	}
	for _, file := range spec.Debs {
		a, err := describeDeb(ctx, file)
		if err != nil {
			return nil, err
		}
		archives = append(archives, a)
	}
	return archives, nil
}

func fetchPackages(ctx context.Context, spec Spec, work string, progress func(string)) ([]archive, error) {
	a, err := newApt(filepath.Join(work, "apt"), spec.Release)
	if err != nil {
		return nil, err
	}
	progress("reading Debian's package lists")
	if _, err := a.command(ctx, "none", "update"); err != nil {
		return nil, err
	}
	all, err := a.resolve(ctx, spec.Packages)
	if err != nil {
		return nil, err
	}
	var total int64
	for _, x := range all {
		total += x.size
	}
	progress(fmt.Sprintf("downloading %d packages, %d MB", len(all), total/1e6))
	if err := a.download(ctx, spec.Packages, total, progress); err != nil {
		return nil, err
	}
	wanted := slices.DeleteFunc(all, func(x archive) bool { return slices.Contains(spec.Exclude, x.pkg.Name) })
	slices.SortFunc(wanted, func(x, y archive) int { return cmp.Compare(x.pkg.Name, y.pkg.Name) })
	for _, x := range wanted {
		if err := x.check(); err != nil {
			return nil, err
		}
	}
	return wanted, nil
}

// describeDeb reads the control fields of a local .deb file.
func describeDeb(ctx context.Context, file string) (archive, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return archive{}, err
	}
	sum, err := hashFile(file)
	if err != nil {
		return archive{}, err
	}
	out, err := exec.CommandContext(ctx, "dpkg-deb", "--show",
		"--showformat=${Package}\n${Version}\n${Architecture}\n", file).Output()
	if err != nil {
		return archive{}, fmt.Errorf("%s is not a Debian package: %w", file, err)
	}
	f := strings.Split(string(out), "\n")
	if len(f) < 3 {
		return archive{}, fmt.Errorf("%s is not a Debian package", file)
	}
	return archive{pkg: Package{Name: f[0], Version: f[1], Architecture: f[2], SHA256: sum}, file: file}, nil
}

// keep writes the image under its digest, then its description, then its name;
// each appears whole or not at all.
func (s *Store) keep(t *tree, work string, img Image) (Image, error) {
	raw := filepath.Join(work, "image.erofs")
	f, err := os.OpenFile(raw, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return Image{}, err
	}
	defer f.Close()
	if err := t.write(f, work); err != nil {
		return Image{}, err
	}
	if err := f.Chmod(0o444); err != nil {
		return Image{}, err
	}
	info, err := f.Stat()
	if err != nil {
		return Image{}, err
	}
	sum, err := hashFile(raw)
	if err != nil {
		return Image{}, err
	}
	img.Digest, img.Size = "sha256-"+sum, info.Size()
	img.Path = filepath.Join(s.dir(), img.Digest+".erofs")
	if err := os.Rename(raw, img.Path); err != nil {
		return Image{}, err
	}
	if err := s.writeJSON(work, img.Digest, img); err != nil {
		return Image{}, err
	}
	ref := struct {
		Digest string `json:"digest"`
	}{img.Digest}
	return img, s.writeJSON(work, img.Name, ref)
}

func (s *Store) writeJSON(work, name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	tmp := filepath.Join(work, name+".json")
	if err := os.WriteFile(tmp, append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(s.dir(), name+".json"))
}

func (s *Store) lock() (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(s.dir(), ".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { f.Close() }, nil
}

func haveTools(spec Spec) error {
	tools := []string{"dpkg-deb"}
	if len(spec.Packages) > 0 {
		tools = append(tools, "apt-get")
	}
	for _, name := range tools {
		if _, err := exec.LookPath(name); err != nil {
			return unavailable("an image cannot be built here: there is no "+name,
				"build it on Debian 12 and copy the cache folder's images/ here", err)
		}
	}
	return nil
}

func buildFailed(err error) error {
	if _, ours := errors.AsType[*sallyport.Error](err); ours {
		return err
	}
	return unavailable("the image could not be built: "+err.Error(),
		"check that apt-get has a source of Debian 12 (bookworm) and reaches it, then try again", err)
}
