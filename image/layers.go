package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"sallyport.dev/sallyport"
)

// Layers are an OCI image: tar streams, each laid over those before.
type Layers struct {
	Name    string
	From    string // for people
	ID      string // of the contents: equal IDs stand for equal layers
	MaxSize int64  // of all layers, unpacked, and of the files that come out of them; 0 means MaxSize

	// Open opens layer n of Count, unpacked. A layer counts only if Close, after
	// everything was read, returns nil: so it can check a digest.
	Count int
	Open  func(ctx context.Context, n int) (io.ReadCloser, error)
}

// BuildLayers makes one image of layers and gives it l.Name.
func (s *Store) BuildLayers(ctx context.Context, l Layers, progress func(string)) (Image, error) {
	if err := free(l.Name); err != nil {
		return Image{}, err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "layers %s %s", recipeVersion, l.ID))
	recipe := hex.EncodeToString(sum[:])
	img, err := s.make(ctx, l.Name, l.MaxSize, progress, func(t *tree, work string) (Image, error) {
		if same, ok := s.made(recipe); ok {
			progress("it is in the cache already")
			same.From = l.From
			return same, nil
		}
		left := t.maxSize
		for n := range l.Count {
			progress(fmt.Sprintf("layer %d of %d", n+1, l.Count))
			read, err := t.takeLayer(ctx, l, n, left)
			if err != nil {
				return Image{}, fmt.Errorf("layer %d of %d: %w", n+1, l.Count, err)
			}
			left -= read
		}
		return Image{Recipe: recipe, From: l.From}, t.adapt()
	})
	return img, buildFailed(ctx, err, "nothing of it was kept; find out who made it before you try another")
}

// takeLayer adds a layer and reads it to its end, at most max bytes.
func (t *tree) takeLayer(ctx context.Context, l Layers, n int, max int64) (read int64, err error) {
	r, err := l.Open(ctx, n)
	if err != nil {
		return 0, err
	}
	b := &bounded{ctx: ctx, r: r, left: max}
	err = t.addLayer(n+1, b)
	if err == nil {
		_, err = io.Copy(io.Discard, b) // what follows the archive counts for its digest
	}
	if e := r.Close(); err == nil {
		err = e
	}
	return max - b.left, err
}

// A bounded reader fails, and does not end, when there is more than it may read.
type bounded struct {
	ctx  context.Context //nolint:containedctx // of this one read
	r    io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	if b.left <= 0 {
		var one [1]byte
		if n, err := io.ReadFull(b.r, one[:]); n == 0 {
			return 0, err
		}
		return 0, errTooLarge
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

var errTooLarge = errors.New("the layers unpack to more than the image may have: see --max-size")

// made finds an image of a recipe whose input cannot change.
func (s *Store) made(recipe string) (Image, bool) {
	files, _ := filepath.Glob(s.path("sha256-*", ".json")) // the pattern is well formed
	for _, f := range files {
		digest := filepath.Base(f[:len(f)-len(".json")])
		if img, err := s.describe(digest); err == nil && img.Recipe == recipe && s.verify(img) == nil {
			return img, true
		}
	}
	return Image{}, false
}

// BuildFolder makes an image of what is in a folder and gives it a name. Only
// contents, names and whether a file is executable count; no link is followed.
func (s *Store) BuildFolder(ctx context.Context, name, dir string, maxSize int64, progress func(string)) (Image, error) {
	if err := free(name); err != nil {
		return Image{}, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Image{}, &sallyport.Error{Code: sallyport.Invalid, Step: sallyport.Execute, Message: err.Error(), Hint: "give a folder", Err: err}
	}
	defer root.Close()
	img, err := s.make(ctx, name, maxSize, progress, func(t *tree, work string) (Image, error) {
		progress("reading " + dir)
		if err := t.addFolder(ctx, root, ".", ""); err != nil {
			return Image{}, err
		}
		abs, err := filepath.Abs(dir)
		if err != nil {
			return Image{}, err
		}
		return Image{From: "folder " + abs}, t.adapt()
	})
	return img, buildFailed(ctx, err, "nothing was kept; mend the folder and try again")
}

// free refuses names that stand for images made from Debian's packages: what is
// pulled must not take the place of what tools run in unless they say otherwise.
func free(name string) error {
	for _, spec := range Recipes() {
		if name == spec.Name {
			return &sallyport.Error{Code: sallyport.Invalid, Step: sallyport.Execute,
				Message: fmt.Sprintf("the name %s is for the image that is built from Debian's packages", name), Hint: "give another with --name"}
		}
	}
	return nil
}
