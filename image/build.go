package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/image/debian"
)

// Build makes an image and gives it spec.Name in the cache folder. It tells
// progress what it is doing, one line at a time. run may be nil: see Store.Build.
func Build(ctx context.Context, cacheDir string, spec Spec, run Runner, progress func(string)) (Image, error) {
	return NewStore(cacheDir).Build(ctx, spec, run, progress)
}

// Build makes an image and gives it spec.Name. It needs apt-get with a source of
// spec.Release (unless spec.Packages is empty) and dpkg-deb, but not root. One
// build at a time runs in a cache folder; others wait. run makes the bytecode of
// its Python modules; where it cannot, or is nil, the image has none, and is
// another one.
func (s *Store) Build(ctx context.Context, spec Spec, run Runner, progress func(string)) (Image, error) {
	if err := haveTools(spec); err != nil {
		return Image{}, err
	}
	img, err := s.make(ctx, spec.Name, spec.MaxSize, progress, func(t *tree, work string) (Image, error) {
		archives, err := fetch(ctx, spec, work, progress)
		if err != nil {
			return Image{}, err
		}
		progress(fmt.Sprintf("reading %d packages", len(archives)))
		img := Image{Recipe: spec.digest(), From: fromPackages}
		for _, a := range archives {
			if err := a.Walk(ctx, t.addEntry); err != nil {
				return Image{}, fmt.Errorf("package %s: %w", a.Name, err)
			}
			img.Packages = append(img.Packages, a.Package)
		}
		if err := t.complete(); err != nil || run == nil {
			return img, err
		}
		progress("compiling Python modules")
		bytecode, err := t.compile(ctx, work, run)
		if err != nil {
			progress("without bytecode, so that first imports take longer: " + err.Error())
		}
		return img, errors.Join(ctx.Err(), t.addBytecode(bytecode))
	})
	return img, buildFailed(ctx, err, "check that apt-get has a source of Debian 12 (bookworm) and reaches it, then try again")
}

// fetch returns the archives whose contents make the image, checked and in the
// order in which they are added.
func fetch(ctx context.Context, spec Spec, work string, progress func(string)) ([]debian.Archive, error) {
	var archives []debian.Archive
	if len(spec.Packages) > 0 {
		var err error
		if archives, err = fetchPackages(ctx, spec, work, progress); err != nil {
			return nil, err
		}
	}
	for _, file := range spec.Debs {
		a, err := debian.Describe(ctx, file)
		if err != nil {
			return nil, err
		}
		archives = append(archives, a)
	}
	return archives, nil
}

func fetchPackages(ctx context.Context, spec Spec, work string, progress func(string)) ([]debian.Archive, error) {
	source, err := debian.Open(ctx, filepath.Join(work, "apt"), spec.Release, progress)
	if err != nil {
		return nil, err
	}
	all, err := source.Fetch(ctx, spec.Packages)
	if err != nil {
		return nil, err
	}
	wanted := slices.DeleteFunc(all, func(x debian.Archive) bool { return slices.Contains(spec.Exclude, x.Name) })
	slices.SortFunc(wanted, func(x, y debian.Archive) int { return cmp.Compare(x.Name, y.Name) })
	for _, x := range wanted {
		if err := x.Check(); err != nil {
			return nil, err
		}
	}
	return wanted, nil
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

func buildFailed(ctx context.Context, err error, hint string) error {
	if err != nil && ctx.Err() != nil {
		return &sallyport.Error{Code: sallyport.Canceled, Step: sallyport.Execute, Err: ctx.Err(),
			Message: "the build was interrupted", Hint: "nothing of it was kept; start it again"}
	}
	if _, ours := errors.AsType[*sallyport.Error](err); ours || err == nil {
		return err
	}
	return unavailable("the image could not be built: "+err.Error(), hint, err)
}
