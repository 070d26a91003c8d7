// Package secret keeps secrets at rest under XChaCha20-Poly1305. The tenant and
// the name are bound to each ciphertext, so that one cannot stand for another;
// the key lies in a file beside the other keys and never in the database.
package secret

import (
	"context"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/crypto/chacha20poly1305"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/store"
)

// KeyFile is the name of the key's file in the keys folder.
const KeyFile = "secrets.key"

const keyPrefix = "sallyport-secrets-v1:"

// MaxValue bounds one secret.
const MaxValue = 64 << 10

// A Store keeps ciphertexts. (store/relational)
type Store interface {
	PutSecret(ctx context.Context, tenant, name string, ciphertext []byte, e sallyport.Entry) error

	// Secret returns a ciphertext, or code NotFound.
	Secret(ctx context.Context, tenant, name string) ([]byte, error)

	// Secrets returns the names.
	Secrets(ctx context.Context, tenant string) ([]store.SecretInfo, error)

	// DeleteSecret removes a secret, or returns code NotFound.
	DeleteSecret(ctx context.Context, tenant, name string, e sallyport.Entry) error
}

// A Vault encrypts secrets on their way into the store and decrypts them where
// a tool that was granted one runs.
type Vault struct {
	store Store
	aead  cipher.AEAD
	mac   []byte // key of fingerprints
}

// CreateKey writes a new key to dir. It never overwrites one.
func CreateKey(dir string) error {
	key := make([]byte, chacha20poly1305.KeySize)
	rand.Read(key)
	f, err := os.OpenFile(filepath.Join(dir, KeyFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write the secrets' key: %w", err)
	}
	_, err = f.WriteString(keyPrefix + base64.StdEncoding.EncodeToString(key) + "\n")
	return errors.Join(err, f.Sync(), f.Close())
}

// Open returns a vault over store with the key in dir, which must be private.
func Open(dir string, store Store) (*Vault, error) {
	key, err := loadKey(dir)
	if err != nil {
		return nil, err
	}
	aead, err := chacha20poly1305.NewX(key)
	return &Vault{store: store, aead: aead, mac: keyed(key, "sallyport fingerprint v1")}, err
}

func loadKey(dir string) ([]byte, error) {
	path := filepath.Join(dir, KeyFile)
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, badKey(err, "run `sallyport init`, or restore it from a backup", "there is no key for secrets at %s", path)
	} else if err != nil {
		return nil, badKey(err, keysHint, "the secrets' key %s cannot be read", path)
	}
	if st.Mode().Perm()&0o077 != 0 {
		return nil, badKey(nil, "chmod 600 it, and set the secrets again if others could have read it",
			"the secrets' key %s is readable by others (mode %04o)", path, st.Mode().Perm())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, badKey(err, keysHint, "the secrets' key %s cannot be read", path)
	}
	enc, ok := strings.CutPrefix(strings.TrimSpace(string(text)), keyPrefix)
	key, err := base64.StdEncoding.DecodeString(enc)
	if !ok || err != nil || len(key) != chacha20poly1305.KeySize {
		return nil, badKey(err, "restore it from a backup", "the secrets' key %s is malformed", path)
	}
	return key, nil
}

// Fingerprint stands for a secret where its value must not: the same for the
// same value on every gateway with this key, and no help to who guesses.
func (v *Vault) Fingerprint(value string) string {
	return hex.EncodeToString(keyed(v.mac, value)[:8])
}

// Derive returns a key for one purpose, the same after each start. It tells
// nothing of the key that it comes from.
func (v *Vault) Derive(purpose string) []byte {
	return keyed(keyed(v.mac, "sallyport derived key v1"), purpose)
}

func keyed(key []byte, text string) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(text))
	return m.Sum(nil)
}

const keysHint = "the folder keys/ of the data folder must belong to the gateway"

func badKey(err error, hint, format string, args ...any) error {
	return &sallyport.Error{Code: sallyport.Unavailable, Step: sallyport.Receive, Message: fmt.Sprintf(format, args...), Hint: hint, Err: err}
}

var nameRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// Set stores a secret, new or changed, in the name of the operator by.
func (v *Vault) Set(ctx context.Context, tenant, name string, value []byte, by string) error {
	if !nameRule.MatchString(name) {
		return &sallyport.Error{Code: sallyport.Invalid, Step: sallyport.Receive, Message: fmt.Sprintf("%.80q cannot name a secret", name),
			Hint: "use 1 to 64 letters, digits, '_', '-' and '.', beginning with a letter or digit"}
	}
	if len(value) == 0 || len(value) > MaxValue {
		return &sallyport.Error{Code: sallyport.Invalid, Step: sallyport.Receive,
			Message: fmt.Sprintf("a secret has 1 to %d bytes, this one has %d", MaxValue, len(value)),
			Hint:    "store a large thing elsewhere, and its password here"}
	}
	e, err := audit.AdminEntry(tenant, sallyport.Change{Action: "secrets set", By: by, Target: name})
	if err != nil {
		return err
	}
	box := make([]byte, 1+chacha20poly1305.NonceSizeX, 1+chacha20poly1305.NonceSizeX+len(value)+v.aead.Overhead())
	box[0] = boxVersion
	rand.Read(box[1:])
	return v.store.PutSecret(ctx, tenant, name, v.aead.Seal(box, box[1:], value, bound(tenant, name)), e)
}

const boxVersion = 1

// bound is the associated data of a secret; lengths first, so that no two
// pairs of tenant and name share it.
func bound(tenant, name string) []byte {
	return associated("sallyport secret v1\x00", tenant, name)
}

func associated(purpose string, parts ...string) []byte {
	b := []byte(purpose)
	for _, s := range parts {
		b = binary.BigEndian.AppendUint64(b, uint64(len(s)))
		b = append(b, s...)
	}
	return b
}

// Resolve returns the value of a secret, or code NotFound.
func (v *Vault) Resolve(ctx context.Context, tenant, name string) ([]byte, error) {
	box, err := v.store.Secret(ctx, tenant, name)
	if err != nil {
		return nil, err
	}
	const head = 1 + chacha20poly1305.NonceSizeX
	if len(box) < head || box[0] != boxVersion {
		return nil, broken(name, fmt.Errorf("%d bytes, or an unknown version", len(box)))
	}
	value, err := v.aead.Open(nil, box[1:head], box[head:], bound(tenant, name))
	if err != nil {
		return nil, broken(name, err)
	}
	return value, nil
}

func broken(name string, err error) error {
	return &sallyport.Error{Code: sallyport.Unavailable, Step: sallyport.Execute,
		Message: fmt.Sprintf("the stored secret %q cannot be decrypted", name),
		Hint:    "the key file does not belong to this database, or the entry was altered; set the secret again", Err: err}
}

// List returns the names of a tenant's secrets, never a value.
func (v *Vault) List(ctx context.Context, tenant string) ([]store.SecretInfo, error) {
	return v.store.Secrets(ctx, tenant)
}

// Remove deletes a secret, or returns code NotFound.
func (v *Vault) Remove(ctx context.Context, tenant, name, by string) error {
	e, err := audit.AdminEntry(tenant, sallyport.Change{Action: "secrets rm", By: by, Target: name})
	if err != nil {
		return err
	}
	return v.store.DeleteSecret(ctx, tenant, name, e)
}
