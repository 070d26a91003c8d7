package oci

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"sallyport.dev/sallyport"
)

// A Module is an artifact that holds one WebAssembly module.
type Module struct {
	Ref  string // REPOSITORY@sha256:HEX of the manifest
	Code []byte
}

// The media types under which registries hold modules: those of the CNCF's layout
// (application/wasm) and of wasm-to-oci.
var (
	moduleConfigs = map[types.MediaType]bool{
		"application/vnd.wasm.config.v0+json": true, "application/vnd.wasm.config.v1+json": true,
		"application/vnd.oci.empty.v1+json": true, "application/vnd.unknown.config.v1+json": true, // what generic clients write
	}
	moduleLayers = map[types.MediaType]bool{
		"application/wasm": true, "application/vnd.wasm.content.layer.v1+wasm": true, "application/vnd.module.wasm.content.layer.v1+wasm": true,
	}
)

// PullModule finds the module that a reference names, as Pull finds images.
func PullModule(ctx context.Context, ref string, takeTag bool) (Module, error) {
	b, digest, err := locate(ctx, ref, takeTag)
	if err != nil {
		return Module{}, err
	}
	code, err := moduleOf(ctx, b, b.descriptor())
	if err != nil {
		return Module{}, refuse(ref, err)
	}
	return Module{digest.String(), code}, nil
}

// moduleOf reads the one layer of an artifact.
func moduleOf(ctx context.Context, b blobs, d v1.Descriptor) ([]byte, error) {
	text, err := read(ctx, b, d)
	if err != nil {
		return nil, err
	}
	if k, err := kindOf(text, d.MediaType); err != nil || k != isManifest {
		return nil, errors.Join(err, errors.New("it is no manifest of an artifact; name the one of the module by its digest"))
	}
	m, err := v1.ParseManifest(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	switch {
	case !moduleConfigs[m.Config.MediaType]:
		return nil, fmt.Errorf("it holds %.80q, not a WebAssembly module; without --module it is taken as an image", m.Config.MediaType)
	case len(m.Layers) != 1:
		return nil, fmt.Errorf("it has %d layers; the artifact of a module has one", len(m.Layers))
	case !moduleLayers[m.Layers[0].MediaType]:
		return nil, fmt.Errorf("its layer is %.80q, not a WebAssembly module", m.Layers[0].MediaType)
	}
	return blob(ctx, b, m.Layers[0])
}

// blob reads a whole blob, checked.
func blob(ctx context.Context, b blobs, d v1.Descriptor) ([]byte, error) {
	if d.Digest.Algorithm != "sha256" || d.Size < 0 || d.Size > sallyport.MaxModule {
		return nil, fmt.Errorf("the module %.80s has %d bytes; at most %d are taken, by sha256", d.Digest, d.Size, sallyport.MaxModule)
	}
	r, err := b.open(ctx, d)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	s := &summed{r: r, h: sha256.New(), left: d.Size}
	code, err := io.ReadAll(s)
	switch {
	case err != nil:
		return nil, err
	case s.sum() != d.Digest || s.left != 0:
		return nil, fmt.Errorf("the module is %s, but the manifest says %s", s.sum(), d.Digest)
	}
	return code, nil
}
