package oauth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

	"golang.org/x/crypto/argon2"
)

// SecretPrefix starts every agent secret, so that scanners can find leaked ones.
const SecretPrefix = "sps_"

// NewSecret makes a client secret for an agent: 32 random bytes. It is shown
// once; only its hash is kept.
func NewSecret() (secret, hash string) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	secret = SecretPrefix + b64(b[:])
	return secret, HashSecret(secret)
}

// HashSecret returns what is stored of a secret: its sha256, in hex. That is
// enough, without salt or a slow hash: those make guessing words expensive, and
// nobody can guess one of 2^256 equally likely values, however fast the hash.
func HashSecret(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// secretMatches compares in constant time. A hash that is no hash matches nothing.
func secretMatches(secret, hash string) bool {
	want, err := hex.DecodeString(hash)
	if err != nil || len(want) != sha256.Size {
		want = make([]byte, sha256.Size) // compare all the same
	}
	got := sha256.Sum256([]byte(secret))
	return subtle.ConstantTimeCompare(got[:], want) == 1
}

// The cost of a password's hash, above the least that RFC 9106 and OWASP
// advise: about 0.1 s and 64 MiB for each guess.
const (
	argonTime    = 2
	argonMemory  = 64 << 10 // KiB
	argonThreads = 1
	argonKeyLen  = 32

	maxPassword = 1024
)

// NewPassword makes a password of 100 random bits that people can read aloud.
func NewPassword() string {
	var b [13]byte
	_, _ = rand.Read(b[:])
	s := strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))[:20]
	return s[:5] + "-" + s[5:10] + "-" + s[10:15] + "-" + s[15:]
}

// HashPassword returns the argon2id hash of a password in the usual text form.
func HashPassword(password string) (string, error) {
	if len(password) < 8 || len(password) > maxPassword {
		return "", fmt.Errorf("a password has 8 to %d bytes, this one %d", maxPassword, len(password))
	}
	var salt [16]byte
	_, _ = rand.Read(salt[:])
	return passwordHash(salt[:], argon2.IDKey([]byte(password), salt[:], argonTime, argonMemory, argonThreads, argonKeyLen)), nil
}

func passwordHash(salt, key []byte) string {
	e := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version,
		argonMemory, argonTime, argonThreads, e.EncodeToString(salt), e.EncodeToString(key))
}

// nobodysHash is of no password that anybody knows. A password is held against
// it as slowly as against any other.
func nobodysHash() string {
	var b [16 + argonKeyLen]byte
	_, _ = rand.Read(b[:])
	return passwordHash(b[:16], b[16:])
}

// passwordMatches checks a password against a hash made by HashPassword, now
// or with an earlier cost. A hash that it cannot read matches nothing.
func passwordMatches(password, hash string) bool {
	parts := strings.Split(hash, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || len(password) > maxPassword {
		return false
	}
	var version int
	var memory, passes uint32
	var threads uint8
	if _, err := fmt.Sscanf(parts[2], "v=%d", &version); err != nil || version != argon2.Version {
		return false
	}
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &memory, &passes, &threads); err != nil {
		return false
	}
	salt, err1 := base64.RawStdEncoding.Strict().DecodeString(parts[4])
	want, err2 := base64.RawStdEncoding.Strict().DecodeString(parts[5])
	if err1 != nil || err2 != nil || len(salt) < 8 || len(want) < 16 || len(want) > 64 ||
		memory > 1<<20 || passes < 1 || passes > 16 || threads < 1 || threads > 16 {
		return false
	}
	got := argon2.IDKey([]byte(password), salt, passes, memory, threads, uint32(len(want)))
	return subtle.ConstantTimeCompare(got, want) == 1
}
