package audit

import (
	"bytes"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"sallyport.dev/sallyport"
)

// Files of the signing key in the keys folder.
const (
	keyFile    = "audit.key" // 0600, a note signer key
	publicFile = "audit.pub" // 0644, the note verifier key; copy it elsewhere

	othersFile = "audit-others.pub" // 0644, those of other gateways, one a line
)

const originPrefix = "sallyport.dev/audit/"

// A Key signs the heads of one log. Its name carries the log's writer.
type Key struct {
	signer note.Signer
	public string
	writer string
}

// NewKey makes a key, and with it a new writer, in memory.
func NewKey() (*Key, error) {
	k, _, err := generate()
	return k, err
}

func generate() (*Key, string, error) {
	id := make([]byte, 10)
	rand.Read(id)
	writer := strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(id))
	private, public, err := note.GenerateKey(rand.Reader, originPrefix+writer)
	if err != nil {
		return nil, "", fmt.Errorf("make the audit key: %w", err)
	}
	k, err := parseKey(private, public)
	return k, private, err
}

// CreateKey makes a key and writes it to dir. It never overwrites one.
func CreateKey(dir string) (*Key, error) {
	k, private, err := generate()
	if err != nil {
		return nil, err
	}
	if err := writeNew(filepath.Join(dir, keyFile), private+"\n", 0o600); err != nil {
		return nil, fmt.Errorf("write the audit key: %w", err)
	}
	if err := writeNew(filepath.Join(dir, publicFile), k.public+"\n", 0o644); err != nil {
		return nil, fmt.Errorf("write the audit's public key: %w", err)
	}
	return k, nil
}

// LoadKey reads the key that CreateKey wrote.
func LoadKey(dir string) (*Key, error) {
	path := filepath.Join(dir, keyFile)
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, badKey(err, "run `sallyport init`, or restore the key from a backup", "there is no audit key at %s", path)
	} else if err != nil {
		return nil, badKey(err, keysHint, "the audit key %s cannot be read", path)
	}
	if st.Mode().Perm()&0o077 != 0 {
		return nil, badKey(nil, "chmod 600 it", "the audit key %s is readable by others (mode %04o)", path, st.Mode().Perm())
	}
	private, err := os.ReadFile(path)
	if err != nil {
		return nil, badKey(err, keysHint, "the audit key %s cannot be read", path)
	}
	public, err := os.ReadFile(filepath.Join(dir, publicFile))
	if err != nil {
		return nil, badKey(err, keysHint, "the audit's public key beside %s cannot be read", path)
	}
	return parseKey(string(bytes.TrimSpace(private)), string(bytes.TrimSpace(public)))
}

const keysHint = "the folder keys/ of the data folder must belong to the gateway"

func badKey(err error, hint, format string, args ...any) error {
	return &sallyport.Error{Code: sallyport.Unavailable, Step: sallyport.Receive, Message: fmt.Sprintf(format, args...), Hint: hint, Err: err}
}

// LoadPublicKeys reads the verifier keys of a keys folder, for Verify: its own,
// and those of other gateways on the same database that were put beside it.
func LoadPublicKeys(dir string) ([]string, error) {
	b, err := os.ReadFile(filepath.Join(dir, publicFile))
	if err != nil {
		return nil, fmt.Errorf("read the audit's public key: %w", err)
	}
	others, err := os.ReadFile(filepath.Join(dir, othersFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the public keys of other gateways: %w", err)
	}
	return strings.Fields(string(b) + "\n" + string(others)), nil
}

// AddPublicKeys puts the verifier keys of other gateways beside dir's own.
func AddPublicKeys(dir string, keys []string) error {
	f, err := os.OpenFile(filepath.Join(dir, othersFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("write the public keys of other gateways: %w", err)
	}
	_, err = f.WriteString(strings.Join(keys, "\n") + "\n")
	return errors.Join(err, f.Sync(), f.Close())
}

func parseKey(private, public string) (*Key, error) {
	signer, err := note.NewSigner(private)
	if err != nil {
		return nil, fmt.Errorf("the audit key is malformed: %w", err)
	}
	v, err := note.NewVerifier(public)
	if err != nil {
		return nil, fmt.Errorf("the audit's public key is malformed: %w", err)
	}
	writer, ok := strings.CutPrefix(signer.Name(), originPrefix)
	if !ok || writer == "" || v.Name() != signer.Name() || v.KeyHash() != signer.KeyHash() {
		return nil, fmt.Errorf("the audit key %q and its public key %q do not belong together", signer.Name(), v.Name())
	}
	return &Key{signer: signer, public: public, writer: writer}, nil
}

// Writer names the log that this key signs.
func (k *Key) Writer() string { return k.writer }

// Public returns the verifier key, as Verify wants it.
func (k *Key) Public() string { return k.public }

func writeNew(path, text string, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Sync(), f.Close())
}
