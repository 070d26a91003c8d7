// Package verified holds images that were hashed once, so that not every sandbox
// has its own read again.
package verified

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/hashed"
	"sallyport.dev/sallyport/tier"
)

// Images are held open, for use at the same time: a file that is replaced later under the same name is another inode, and is verified again.
type Images struct {
	mu   sync.Mutex
	open map[string]*image // guarded by mu; by digest
}

type image struct {
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

// Find returns the file of an image, open and hashed, and its digest. The caller must
// not close it.
func (o *Images) Find(in tier.Images, ref string) (f *os.File, digest string, err error) {
	img, err := in.Find(ref)
	if err == nil {
		if f, err = o.Use(img.Path, img.Digest); err == nil {
			return f, img.Digest, nil
		}
	}
	e := sallyport.Error{
		Code: sallyport.Unavailable, Message: fmt.Sprintf("image %.80q failed its check", ref),
		Hint: "rebuild it with `make build`: the file was damaged or replaced",
	}
	if known, ok := errors.AsType[*sallyport.Error](err); ok {
		e = *known
	}
	e.Step, e.Err = sallyport.Execute, errors.Join(sallyport.ErrNotExecuted, err)
	return nil, "", &e
}

// Use returns the file at path, open, whose sha256 in hex is digest, perhaps with
// "sha256-" in front. The caller must not close it.
func (o *Images) Use(path, digest string) (*os.File, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, err := stampOf(path, -1)
	if err != nil {
		return nil, err
	}
	if have := o.open[digest]; have != nil {
		if have.was == now {
			return have.file, nil
		}
		have.file.Close()
		delete(o.open, digest)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	was, err := verify(f, digest)
	if err != nil {
		f.Close()
		return nil, err
	}
	if o.open == nil {
		o.open = map[string]*image{}
	}
	o.open[digest] = &image{f, was}
	return f, nil
}

// Close closes them all.
func (o *Images) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for d, i := range o.open {
		i.file.Close()
		delete(o.open, d)
	}
}

// verify hashes an image, and tells as what: as it was before, so that a
// write meanwhile has it hashed again.
func verify(f *os.File, digest string) (stamp, error) {
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
	got, err := hashed.Reader(f)
	if err != nil {
		return stamp{}, err
	}
	if got != digest && "sha256-"+got != digest {
		return stamp{}, fmt.Errorf("the image's content is %s, not %s", got, digest)
	}
	return was, nil
}
