package gvisor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Images finds images. (image)
type Images interface {
	// Find returns the image of a digest, or the default one for "default".
	Find(ref string) (Image, error)
}

// An Image is a read-only EROFS file.
type Image struct {
	Digest string // sha256 hex of the file, perhaps with a "sha256-" in front
	Path   string
}

// openImages holds images that were verified once. They stay open: a file
// replaced later under the same name is another inode, and is verified again.
type openImages struct {
	mu   sync.Mutex
	open map[string]*openImage // by digest
}

type openImage struct {
	file *os.File
	was  stamp
}

// A stamp tells whether a file is still as it was when it was hashed. Every write
// and every chmod moves the change time, which no call sets back.
type stamp struct {
	dev, ino, size uint64
	changed, wrote unix.Timespec
}

func stampOf(path string, fd int) (stamp, error) {
	var st unix.Stat_t
	var err error
	if fd < 0 {
		err = unix.Stat(path, &st)
	} else {
		err = unix.Fstat(fd, &st)
	}
	return stamp{uint64(st.Dev), st.Ino, uint64(st.Size), st.Ctim, st.Mtim}, err
}

// use returns an open, verified image. The caller must not close it.
func (o *openImages) use(img Image) (*os.File, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, err := stampOf(img.Path, -1)
	if err != nil {
		return nil, err
	}
	if have := o.open[img.Digest]; have != nil {
		if have.was == now {
			return have.file, nil
		}
		have.file.Close()
		delete(o.open, img.Digest)
	}
	f, err := os.Open(img.Path)
	if err != nil {
		return nil, err
	}
	was, err := verifyImage(f, img.Digest)
	if err != nil {
		f.Close()
		return nil, err
	}
	if o.open == nil {
		o.open = map[string]*openImage{}
	}
	o.open[img.Digest] = &openImage{f, was}
	return f, nil
}

func (o *openImages) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for d, i := range o.open {
		i.file.Close()
		delete(o.open, d)
	}
}

// verifyImage hashes an image, and tells as what: as it was before, so that a
// write meanwhile has it hashed again.
func verifyImage(f *os.File, digest string) (stamp, error) {
	info, err := f.Stat()
	if err != nil {
		return stamp{}, err
	}
	if !info.Mode().IsRegular() {
		return stamp{}, errors.New("not a regular file")
	}
	was, err := stampOf("", int(f.Fd()))
	if err != nil {
		return stamp{}, err
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return stamp{}, err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != digest && "sha256-"+got != digest {
		return stamp{}, fmt.Errorf("the image's content is %s, not %s", got, digest)
	}
	return was, nil
}
