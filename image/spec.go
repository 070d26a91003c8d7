package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// recipeVersion changes whenever this package would build other bytes from the
// same packages.
const recipeVersion = "2"

// A Spec says what an image is made of.
type Spec struct {
	Name    string // [a-z][a-z0-9._-]*
	Release string // Debian's code name; apt must have a source for it

	// Packages are resolved with all that they depend on, from Debian only.
	Packages []string

	// Exclude names packages of the closure whose contents are left out, because
	// only their maintainer scripts, which never run, are needed.
	Exclude []string

	// MaxSize bounds the bytes that the files may take; 0 means MaxSize.
	MaxSize int64 `json:",omitempty"`

	// Debs are local .deb files, added after Packages as they are.
	Debs []string
}

// Default is the image of run_python, run_javascript and run_shell.
func Default() Spec {
	return Spec{
		Name:    DefaultName,
		Release: "bookworm",
		Packages: []string{
			"base-files", "libc-bin", "tzdata", "ca-certificates",
			"bash", "dash", "coreutils", "debianutils", "diffutils", "findutils", "grep", "sed", "mawk",
			"tar", "gzip", "bzip2", "xz-utils", "hostname", "procps",
			"curl", "git", "jq", "sqlite3",
			"python3", "nodejs",
		},
		Exclude: []string{
			// Installing and configuring, which does not happen inside.
			"debconf", "dpkg", "init-system-helpers", "usrmerge", "media-types",
			// Only usrmerge and parts of git that we leave out need the whole of Perl.
			"perl", "perl-modules-5.36", "libperl5.36", "libdb5.3", "libgdbm6", "libgdbm-compat4",
			"libnumber-compare-perl", "libtext-glob-perl", "libfile-find-rule-perl", "liberror-perl",
			// Manual pages, and what only a service would use.
			"git-man", "readline-common",
		},
	}
}

// DataName is the name of the image with numpy, pandas and matplotlib.
const DataName = "data"

// Data is the default image with what works on data, for tools that name it.
func Data() Spec {
	s := Default()
	s.Name = DataName
	s.Packages = append(s.Packages, "python3-numpy", "python3-pandas", "python3-matplotlib",
		"libopenblas0-pthread", // numpy's linear algebra, tens of times faster than the reference
		"python3-munkres",      // fonttools takes it in place of scipy, which brings compilers
	)
	s.Exclude = append(s.Exclude,
		// Windows on a screen, and pages in a browser.
		"blt", "tk8.6-blt2.5", "libtk8.6", "libtcl8.6", "python3-tk", "python3-pil.imagetk", "x11-common", "libxss1", "libxft2",
		"libjs-jquery", "libjs-jquery-ui", "lsb-base", "sysvinit-utils", "fonts-lyx",
		// Parts of fonttools that matplotlib does not use.
		"python3-sympy", "python3-mpmath", "unicode-data", "python3-all",
		// openblas stands in for them.
		"libblas3", "liblapack3",
	)
	return s
}

// Recipes are the images that can be built from Debian's packages by name.
func Recipes() []Spec { return []Spec{Default(), Data()} }

// digest names everything that the image depends on, apart from the versions of
// the packages.
func (s Spec) digest() string {
	b, err := json.Marshal(struct {
		Version string
		Spec    Spec
	}{recipeVersion, s})
	if err != nil {
		panic("image: a Spec is always JSON: " + err.Error()) // strings only
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// UpToDate reports whether the store holds an image of this very spec. It does
// not check the image's bytes.
func (s *Store) UpToDate(spec Spec) bool {
	ref, err := s.lookup(spec.Name)
	if err != nil {
		return false
	}
	img, err := s.describe(ref.Digest)
	return err == nil && img.Recipe == spec.digest()
}
