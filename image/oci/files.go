package oci

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"golang.org/x/sys/unix"
)

// maxMembers bounds the files of an archive that are remembered.
const maxMembers = 10_000

// Open finds the image in an OCI layout, a folder or a tar file, or in what
// `docker save` wrote. Where it holds several, ref names one: by its tag, or by
// the digest of its manifest.
func Open(ctx context.Context, file, ref string) (*Image, error) {
	b, err := openFiles(file)
	if err != nil {
		return nil, refuse(file, err)
	}
	img, err := b.image(ctx, ref)
	if err != nil {
		return nil, errors.Join(refuse(file, err), b.Close())
	}
	img.From = fmt.Sprintf("%s %s", filepath.Base(file), img.Digest)
	return img, nil
}

// files is a folder or an archive with named members.
type files struct {
	root    *os.Root // of a folder
	archive *os.File
	members map[string]span
}

// A span is where a member lies in an archive.
type span struct{ off, size int64 }

func openFiles(file string) (*files, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		f.Close()
		root, err := os.OpenRoot(file)
		return &files{root: root}, err
	}
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("neither a folder nor a file")
	}
	b := &files{archive: f, members: map[string]span{}}
	if err == nil {
		err = b.scan()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return b, nil
}

// scan notes where each member of the archive lies. Links and names that come
// twice are not needed by any archive of an image, and could make it look
// different to others.
func (b *files) scan() error {
	var magic [4]byte
	if _, err := b.archive.ReadAt(magic[:], 0); err == nil && (bytes.HasPrefix(magic[:], []byte{0x1f, 0x8b}) || bytes.Equal(magic[:], []byte{0x28, 0xb5, 0x2f, 0xfd})) {
		return errors.New("the archive is compressed: unpack it first, with gunzip or zstd -d")
	}
	at := &counter{f: b.archive}
	tr := tar.NewReader(at)
	for n := 0; ; n++ {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("not a tar archive, or a damaged one: %w", err)
		}
		if n > maxMembers {
			return fmt.Errorf("the archive has more than %d members, so it is not an image's", maxMembers)
		}
		name := path.Clean(h.Name)
		switch h.Typeflag {
		case tar.TypeDir, tar.TypeXGlobalHeader, tar.TypeSymlink: // docker save has links from old names to blobs
			continue
		case tar.TypeReg:
		default:
			return fmt.Errorf("the archive's member %.200q is neither a file nor a folder", h.Name)
		}
		if _, twice := b.members[name]; twice {
			return fmt.Errorf("the archive has %.200q twice", name)
		}
		for key := range h.PAXRecords {
			if strings.HasPrefix(key, "GNU.sparse.") {
				return fmt.Errorf("the archive's member %.200q is sparse", name)
			}
		}
		b.members[name] = span{at.n, h.Size}
	}
}

// A counter knows how far an archive was read, and lets tar skip what it holds.
type counter struct {
	f *os.File
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.f.Read(p)
	c.n += int64(n)
	return n, err
}

func (c *counter) Seek(off int64, whence int) (int64, error) {
	n, err := c.f.Seek(off, whence)
	if err == nil {
		c.n = n
	}
	return n, err
}

func (b *files) Close() error {
	if b.root != nil {
		return b.root.Close()
	}
	return b.archive.Close()
}

func (b *files) member(name string) (io.ReadCloser, int64, error) {
	if b.root == nil {
		s, ok := b.members[path.Clean(name)]
		if !ok {
			return nil, 0, fmt.Errorf("%.200s: %w", name, fs.ErrNotExist)
		}
		return io.NopCloser(io.NewSectionReader(b.archive, s.off, s.size)), s.size, nil
	}
	f, err := b.root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|unix.O_NONBLOCK, 0) // no link leads out of the folder
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%.200s is not a file", name)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// open implements blobs. In a docker-save archive a descriptor names a member.
func (b *files) open(_ context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	name := d.Annotations[memberName]
	if name == "" {
		name = path.Join("blobs", d.Digest.Algorithm, d.Digest.Hex)
	}
	r, size, err := b.member(name)
	if err == nil && d.Size >= 0 && size != d.Size {
		return nil, errors.Join(fmt.Errorf("%.200s has %d bytes, but should have %d", name, size, d.Size), r.Close())
	}
	return r, err
}

func (b *files) document(name string, into any) error {
	r, _, err := b.member(name)
	if err != nil {
		return err
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	if err != nil {
		return err
	}
	if len(text) > maxDocument {
		return fmt.Errorf("%s is longer than %d bytes", name, maxDocument)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (b *files) image(ctx context.Context, ref string) (*Image, error) {
	var index v1.IndexManifest
	err := b.document("index.json", &index)
	if err == nil {
		d, err := pick(index.Manifests, ref)
		if err != nil {
			return nil, err
		}
		return find(ctx, b, d)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var saved []savedImage
	if err := b.document("manifest.json", &saved); errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("there is neither index.json (an OCI layout) nor manifest.json (docker save)")
	} else if err != nil {
		return nil, err
	}
	return b.saved(saved, ref)
}

// refName is the annotation that names an image of a layout.
const refName = "org.opencontainers.image.ref.name"

// pick takes the image that ref names, or the only one.
func pick(all []v1.Descriptor, ref string) (v1.Descriptor, error) {
	var names []string
	for _, d := range all {
		name := d.Annotations[refName]
		if ref != "" && (name == ref || d.Digest.String() == ref) || ref == "" && len(all) == 1 {
			return d, nil
		}
		names = append(names, strings.TrimSpace(name+" "+d.Digest.String()))
	}
	return v1.Descriptor{}, several(names, ref)
}

func several(names []string, ref string) error {
	list := strings.Join(names[:min(20, len(names))], ", ")
	if ref == "" {
		return fmt.Errorf("it holds %d images; name one with --ref: %s", len(names), list)
	}
	return fmt.Errorf("there is no image %.80q; there are: %s", ref, list)
}

// A savedImage is an entry of the manifest.json of `docker save`. It gives no
// digests of stored bytes; the configuration, named by its own digest, gives
// those of the unpacked ones.
type savedImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// memberName marks a descriptor of ours whose bytes are a named member.
const memberName = "dev.sallyport.member"

func (b *files) saved(all []savedImage, ref string) (*Image, error) {
	var names []string
	for _, s := range all {
		if ref != "" && !slices.Contains(s.RepoTags, ref) || ref == "" && len(all) != 1 {
			names = append(names, strings.Join(s.RepoTags, " "))
			continue
		}
		r, size, err := b.member(s.Config)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		if size > maxDocument {
			return nil, fmt.Errorf("%.200s is longer than %d bytes", s.Config, maxDocument)
		}
		config, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		img := &Image{Digest: hashOf(config), blobs: b}
		claimed := strings.TrimPrefix(strings.TrimSuffix(path.Base(s.Config), ".json"), "sha256:")
		if claimed != img.Digest.Hex {
			return nil, fmt.Errorf("the configuration %.80s is %s", claimed, img.Digest)
		}
		for _, name := range s.Layers {
			img.layers = append(img.layers, layer{stored: v1.Descriptor{Size: -1, Annotations: map[string]string{memberName: name}}})
		}
		return img, img.identify(config)
	}
	return nil, several(names, ref)
}
