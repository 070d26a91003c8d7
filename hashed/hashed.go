// Package hashed names content by its SHA-256, in lower-case hex.
package hashed

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
)

// File hashes the content of a file.
func File(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return Reader(f)
}

// Reader hashes all that is left to read.
func Reader(r io.Reader) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
