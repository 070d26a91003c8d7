package gvisor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
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
	info os.FileInfo
}

// use returns an open, verified image. The caller must not close it.
func (o *openImages) use(img Image) (*os.File, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, err := os.Stat(img.Path)
	if err != nil {
		return nil, err
	}
	if have := o.open[img.Digest]; have != nil {
		if os.SameFile(have.info, now) && have.info.Size() == now.Size() && have.info.ModTime().Equal(now.ModTime()) {
			return have.file, nil
		}
		have.file.Close()
		delete(o.open, img.Digest)
	}
	f, err := os.Open(img.Path)
	if err != nil {
		return nil, err
	}
	info, err := verifyImage(f, img.Digest)
	if err != nil {
		f.Close()
		return nil, err
	}
	if o.open == nil {
		o.open = map[string]*openImage{}
	}
	o.open[img.Digest] = &openImage{f, info}
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

func verifyImage(f *os.File, digest string) (os.FileInfo, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return nil, err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != digest && "sha256-"+got != digest {
		return nil, fmt.Errorf("the image's content is %s, not %s", got, digest)
	}
	return info, nil
}
