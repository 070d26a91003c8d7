package install

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/sandboxd/install/npx"
)

// npm is the one of this machine, told by the same configuration as when the
// operator runs it: where packages come from is written nowhere else.

const (
	treeName = "tree" // what is installed, and becomes the image
	homeName = "home" // npm's own
	maxSaid  = 2000
)

// fetch has npm install a package into work, and reads what came.
func (s *Store) fetch(ctx context.Context, uid int, work string, c npx.Command) (Installed, error) {
	have := Installed{Spec: c.Spec, Name: c.Name}
	tree, home := filepath.Join(work, treeName), filepath.Join(work, homeName)
	for _, dir := range []string{tree, home} {
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, uid, uid)); err != nil {
			return have, err
		}
	}
	if err := os.WriteFile(filepath.Join(tree, "package.json"), []byte("{\"private\":true}\n"), 0o600); err != nil { // npm looks no further up
		return have, err
	}
	if err := os.Chown(filepath.Join(tree, "package.json"), uid, uid); err != nil {
		return have, err
	}
	env, err := environment(home, uid, s.Environ)
	if err != nil {
		return have, err
	}
	said, err := s.Run(ctx, uid, tree, env, []string{
		"install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-progress", "--no-update-notifier", "--omit=dev",
		"--package-lock=true", "--save-exact", "--global=false", "--loglevel=error", "--", c.Spec,
	})
	if err != nil && bytes.Contains(said, []byte("E404")) {
		return have, refused(sallyport.Unavailable, "see that its name and version are right (npm view "+c.Spec+"), and that the registry of this machine's npm has it",
			"npm finds no package %q: %s", c.Spec, lastWords(said))
	}
	if err != nil {
		return have, refused(sallyport.Unavailable, "see that npm of this machine reaches its registry (npm view "+c.Name+"); without a network, set `isolation: uid` and a server that is installed already",
			"the package %q could not be installed: %v: %s", c.Spec, err, lastWords(said))
	}
	if err := have.readLock(tree); err != nil {
		return have, err
	}
	return have, have.readBins(tree)
}

// environment is npm's: its own folders, and of this process what npm and its
// network read.
func environment(home string, uid int, all []string) ([]string, error) {
	config := ""
	path := "/usr/local/bin:/usr/bin:/bin"
	env := []string{"HOME=" + home, "TMPDIR=" + home, "npm_config_cache=" + filepath.Join(home, "cache"), "npm_config_userconfig=" + filepath.Join(home, ".npmrc")}
	for _, e := range all {
		name, value, _ := strings.Cut(e, "=")
		lower := strings.ToLower(name)
		switch {
		case name == "HOME" && config == "":
			config = filepath.Join(value, ".npmrc")
		case lower == "npm_config_userconfig":
			config = value
		case name == "PATH":
			path = value
		case slices.Contains([]string{"npm_config_cache", "npm_config_prefix", "npm_config_ignore_scripts", "npm_config_tmp"}, lower):
		case strings.HasPrefix(lower, "npm_config_"), slices.Contains([]string{"http_proxy", "https_proxy", "no_proxy", "node_extra_ca_certs", "ssl_cert_file"}, lower):
			env = append(env, e)
		}
	}
	b, err := os.ReadFile(config)
	if err != nil && config != "" && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	// npm of another user cannot read the operator's file. It is deleted with the folder.
	rc := filepath.Join(home, ".npmrc")
	return append(env, "PATH="+path), errors.Join(os.WriteFile(rc, b, 0o600), os.Chown(rc, uid, uid))
}

func lastWords(said []byte) string {
	said = bytes.TrimSpace(said)
	return strings.ToValidUTF8(string(said[max(0, len(said)-maxSaid):]), "�")
}

// readLock finds the package in npm's lock. Every package there must have an
// integrity: npm checked it against what it downloaded.
func (have *Installed) readLock(tree string) error {
	b, err := readOwn(tree, "package-lock.json")
	if err != nil {
		return err
	}
	var lock struct {
		Packages map[string]struct {
			Version   string `json:"version"`
			Integrity string `json:"integrity"`
			Link      bool   `json:"link"`
			Bundled   bool   `json:"inBundle"`
			Optional  bool   `json:"optional"`
		} `json:"packages"`
	}
	if err := json.Unmarshal(b, &lock); err != nil {
		return fmt.Errorf("npm's lock: %w", err)
	}
	sum := sha256.Sum256(b)
	have.Lock = hex.EncodeToString(sum[:])
	for at, p := range lock.Packages {
		if at == "" {
			continue
		}
		if p.Link || p.Integrity == "" && !p.Bundled {
			return refused(sallyport.Invalid, "use a package that needs packages of the registry only", "the package %q needs %q, which has no integrity in npm's lock", have.Spec, at)
		}
		have.Packages++
	}
	own := lock.Packages["node_modules/"+have.Name]
	if own.Version == "" {
		return refused(sallyport.Internal, "see that the package exists", "npm installed nothing by the name %q", have.Name)
	}
	have.Version, have.Integrity = own.Version, own.Integrity
	return nil
}

func readOwn(dir, name string) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.ReadFile(name)
}

// readBins finds the package's programs.
func (have *Installed) readBins(tree string) error {
	b, err := readOwn(tree, path.Join("node_modules", have.Name, "package.json"))
	if err != nil {
		return err
	}
	var manifest struct {
		Bin json.RawMessage `json:"bin"`
	}
	if err := json.Unmarshal(b, &manifest); err != nil {
		return err
	}
	var only string
	have.Bins = map[string]string{}
	switch {
	case json.Unmarshal(manifest.Bin, &only) == nil && only != "":
		have.Bins[path.Base(have.Name)] = only
	case len(manifest.Bin) > 0:
		return json.Unmarshal(manifest.Bin, &have.Bins)
	}
	return nil
}

// Program is the command line of a package that is shown at the folder at.
func (have Installed) Program(at string, c npx.Command) ([]string, error) {
	name := c.Bin
	if name == "" {
		name = path.Base(have.Name)
		if len(have.Bins) == 1 {
			for only := range have.Bins {
				name = only
			}
		}
	}
	if have.Bins[name] == "" {
		return nil, refused(sallyport.Invalid, "name one of its programs: npx --package "+have.Name+" -- PROGRAM", "the package %q has no program %q", have.Name, name)
	}
	file := path.Join(at, "node_modules", have.Name, path.Join("/", have.Bins[name]))
	return append([]string{file}, c.Args...), nil
}

// Npm is where npm of this machine is.
func Npm(environ []string) (string, error) {
	list := "/usr/local/bin:/usr/bin:/bin"
	for _, e := range environ {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			list = cmp.Or(v, list)
		}
	}
	for dir := range strings.SplitSeq(list, ":") {
		file := filepath.Join(dir, "npm")
		if info, err := os.Stat(file); filepath.IsAbs(dir) && err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", refused(sallyport.Unavailable, "install Node.js with npm on the sandbox host, or set `isolation: uid` for a server that is installed already", "packages of servers are installed with npm, and there is none in %s", list)
}

func refused(code sallyport.Code, hint, format string, args ...any) error {
	return &sallyport.Error{
		Code: code, Step: sallyport.Execute, Hint: hint,
		Message: fmt.Sprintf(format, args...), Err: sallyport.ErrNotExecuted,
	}
}
