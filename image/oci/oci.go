// Package oci finds the layers of OCI images: in a registry, in an OCI layout (a
// folder or a tar file), or in what `docker save` writes. Everything is checked
// against the digest that led to it, from the reference or the index down to the
// unpacked bytes of each layer; nothing is written to a disk and nothing runs.
package oci

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/image"
)

const (
	maxDocument = 4 << 20 // bytes of an index, a manifest or a configuration
	maxLayers   = 256
	maxNesting  = 3 // of indexes
	maxWindow   = 128 << 20
)

// An Image is found but not yet unpacked.
type Image struct {
	From   string  // for people
	Digest v1.Hash // of the manifest; of the configuration in a docker-save archive
	layers []layer
	blobs  blobs
}

// A layer is known by its unpacked bytes and, but in a docker-save archive, by
// its stored ones.
type layer struct {
	stored v1.Descriptor
	diffID v1.Hash
}

// blobs is where an image lies. What it gives is not checked.
type blobs interface {
	open(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error)
	Close() error
}

// Close frees what the image was found in.
func (i *Image) Close() error { return i.blobs.Close() }

// Layers are the image as image.BuildLayers takes it.
func (i *Image) Layers(name string, maxSize int64) image.Layers {
	return image.Layers{
		Name: name, From: i.From, ID: i.Digest.String(), MaxSize: maxSize,
		Count: len(i.layers), Open: i.openLayer,
	}
}

// openLayer unpacks a layer. Close says whether it was the one that was named.
func (i *Image) openLayer(ctx context.Context, n int) (io.ReadCloser, error) {
	l := i.layers[n]
	raw, err := i.blobs.open(ctx, l.stored)
	if err != nil {
		return nil, err
	}
	stored := &summed{r: raw, h: sha256.New(), left: l.stored.Size}
	if l.stored.Size < 0 {
		stored.left = 1 << 50 // the unpacked bytes are bounded and checked
	}
	plain, err := unpack(stored)
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	return &checked{
		summed: summed{r: plain, h: sha256.New(), left: 1 << 50},
		layer:  l, stored: stored, plain: plain, raw: raw,
	}, nil
}

// unpack finds the compression by the first bytes, not by what is claimed: what
// comes out is checked.
func unpack(r io.Reader) (io.ReadCloser, error) {
	var magic [4]byte
	n, err := io.ReadFull(r, magic[:])
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("it is empty or cannot be read: %w", err)
	}
	r = io.MultiReader(bytes.NewReader(magic[:n]), r)
	switch {
	case bytes.HasPrefix(magic[:n], []byte{0x1f, 0x8b}):
		return gzip.NewReader(r)
	case bytes.Equal(magic[:n], []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	}
	return io.NopCloser(r), nil
}

// A checked reader is a layer's unpacked bytes.
type checked struct {
	summed
	layer  layer
	stored *summed
	plain  io.Closer
	raw    io.Closer
}

// Close must come after everything was read.
func (c *checked) Close() error {
	_, err := io.Copy(io.Discard, io.LimitReader(c.stored, maxDocument)) // what the compression leaves behind
	if err = errors.Join(err, c.plain.Close(), c.raw.Close()); err != nil {
		return err
	}
	if got := c.sum(); got != c.layer.diffID {
		return fmt.Errorf("it unpacks to %s, but the image's configuration says %s", got, c.layer.diffID)
	}
	if c.layer.stored.Size < 0 {
		return nil
	}
	if got := c.stored.sum(); got != c.layer.stored.Digest || c.stored.left != 0 {
		return fmt.Errorf("it is %s, but the manifest says %s", got, c.layer.stored.Digest)
	}
	return nil
}

// A summed reader hashes what is read, and fails after left bytes.
type summed struct {
	r    io.Reader
	h    hash.Hash
	left int64
}

func (s *summed) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if s.left -= int64(n); s.left < 0 {
		return 0, errors.New("it is longer than the manifest says")
	}
	s.h.Write(p[:n])
	return n, err
}

func (s *summed) sum() v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(s.h.Sum(nil))}
}

// read returns a small document, whole and checked.
func read(ctx context.Context, b blobs, d v1.Descriptor) ([]byte, error) {
	if d.Digest.Algorithm != "sha256" {
		return nil, fmt.Errorf("%.80s: only sha256 is known here", d.Digest)
	}
	if d.Size < 0 || d.Size > maxDocument {
		return nil, fmt.Errorf("%s has %d bytes, which cannot be: at most %d", d.Digest, d.Size, maxDocument)
	}
	r, err := b.open(ctx, d)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	if err != nil {
		return nil, err
	}
	if got := hashOf(text); got != d.Digest || int64(len(text)) != d.Size {
		return nil, fmt.Errorf("what is stored as %s is %s", d.Digest, got)
	}
	return text, nil
}

func hashOf(b []byte) v1.Hash {
	sum := sha256.Sum256(b)
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}
}

// find follows a descriptor to the image for this machine.
func find(ctx context.Context, b blobs, d v1.Descriptor) (*Image, error) {
	for range maxNesting {
		text, err := read(ctx, b, d)
		if err != nil {
			return nil, err
		}
		kind, err := kindOf(text, d.MediaType)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.Digest, err)
		}
		if kind == isManifest {
			return fromManifest(ctx, b, d.Digest, text)
		}
		if d, err = choose(text); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("indexes within indexes, more than %d", maxNesting)
}

type kind int

const (
	isIndex kind = iota
	isManifest
)

// kindOf tells an index from a manifest, and refuses what could be read as both.
func kindOf(text []byte, claimed types.MediaType) (kind, error) {
	var doc struct {
		MediaType types.MediaType `json:"mediaType"`
		Manifests json.RawMessage `json:"manifests"`
		Layers    json.RawMessage `json:"layers"`
		Config    json.RawMessage `json:"config"`
		FSLayers  json.RawMessage `json:"fsLayers"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return 0, fmt.Errorf("not a manifest: %w", err)
	}
	m, i := doc.Layers != nil || doc.Config != nil, doc.Manifests != nil
	switch {
	case doc.FSLayers != nil:
		return 0, errors.New("a manifest of schema 1, which is long obsolete; push the image again with a newer client")
	case m == i:
		return 0, errors.New("neither an image nor an index, or both")
	case doc.MediaType != "" && claimed != "" && doc.MediaType != claimed:
		return 0, fmt.Errorf("it says that it is %.80q, and what led to it says %.80q", doc.MediaType, claimed)
	case i:
		return isIndex, nil
	}
	return isManifest, nil
}

// choose takes the one image of an index that is for this machine.
func choose(text []byte) (v1.Descriptor, error) {
	index, err := v1.ParseIndexManifest(bytes.NewReader(text))
	if err != nil {
		return v1.Descriptor{}, err
	}
	var others []string
	for _, d := range index.Manifests {
		p := d.Platform
		if p == nil && len(index.Manifests) == 1 || p != nil && p.OS == "linux" && p.Architecture == runtime.GOARCH {
			return d, nil
		}
		if p != nil && len(others) < 20 {
			others = append(others, p.String())
		}
	}
	return v1.Descriptor{}, fmt.Errorf("there is no image for linux/%s among those for %s", runtime.GOARCH, strings.Join(others, ", "))
}

func fromManifest(ctx context.Context, b blobs, digest v1.Hash, text []byte) (*Image, error) {
	m, err := v1.ParseManifest(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	if !m.Config.MediaType.IsConfig() {
		return nil, fmt.Errorf("it holds %.80q, not the configuration of an image to run", m.Config.MediaType)
	}
	config, err := read(ctx, b, m.Config)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	img := &Image{Digest: digest, blobs: b}
	for _, d := range m.Layers {
		if !d.MediaType.IsLayer() {
			return nil, fmt.Errorf("a layer of type %.80q is not known here", d.MediaType)
		}
		if d.Digest.Algorithm != "sha256" || d.Size < 0 {
			return nil, fmt.Errorf("layer %.80s has no sha256 or no size", d.Digest)
		}
		img.layers = append(img.layers, layer{stored: d})
	}
	return img, img.identify(config)
}

// identify takes from the configuration what the layers must unpack to.
func (i *Image) identify(config []byte) error {
	c, err := v1.ParseConfigFile(bytes.NewReader(config))
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	switch {
	case c.OS != "" && c.OS != "linux" || c.Architecture != "" && c.Architecture != runtime.GOARCH:
		return fmt.Errorf("the image is for %.40s/%.40s, and this machine is linux/%s", c.OS, c.Architecture, runtime.GOARCH)
	case len(i.layers) > maxLayers:
		return fmt.Errorf("%d layers; at most %d are taken", len(i.layers), maxLayers)
	case len(i.layers) == 0 || len(c.RootFS.DiffIDs) != len(i.layers):
		return fmt.Errorf("%d layers, but the configuration lists %d", len(i.layers), len(c.RootFS.DiffIDs))
	}
	for n, id := range c.RootFS.DiffIDs {
		if id.Algorithm != "sha256" {
			return fmt.Errorf("%.80s: only sha256 is known here", id)
		}
		i.layers[n].diffID = id
	}
	return nil
}

// refuse says why an image cannot be taken.
func refuse(from string, err error) error {
	if _, ours := errors.AsType[*sallyport.Error](err); ours || err == nil {
		return err
	}
	return &sallyport.Error{Code: sallyport.Unavailable, Step: sallyport.Execute, Err: err,
		Message: from + ": " + err.Error(), Hint: "nothing of it was kept; is it the image that you mean?"}
}
