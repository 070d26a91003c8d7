package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// recipeVersion changes whenever this package would build other bytes from the
// same packages.
const recipeVersion = "1"

// A Spec says what an image is made of.
type Spec struct {
	Name    string // [a-z][a-z0-9._-]*
	Release string // Debian's code name; apt must have a source for it

	// Packages are resolved with all that they depend on, from Debian only.
	Packages []string

	// Exclude names packages of the closure whose contents are left out, because
	// only their maintainer scripts, which never run, are needed.
	Exclude []string

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
	digest, err := s.lookup(spec.Name)
	if err != nil {
		return false
	}
	img, err := s.describe(digest)
	return err == nil && img.Recipe == spec.digest()
}
