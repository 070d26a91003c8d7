package session

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"io"
	"testing"
)

// What was sealed comes back as it was; whatever was changed, cut off, moved or
// added does not come back at all.
func TestSealed(t *testing.T) {
	block, err := aes.NewCipher(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	open := func(b []byte) ([]byte, error) {
		return io.ReadAll(&unsealer{from: bufio.NewReader(bytes.NewReader(b)), aead: aead})
	}
	for _, size := range []int{0, 1, sealedChunk - 1, sealedChunk, sealedChunk + 1, 3 * sealedChunk} {
		plain := bytes.Repeat([]byte("canary!"), size/7+1)[:size]
		var b bytes.Buffer
		s := &sealer{to: &b, aead: aead}
		for rest := plain; len(rest) > 0; { // in odd pieces
			n := min(len(rest), 100_003)
			if _, err := s.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		sealed := b.Bytes()
		if got, err := open(sealed); err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%d bytes: %d came back, %v", size, len(got), err)
		}
		const whole = sealedChunk + 16
		changed := map[string][]byte{"cut": sealed[:len(sealed)-1], "empty": {}, "longer": append(bytes.Clone(sealed), 0), "twice": append(bytes.Clone(sealed), sealed...)}
		flipped := bytes.Clone(sealed)
		flipped[len(flipped)/2] ^= 1
		changed["flipped"] = flipped
		if len(sealed) > whole {
			changed["without its end"] = sealed[:whole]
			changed["without its beginning"] = sealed[whole:]
		}
		for how, c := range changed {
			if got, err := open(c); err == nil {
				t.Errorf("%d bytes, %s: %d bytes came back without an error", size, how, len(got))
			}
		}
	}
}
