package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
)

// A Listed is an image in a cache folder, under one of its names or, where
// Name is "", under none.
type Listed struct {
	Image
	LastUsed time.Time `json:"last_used,omitzero"`
	InUse    bool      `json:"in_use"`            // by a living sandbox host
	Problem  string    `json:"problem,omitempty"` // its description cannot be read
}

// List returns the images of a cache folder, sorted by name, without checking
// their bytes.
func List(cacheDir string) ([]Listed, error) { return NewStore(cacheDir).List() }

// List returns the images, those with a name first and sorted by it, without
// checking their bytes.
func (s *Store) List() ([]Listed, error) {
	names, digests, err := s.scan()
	if err != nil {
		return nil, unavailable("the images cannot be listed", "", err)
	}
	var out []Listed
	known := map[string]bool{}
	for name, ref := range names {
		known[ref.Digest] = true
		l := s.about(name, ref.Digest)
		l.From = cmp.Or(ref.From, l.From)
		out = append(out, l)
	}
	for _, digest := range digests {
		if !known[digest] {
			out = append(out, s.about("", digest))
		}
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := out[i], out[j]
		if (a.Name == "") != (b.Name == "") {
			return a.Name != ""
		}
		return a.Name+a.Digest < b.Name+b.Digest
	})
	return out, nil
}

// scan reads the cache folder: what each name stands for, and all digests of
// which there is any file.
func (s *Store) scan() (names map[string]named, digests []string, err error) {
	entries, err := os.ReadDir(s.dir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	names = map[string]named{}
	for _, e := range entries {
		base, ext, _ := strings.Cut(e.Name(), ".")
		if digestForm.MatchString(base) && (ext == "json" || ext == "erofs" || ext == "use") {
			digests = append(digests, base)
			continue
		}
		name, isJSON := strings.CutSuffix(e.Name(), ".json")
		if isJSON && nameForm.MatchString(name) {
			names[name], _ = s.lookup(name) // a damaged one stands for nothing
		}
	}
	return names, slices.Compact(digests), nil // ReadDir sorts
}

func (s *Store) about(name, digest string) Listed {
	if digest == "" {
		return Listed{Image: Image{Name: name}, Problem: "damaged: the name stands for no image"}
	}
	img, err := s.describe(digest)
	l := Listed{Image: img}
	if err == nil {
		_, err = os.Stat(img.Path)
	}
	if err != nil {
		l.Digest, l.Problem = digest, "damaged: "+err.Error()
	}
	l.Name = name
	if info, err := os.Stat(s.path(digest, useExt)); err == nil {
		l.LastUsed, l.InUse = info.ModTime(), s.inUse(digest)
	}
	return l
}

// useExt ends the name of an image's use file. Who runs something in the image
// holds a shared lock on it, which ends with the process, however that ends; its
// time is that of the last use.
const useExt = ".use"

// useStep is how exactly the last use is known.
const useStep = time.Minute

// Use finds and checks an image as Open does, and keeps it from being removed for
// as long as this process lives. Each run comes here, so that it reads no more
// than it must: of the Image, only Digest and Path are set.
func (s *Store) Use(nameOrDigest string) (Image, error) {
	digest, err := s.Digest(nameOrDigest)
	if err != nil {
		return Image{}, err
	}
	if err := s.hold(digest); err != nil {
		return Image{}, err
	}
	img := Image{Digest: digest, Path: s.path(digest, ".erofs")}
	return img, s.verify(img)
}

func (s *Store) hold(digest string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.held[digest]
	if f == nil || !same(f, s.path(digest, useExt)) {
		if _, err := os.Stat(s.path(digest, ".erofs")); err != nil {
			return missing(digest, err)
		}
		var err error
		if f, err = os.OpenFile(s.path(digest, useExt), os.O_RDWR|os.O_CREATE, 0o600); errors.Is(err, unix.EROFS) {
			return nil // nobody can remove it either
		} else if err != nil {
			return unavailable("image "+digest+" cannot be kept from being removed", "the cache folder must be writable for the sandbox host", err)
		}
		err = lockFile(f, unix.F_OFD_SETLK, unix.F_RDLCK)
		if err != nil || !same(f, s.path(digest, useExt)) {
			f.Close()
			return unavailable("image "+digest+" is being removed", rebuildHint, err)
		}
		if old := s.held[digest]; old != nil {
			old.Close()
		}
		s.held[digest] = f
		touch(f)
		return nil
	}
	if info, err := f.Stat(); err == nil && time.Since(info.ModTime()) > useStep {
		touch(f)
	}
	return nil
}

// Close gives up what Use holds.
func (s *Store) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for digest, f := range s.held {
		f.Close()
		delete(s.held, digest)
	}
}

func touch(f *os.File) { _ = unix.Futimes(int(f.Fd()), nil) } // only a list shows it

// same reports whether f is still the file of that name.
func same(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}

// exclude keeps everybody from using an image until free is called, or fails
// because somebody does.
func (s *Store) exclude(digest string) (free func(), err error) {
	f, err := os.OpenFile(s.path(digest, useExt), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return func() {}, err
	}
	if err := lockFile(f, unix.F_OFD_SETLK, unix.F_WRLCK); err != nil {
		f.Close()
		return func() {}, err
	}
	return func() { f.Close() }, nil
}

// inUse asks without locking, so that nobody is kept from using the image.
func (s *Store) inUse(digest string) bool {
	f, err := os.Open(s.path(digest, useExt))
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) // who may not look must not say no
	}
	defer f.Close()
	return lockFile(f, unix.F_OFD_GETLK, unix.F_WRLCK) != nil
}

// lockFile sets a lock on a whole file, without waiting, or asks whether it could.
// The lock belongs to the open file: it ends when that is closed.
func lockFile(f *os.File, command int, typ int16) error {
	l := unix.Flock_t{Type: typ}
	if err := unix.FcntlFlock(f.Fd(), command, &l); err != nil {
		return err
	}
	if command == unix.F_OFD_GETLK && l.Type != unix.F_UNLCK {
		return unix.EAGAIN
	}
	return nil
}

// Kept says why an image must stay, "" if it need not: because a configuration
// names it, say.
type Kept func(Listed) string

// Remove takes a name away, and the image with it unless it has another name; or
// an image, by its digest, with all its names. One that is in use or kept stays.
func (s *Store) Remove(ctx context.Context, nameOrDigest string, kept Kept, progress func(string)) error {
	return s.locked(ctx, progress, func(all []Listed) error {
		i := slices.IndexFunc(all, func(l Listed) bool { return l.Name == nameOrDigest || l.Digest == nameOrDigest })
		if i < 0 {
			return missing(nameOrDigest, fs.ErrNotExist)
		}
		digest := all[i].Digest
		whole := digest == nameOrDigest
		others := 0
		for _, l := range all {
			if l.Digest != digest {
				continue
			}
			if l.Name != nameOrDigest && !whole {
				others++
				continue
			}
			if why := kept(l); why != "" {
				return &sallyport.Error{Code: sallyport.Conflict, Step: sallyport.Execute,
					Message: fmt.Sprintf("image %s stays: %s", nameOrDigest, why), Hint: "change that first"}
			}
		}
		if others > 0 || digest == "" {
			return os.Remove(s.path(nameOrDigest, ".json"))
		}
		return s.drop(digest, all)
	})
}

// Prune removes images that have no name; with all, also those that nothing
// keeps and that are not the default. One that is in use stays. It tells what it
// removed.
func (s *Store) Prune(ctx context.Context, all bool, kept Kept, progress func(string)) (removed []Listed, err error) {
	err = s.locked(ctx, progress, func(images []Listed) error {
		stay := map[string]bool{}
		for _, l := range images {
			if l.Name != "" && (!all || l.Name == DefaultName) || l.InUse || l.Digest == "" || kept(l) != "" {
				stay[l.Digest] = true
			}
		}
		for _, l := range images {
			if stay[l.Digest] {
				continue
			}
			if err := s.drop(l.Digest, images); errors.Is(err, errInUse) {
				stay[l.Digest] = true
				continue
			} else if err != nil {
				return err
			}
			removed = append(removed, l)
		}
		return nil
	})
	return removed, err
}

// locked gives do the images while nobody builds or removes any.
func (s *Store) locked(ctx context.Context, progress func(string), do func([]Listed) error) error {
	if _, err := os.Stat(s.dir()); errors.Is(err, fs.ErrNotExist) {
		return do(nil)
	}
	unlock, err := s.lock(ctx, progress)
	if err != nil {
		return unavailable("the cache folder cannot be locked: "+err.Error(), "run the command as the user who owns it", err)
	}
	defer unlock()
	all, err := s.List()
	if err != nil {
		return err
	}
	return do(all)
}

var errInUse = errors.New("in use")

// drop deletes an image and its names, the names first: what remains of a
// removal that was cut short has no name, and the next prune finds it.
func (s *Store) drop(digest string, all []Listed) error {
	free, err := s.exclude(digest)
	if err != nil {
		return &sallyport.Error{Code: sallyport.Conflict, Step: sallyport.Execute, Err: errors.Join(errInUse, err),
			Message: "image " + digest + " is in use by a sandbox host", Hint: "stop `sallyport serve`, or keep the image"}
	}
	defer free()
	for _, l := range all {
		if l.Digest == digest && l.Name != "" {
			if err := os.Remove(s.path(l.Name, ".json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	for _, ext := range []string{".json", ".erofs", useExt} {
		if err := os.Remove(s.path(digest, ext)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
