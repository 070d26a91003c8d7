// Package image makes and opens the root file systems of sandboxes: read-only,
// content-addressed EROFS images, built from the contents of .deb packages and
// never from the live file system or its configuration; from the layers of an
// OCI image; or from a folder.
//
// An image is named by the sha256 of its bytes. Nothing of a package runs while
// it is built, but for its Python, in a sandbox (bytecode.go): contents are read as
// data, and what maintainer scripts would have
// made is made here, the same each time. The same input gives the same digest.
package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/hashed"
	"sallyport.dev/sallyport/image/debian"
)

// A Package is one Debian package whose contents are in an image.
type Package = debian.Package

// An Image is a root file system for sandboxes. The bytes at Path had Digest
// when it was opened.
type Image struct {
	Name     string    `json:"name"`
	Digest   string    `json:"digest"` // "sha256-" and 64 hex digits
	Size     int64     `json:"size"`   // bytes
	From     string    `json:"from"`   // what it was made of, for people
	Recipe   string    `json:"recipe"` // sha256 hex of what it was made of, as far as that is known beforehand
	Packages []Package `json:"packages,omitempty"`
	Path     string    `json:"-"` // of the EROFS file, absolute
}

const fromPackages = "Debian packages"

// DefaultName is the name of the image that tools use unless they say otherwise.
const DefaultName = "default"

var (
	digestForm = regexp.MustCompile(`^sha256-[0-9a-f]{64}$`)
	nameForm   = regexp.MustCompile(`^[a-z][a-z0-9._-]{0,62}$`)
)

// CacheDir returns the folder for what can be made again: $SALLYPORT_CACHE, else
// /var/cache/sallyport for root, else ~/.cache/sallyport. Images are below it in
// images/.
func CacheDir(getenv func(string) string, uid int) string {
	switch {
	case getenv("SALLYPORT_CACHE") != "":
		return getenv("SALLYPORT_CACHE")
	case uid == 0:
		return "/var/cache/sallyport"
	default:
		return filepath.Join(getenv("HOME"), ".cache", "sallyport")
	}
}

// A Store is the images of one cache folder. It remembers which files it has
// hashed, and hashes again whatever changed since.
type Store struct {
	cacheDir string

	mu       sync.Mutex
	verified map[string]stamp    // by digest
	held     map[string]*os.File // use files of images in use, by digest
}

// A stamp tells whether a file is still the one that was hashed.
type stamp struct {
	dev, ino    uint64
	size        int64
	mtime, ctim syscall.Timespec
}

// NewStore returns the store of a cache folder, which need not exist yet.
func NewStore(cacheDir string) *Store {
	return &Store{cacheDir: cacheDir, verified: map[string]stamp{}, held: map[string]*os.File{}}
}

// Open finds an image by name or digest and checks its bytes. It hashes the whole
// file; a Store does so only once.
func Open(cacheDir, nameOrDigest string) (Image, error) {
	return NewStore(cacheDir).Open(nameOrDigest)
}

func (s *Store) dir() string { return filepath.Join(s.cacheDir, "images") }

// Open finds an image by name or digest and checks that its bytes still have
// its digest. It fails with code NotFound where there is none, and with
// Unavailable where the file is not what its name says, or could be changed by
// somebody else than root and us.
func (s *Store) Open(nameOrDigest string) (Image, error) {
	digest, err := s.Digest(nameOrDigest)
	if err != nil {
		return Image{}, err
	}
	img, err := s.describe(digest)
	if err != nil {
		return Image{}, err
	}
	if err := s.verify(img); err != nil {
		return Image{}, err
	}
	return img, nil
}

// Digest tells which image a name stands for, without checking its bytes.
func (s *Store) Digest(nameOrDigest string) (string, error) {
	digest := nameOrDigest
	if !digestForm.MatchString(digest) {
		ref, err := s.lookup(nameOrDigest)
		if err != nil {
			return "", err
		}
		digest = ref.Digest
	}
	if _, err := os.Stat(s.path(digest, ".erofs")); err != nil {
		return "", missing(nameOrDigest, err)
	}
	return digest, nil
}

// A named is what NAME.json says: which image, and what it was made of when it got
// the name; the same bytes may have been made twice, of different things.
type named struct {
	Digest string `json:"digest"`
	From   string `json:"from,omitempty"`
}

func (s *Store) lookup(name string) (ref named, err error) {
	if !nameForm.MatchString(name) {
		return ref, &sallyport.Error{Code: sallyport.Invalid, Step: sallyport.Execute,
			Message: fmt.Sprintf("%q is neither the name nor the digest of an image", name),
			Hint:    "a name is [a-z][a-z0-9._-]*, a digest is sha256- and 64 hex digits"}
	}
	if err := readJSON(filepath.Join(s.dir(), name+".json"), &ref); err != nil {
		return named{}, missing(name, err)
	}
	if !digestForm.MatchString(ref.Digest) {
		return named{}, unavailable(fmt.Sprintf("image %s: its name file is damaged", name), rebuildHint, nil)
	}
	return ref, nil
}

func (s *Store) describe(digest string) (Image, error) {
	var img Image
	if err := readJSON(filepath.Join(s.dir(), digest+".json"), &img); err != nil {
		return Image{}, missing(digest, err)
	}
	if img.From == "" && len(img.Packages) > 0 {
		img.From = fromPackages // a description of before this was kept
	}
	img.Digest = digest
	img.Path = filepath.Join(s.dir(), digest+".erofs")
	return img, nil
}

// verify hashes the file, unless this very file was hashed before.
func (s *Store) verify(img Image) error {
	f, err := os.Open(img.Path)
	if err != nil {
		return missing(img.Digest, err)
	}
	defer f.Close()
	now, err := stampOf(f)
	if err != nil {
		return unavailable("image "+img.Digest+" cannot be trusted", rebuildHint, err)
	}
	s.mu.Lock()
	seen, ok := s.verified[img.Digest]
	s.mu.Unlock()
	if ok && seen == now {
		return nil
	}
	sum, err := hashed.Reader(f)
	if err != nil {
		return unavailable("image "+img.Digest+" cannot be read", rebuildHint, err)
	}
	after, err := stampOf(f)
	if got := "sha256-" + sum; err != nil || got != img.Digest || after != now {
		return unavailable("image "+img.Digest+" was altered: its bytes are "+got, rebuildHint, err)
	}
	s.mu.Lock()
	s.verified[img.Digest] = now
	s.mu.Unlock()
	return nil
}

// stampOf refuses a file that others could write.
func stampOf(f *os.File) (stamp, error) {
	info, err := f.Stat()
	if err != nil {
		return stamp{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !info.Mode().IsRegular():
		return stamp{}, fmt.Errorf("%s is not a regular file", f.Name())
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return stamp{}, fmt.Errorf("%s belongs to uid %d", f.Name(), st.Uid)
	case info.Mode().Perm()&0o022 != 0:
		return stamp{}, fmt.Errorf("%s can be written by others (%v)", f.Name(), info.Mode().Perm())
	}
	return stamp{dev: uint64(st.Dev), ino: st.Ino, size: st.Size, mtime: st.Mtim, ctim: st.Ctim}, nil
}

const rebuildHint = "build it again: sallyport sandbox build"

func missing(ref string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return unavailable("image "+ref+" cannot be read", rebuildHint, err)
	}
	return &sallyport.Error{Code: sallyport.NotFound, Step: sallyport.Execute,
		Message: "there is no image " + ref, Hint: "sallyport sandbox images lists them; sallyport sandbox build makes one", Err: err}
}

func unavailable(message, hint string, err error) error {
	return &sallyport.Error{Code: sallyport.Unavailable, Step: sallyport.Execute, Message: message, Hint: hint, Err: err}
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}
