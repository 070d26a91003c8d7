package secret

import (
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"

	"golang.org/x/crypto/chacha20poly1305"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/store"
)

// Rows is a store.Box: it seals rows of the database under a key that is
// derived from the secrets' key. Tenant and row are bound to each.
type Rows struct{ aead cipher.AEAD }

var _ store.Box = (*Rows)(nil)

// OpenRows returns a box with the key in dir, which must be private.
func OpenRows(dir string) (*Rows, error) {
	key, err := loadKey(dir)
	if err != nil {
		return nil, err
	}
	key, err = hkdf.Key(sha256.New, key, nil, "sallyport rows v1", chacha20poly1305.KeySize)
	if err != nil {
		return nil, err
	}
	aead, err := chacha20poly1305.NewX(key)
	return &Rows{aead}, err
}

const rowHead = 1 + chacha20poly1305.NonceSizeX

// Seal returns plain in sealed form.
func (r *Rows) Seal(tenant, row string, plain []byte) []byte {
	box := make([]byte, rowHead, rowHead+len(plain)+r.aead.Overhead())
	box[0] = store.SealedRow
	rand.Read(box[1:])
	return r.aead.Seal(box, box[1:], plain, associated("sallyport row v1\x00", tenant, row))
}

// Open is the reverse of Seal.
func (r *Rows) Open(tenant, row string, sealed []byte) ([]byte, error) {
	if len(sealed) >= rowHead && sealed[0] == store.SealedRow {
		if plain, err := r.aead.Open(nil, sealed[1:rowHead], sealed[rowHead:], associated("sallyport row v1\x00", tenant, row)); err == nil {
			return plain, nil
		}
	}
	return nil, &sallyport.Error{Code: sallyport.Unavailable, Step: sallyport.Reserve,
		Message: "a row of the database cannot be decrypted", Hint: "keys/secrets.key does not belong to this database, or the row was altered"}
}
