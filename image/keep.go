package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/hashed"
)

// building begins the names of the folders of builds that are not done.
const building = ".build-"

// make has fill make a tree and keeps it as the image of that name. A build that
// fails, is interrupted or killed leaves nothing that counts: an image appears
// whole or not at all, and the next build sweeps up.
func (s *Store) make(ctx context.Context, name string, maxSize int64, progress func(string), fill func(t *tree, work string) (Image, error)) (Image, error) {
	if !nameForm.MatchString(name) || digestForm.MatchString(name) {
		return Image{}, &sallyport.Error{Code: sallyport.Invalid, Step: sallyport.Execute,
			Message: fmt.Sprintf("%.80q is no name for an image", name), Hint: "use [a-z][a-z0-9._-]*, at most 63 characters"}
	}
	abs, err := filepath.Abs(s.cacheDir)
	if err != nil {
		return Image{}, err
	}
	s = NewStore(abs) // dpkg-deb and apt-get need absolute paths
	if err := os.MkdirAll(s.dir(), 0o755); err != nil {
		return Image{}, err
	}
	unlock, err := s.lock(ctx, progress)
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	work, err := os.MkdirTemp(s.dir(), building)
	if err != nil {
		return Image{}, err
	}
	defer os.RemoveAll(work)
	spool, err := os.Create(filepath.Join(work, "spool"))
	if err != nil {
		return Image{}, err
	}
	defer spool.Close()
	t := newTree(spool, maxSize)
	img, err := fill(t, work)
	if err != nil {
		return Image{}, err
	}
	img.Name = name
	if img.Digest != "" { // it was here already
		return img, s.giveName(work, img)
	}
	if t.dropped > 0 {
		progress(fmt.Sprintf("left out devices, FIFOs and sockets: %d", t.dropped))
	}
	if ctx.Err() != nil {
		return Image{}, ctx.Err()
	}
	progress(fmt.Sprintf("writing the image: %d entries, %d MB", t.entries, t.end/1e6))
	return s.keep(t, work, img)
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
	sum, err := hashed.File(raw)
	if err != nil {
		return Image{}, err
	}
	img.Digest, img.Size = "sha256-"+sum, info.Size()
	img.Path = s.path(img.Digest, ".erofs")
	if s.verify(img) != nil { // else it is here, perhaps in use
		if err := os.Rename(raw, img.Path); err != nil {
			return Image{}, err
		}
	}
	if err := s.writeJSON(work, img.Digest, img); err != nil {
		return Image{}, err
	}
	return img, s.giveName(work, img)
}

func (s *Store) giveName(work string, img Image) error {
	return s.writeJSON(work, img.Name, named{img.Digest, img.From})
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
	return os.Rename(tmp, s.path(name, ".json"))
}

// lock waits until nobody else builds or removes images in the cache folder, and
// sweeps up after those that were killed.
func (s *Store) lock(ctx context.Context, progress func(string)) (unlock func(), err error) {
	f, err := os.OpenFile(s.path(".lock", ""), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	const poll = 100 * time.Millisecond
	for n := 0; ; n++ {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(err, f.Close())
		}
		if n == 1 {
			progress("waiting: another build or removal is going on in " + s.dir())
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close())
		}
	}
	left, _ := filepath.Glob(s.path(building+"*", "")) // the pattern is well formed
	for _, dir := range left {
		if err := os.RemoveAll(dir); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return func() { f.Close() }, nil
}

func (s *Store) path(name, ext string) string { return filepath.Join(s.dir(), name+ext) }
