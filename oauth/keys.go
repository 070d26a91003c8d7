package oauth

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"sallyport.dev/sallyport"
)

// Names in the folder of keys. The signing key is a PKCS #8 file; of a key
// that was rotated out only the public half stays, so that the tokens it
// signed are good until they expire.
const (
	signingFile   = "oauth-signing.pem"
	retiredPrefix = "oauth-retired-"
)

// Keys signs with one key and verifies with all. It is safe for concurrent use.
type Keys struct {
	dir string
	set atomic.Pointer[keySet] // never nil
}

type keySet struct {
	signer ed25519.PrivateKey
	kid    string // of the signer
	public map[string]ed25519.PublicKey
	jwks   []byte
}

// CreateKeys makes the signing key in dir if there is none, and loads the keys.
func CreateKeys(dir string) (*Keys, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, keyError(dir, err)
	}
	path := filepath.Join(dir, signingFile)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if err := writeSigner(dir); err != nil {
			return nil, keyError(path, err)
		}
	}
	return LoadKeys(dir)
}

// LoadKeys reads the keys of dir. A private key that others can read is refused.
func LoadKeys(dir string) (*Keys, error) {
	k := &Keys{dir: dir}
	return k, k.load()
}

func (k *Keys) load() error {
	path := filepath.Join(k.dir, signingFile)
	signer, err := readSigner(path)
	if err != nil {
		return keyError(path, err)
	}
	s := &keySet{signer: signer, public: make(map[string]ed25519.PublicKey)}
	own := signer.Public().(ed25519.PublicKey)
	s.kid = thumbprint(own)
	s.public[s.kid] = own
	retired, err := filepath.Glob(filepath.Join(k.dir, retiredPrefix+"*.pem"))
	if err != nil {
		return keyError(k.dir, err)
	}
	for _, path := range retired {
		pub, err := readPublic(path)
		if err != nil {
			return keyError(path, err)
		}
		s.public[thumbprint(pub)] = pub
	}
	if s.jwks, err = jwks(s); err != nil {
		return keyError(k.dir, err)
	}
	k.set.Store(s)
	return nil
}

// Rotate makes a new signing key. Tokens of the old one stay good until they
// expire; Forget ends that sooner.
func (k *Keys) Rotate() error {
	old := k.set.Load()
	der, err := x509.MarshalPKIXPublicKey(old.public[old.kid])
	if err != nil {
		return keyError(k.dir, err)
	}
	path := filepath.Join(k.dir, retiredPrefix+old.kid+".pem")
	if err := writeFile(path, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})); err != nil {
		return keyError(path, err)
	}
	if err := writeSigner(k.dir); err != nil {
		return keyError(k.dir, err)
	}
	return k.load()
}

// Forget removes every retired key: tokens that they signed are refused from
// now on. Call it when a key may be in wrong hands, and some time after Rotate.
func (k *Keys) Forget() error {
	retired, err := filepath.Glob(filepath.Join(k.dir, retiredPrefix+"*.pem"))
	if err != nil {
		return keyError(k.dir, err)
	}
	for _, path := range retired {
		if err := os.Remove(path); err != nil {
			return keyError(path, err)
		}
	}
	return k.load()
}

// JWKS returns the public keys as a JSON Web Key Set (RFC 7517, RFC 8037).
func (k *Keys) JWKS() []byte { return k.set.Load().jwks }

func jwks(s *keySet) ([]byte, error) {
	type key struct {
		Kty string `json:"kty"`
		Crv string `json:"crv"`
		X   string `json:"x"`
		Kid string `json:"kid"`
		Use string `json:"use"`
		Alg string `json:"alg"`
	}
	keys := []key{}
	add := func(kid string) {
		keys = append(keys, key{"OKP", "Ed25519", b64(s.public[kid]), kid, "sig", "EdDSA"})
	}
	add(s.kid) // the one in use comes first
	for kid := range s.public {
		if kid != s.kid {
			add(kid)
		}
	}
	return json.Marshal(map[string][]key{"keys": keys})
}

// thumbprint names a key (RFC 7638; the members for OKP are in RFC 8037).
func thumbprint(pub ed25519.PublicKey) string {
	sum := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + b64(pub) + `"}`))
	return b64(sum[:])
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func readSigner(path string) (ed25519.PrivateKey, error) {
	block, err := readPEM(path, "PRIVATE KEY", 0o077)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(block)
	if err != nil {
		return nil, errors.New("not a PKCS #8 private key") // the cause could quote the key
	}
	signer, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("a key of type %T, want Ed25519", key)
	}
	return signer, nil
}

func readPublic(path string) (ed25519.PublicKey, error) {
	block, err := readPEM(path, "PUBLIC KEY", 0o022)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKIXPublicKey(block)
	if err != nil {
		return nil, err
	}
	pub, ok := key.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("a key of type %T, want Ed25519", key)
	}
	return pub, nil
}

// readPEM reads the one block of a regular file on which none of the
// permissions in forbidden is set.
func readPEM(path, kind string, forbidden fs.FileMode) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	if info.Mode().Perm()&forbidden != 0 {
		return nil, fmt.Errorf("its mode %#o lets others at it", info.Mode().Perm())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, rest := pem.Decode(text)
	if block == nil || block.Type != kind || len(bytes.TrimSpace(rest)) > 0 {
		return nil, fmt.Errorf("not one PEM block %q", kind)
	}
	return block.Bytes, nil
}

func writeSigner(dir string) error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, signingFile), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// writeFile replaces path by a file of mode 0600, whole or not at all.
func writeFile(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func keyError(path string, err error) error {
	hint := "the folder keys/ of the data folder must belong to the gateway"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		hint = "make it with `sallyport init`, or restore keys/ from a backup"
	case strings.Contains(err.Error(), "lets others at it"):
		hint = "chmod 600 it, and rotate the key if others could have read it"
	}
	return &sallyport.Error{
		Code: sallyport.Unavailable, Step: sallyport.Authenticate,
		Message: fmt.Sprintf("the token key %s cannot be used: %v", path, err), Hint: hint, Err: err,
	}
}
