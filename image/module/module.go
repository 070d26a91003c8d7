// Package module keeps the WebAssembly modules of artifacts in the cache folder,
// under the artifact's digest, and gives out modules of either kind, held against
// what pins them.
package module

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
)

// held bounds the bytes of modules that are kept in memory.
const held = 4 * sallyport.MaxModule

// A Store gives out modules. What it gave out once it keeps: what was pinned is
// what runs, whatever becomes of a file. It is safe for concurrent use.
type Store struct {
	dir string

	mu   sync.Mutex
	have map[string]Module // by pin
	size int
}

// A Module is one that was held against its pin.
type Module struct {
	Code   []byte
	Digest string // sha256 of Code, in hex
}

// NewStore uses a cache folder.
func NewStore(cacheDir string) *Store {
	return &Store{dir: filepath.Join(cacheDir, "modules"), have: map[string]Module{}}
}

var pin = regexp.MustCompile(`^(|[^@]+@)sha256:([0-9a-f]{64})$`)

// Find returns the module of a script: from its file, or from the artifact that
// was pulled.
func (s *Store) Find(code sallyport.Script) (Module, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m, ok := s.have[code.Source]; ok {
		return m, nil
	}
	b, err := s.read(code)
	if err != nil {
		return Module{}, err
	}
	if s.size += len(b); s.size > held {
		clear(s.have)
		s.size = len(b)
	}
	m := Module{b, sum(b)}
	s.have[code.Source] = m
	return m, nil
}

func (s *Store) read(code sallyport.Script) ([]byte, error) {
	parts := pin.FindStringSubmatch(code.Source)
	switch {
	case parts == nil:
		return nil, refuse("report this", "the module is not pinned", nil)
	case parts[1] == "":
		b, err := contents(code.File)
		if err == nil && sum(b) != parts[2] {
			err = errors.New("it is another now")
		}
		if err != nil {
			return nil, refuse("put the one that the manifest's digest names there", fmt.Sprintf("the module %s cannot be used: %v", filepath.Base(code.File), err), err)
		}
		return b, nil
	}
	b, err := s.artifact(parts[2])
	if err != nil {
		return nil, refuse("sallyport sandbox pull --module "+code.Source, "the module "+code.Source+" is not in the cache, or was damaged", err)
	}
	return b, nil
}

func refuse(hint, message string, err error) error {
	return &sallyport.Error{Code: sallyport.Unavailable, Step: sallyport.Execute, Message: message, Hint: hint, Err: errors.Join(sallyport.ErrNotExecuted, err)}
}

// Put keeps the module of an artifact, REPOSITORY@sha256:HEX.
func (s *Store) Put(ref string, code []byte) error {
	parts := pin.FindStringSubmatch(ref)
	if parts == nil || parts[1] == "" {
		return fmt.Errorf("%q names no artifact by its digest", ref)
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(s.dir, "new-*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(sum(code))
	if err == nil {
		_, err = f.Write(code)
	}
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err == nil { // modules are no secrets, and gateways read them
		err = os.Rename(f.Name(), filepath.Join(s.dir, parts[2]))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// artifact reads what Put kept: the sum of the module, and the module.
func (s *Store) artifact(digest string) ([]byte, error) {
	b, err := contents(filepath.Join(s.dir, digest))
	if err != nil {
		return nil, err
	}
	if n := 2 * sha256.Size; len(b) >= n && string(b[:n]) == sum(b[n:]) {
		return b[n:], nil
	}
	return nil, errors.New("the file in the cache is damaged")
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// contents reads a regular file.
func contents(file string) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, errors.New("it is not a file"))
	}
	b, err := io.ReadAll(io.LimitReader(f, sallyport.MaxModule+2*sha256.Size+1))
	if len(b) > sallyport.MaxModule+2*sha256.Size {
		err = errors.New("it is too large")
	}
	return b, err
}

// Name is a module's name as its program sees it: argv[0].
func Name(code sallyport.Script, tool string) string {
	if code.File != "" {
		return filepath.Base(code.File)
	}
	return strings.TrimSuffix(tool, ".wasm") + ".wasm"
}
