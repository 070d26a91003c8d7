package gvisor

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
