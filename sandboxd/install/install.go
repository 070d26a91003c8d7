// Package install installs the packages of third-party servers. A package is
// installed once, by the npm of this machine, as the server's own unprivileged
// user and without running any of its scripts; what came out is packed into a
// read-only image, and its digest is written down. From then on a server starts
// from that image or not at all.
package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/hashed"
	"sallyport.dev/sallyport/image"
	"sallyport.dev/sallyport/sandboxd/install/npx"
)

// An Installed package, as it was written down.
type Installed struct {
	Spec      string            `json:"spec"`
	Name      string            `json:"name"`
	Version   string            `json:"version"`
	Integrity string            `json:"integrity"` // of the package itself, from the lock
	Lock      string            `json:"lock"`      // sha256 of the lock of the package and all that it needs
	Digest    string            `json:"digest"`    // sha256 of the image
	Packages  int               `json:"packages"`  // how many there are
	Bins      map[string]string `json:"bins"`      // programs of the package, and their files in it
	When      time.Time         `json:"when"`
}

// A Store keeps the packages of a sandbox host's servers, each in a folder of
// its own.
type Store struct {
	Dir     string // absolute; made where it is missing
	Run     Runner
	Environ []string // of the sandbox host; npm is told what concerns it

	mu   sync.Mutex
	busy map[string]*sync.Mutex // by server: one installs at a time
}

// A Runner runs npm in a folder as a server's own user, with no capability, and
// kills it and all that it started when ctx ends. What it says is for people.
type Runner func(ctx context.Context, uid int, dir string, env, args []string) (said []byte, err error)

const (
	imageName  = "package.erofs"
	recordName = "package.json"
	patience   = 5 * time.Minute
)

// Clean removes what an installation left that was killed: npm's folder holds a
// copy of the operator's configuration.
// Preconditions: nobody else uses the folder.
func (s *Store) Clean() error {
	var errs []error
	for _, pattern := range []string{"*.new", "*.old"} { // no server's name has a dot
		left, _ := filepath.Glob(filepath.Join(s.Dir, pattern)) // the pattern is well-formed
		for _, dir := range left {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}

func (s *Store) lock(server string) *sync.Mutex {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy == nil {
		s.busy = map[string]*sync.Mutex{}
	}
	if s.busy[server] == nil {
		s.busy[server] = &sync.Mutex{}
	}
	return s.busy[server]
}

// Open returns the image of a server's package, checked against its record. One
// that was never installed is installed now; one that is not what was installed
// is refused.
func (s *Store) Open(server string, uid int, c npx.Command) (*os.File, Installed, error) {
	mu := s.lock(server)
	mu.Lock()
	defer mu.Unlock()
	have, err := s.record(server)
	if errors.Is(err, os.ErrNotExist) || err == nil && have.Spec != c.Spec {
		have, err = s.install(server, uid, c)
	}
	if err != nil {
		return nil, have, err
	}
	f, err := os.Open(filepath.Join(s.Dir, server, imageName))
	if err != nil {
		return nil, have, s.changed(server, err.Error())
	}
	got, err := digestOf(f)
	if err == nil && got != have.Digest {
		err = s.changed(server, "it is not what was installed")
	}
	if err != nil {
		f.Close()
		return nil, have, err
	}
	return f, have, nil
}

func (s *Store) changed(server, why string) error {
	return refused(sallyport.Unavailable, "look who changed it; `sallyport servers update "+server+"` installs it afresh",
		"the installed package of server %q cannot be used: %s", server, why)
}

// Install installs a server's package afresh.
func (s *Store) Install(server string, uid int, c npx.Command) (Installed, error) {
	mu := s.lock(server)
	mu.Lock()
	defer mu.Unlock()
	return s.install(server, uid, c)
}

func (s *Store) record(server string) (have Installed, err error) {
	b, err := os.ReadFile(filepath.Join(s.Dir, server, recordName))
	if err != nil {
		return have, err
	}
	if err := json.Unmarshal(b, &have); err != nil || have.Digest == "" {
		return have, s.changed(server, "its record is damaged")
	}
	return have, nil
}

// install makes the new folder beside the old one and then takes its place.
// Preconditions: the server's lock is held.
func (s *Store) install(server string, uid int, c npx.Command) (Installed, error) {
	work := filepath.Join(s.Dir, server+".new")
	old := filepath.Join(s.Dir, server+".old")
	if err := errors.Join(os.RemoveAll(work), os.RemoveAll(old), os.MkdirAll(work, 0o711)); err != nil {
		return Installed{}, err
	}
	defer os.RemoveAll(work)
	ctx, cancel := context.WithTimeout(context.Background(), patience) // not the caller's: a start may give up and find it done the next time
	defer cancel()
	have, err := s.fetch(ctx, uid, work, c)
	if err != nil {
		return Installed{}, err
	}
	if err := s.keep(work, &have); err != nil {
		return have, fmt.Errorf("the package %s: %w", c.Spec, err)
	}
	dir := filepath.Join(s.Dir, server)
	if err := os.Rename(dir, old); err != nil && !errors.Is(err, os.ErrNotExist) {
		return have, err
	}
	return have, errors.Join(os.Rename(work, dir), os.RemoveAll(old))
}

// keep packs what was installed, writes it down, and deletes the rest.
func (s *Store) keep(work string, have *Installed) error {
	tree := filepath.Join(work, treeName)
	root, err := os.OpenRoot(tree)
	if err != nil {
		return err
	}
	defer root.Close()
	out, err := os.OpenFile(filepath.Join(work, imageName), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	if err := image.Pack(out, root, work); err != nil {
		return err
	}
	if have.Digest, err = digestOf(out); err != nil {
		return err
	}
	have.When = time.Now().UTC().Truncate(time.Second)
	b, err := json.MarshalIndent(have, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(tree), os.RemoveAll(filepath.Join(work, homeName)),
		os.WriteFile(filepath.Join(work, recordName), append(b, '\n'), 0o600))
}

func digestOf(f *os.File) (string, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	return hashed.Reader(f)
}
