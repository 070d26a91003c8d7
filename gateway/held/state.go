package held

import (
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"time"

	"golang.org/x/crypto/chacha20poly1305"
)

// A state is what a client carries from one request to the next: which call it
// belongs to, and which turn of it. It is sealed under a key of the gateways that
// share a database, for one caller and one call's arguments: who changes a bit of it,
// or brings it with another call, has nothing.
type state struct {
	replica string // that holds the call
	call    [16]byte
	turn    uint64
	until   time.Time
}

const (
	stateVersion = 1
	maxReplica   = 64
	maxState     = 512 // characters
)

// states seals and opens them.
type states struct{ aead cipher.AEAD }

func newStates(key []byte) (states, error) {
	aead, err := chacha20poly1305.NewX(key)
	return states{aead}, err
}

func bind(binding string) []byte { return []byte("sallyport requestState v1\x00" + binding) }

func (s states) seal(st state, binding string) string {
	plain := append([]byte{stateVersion}, st.call[:]...)
	plain = binary.BigEndian.AppendUint64(plain, st.turn)
	plain = binary.BigEndian.AppendUint64(plain, uint64(st.until.UnixNano()))
	plain = append(plain, st.replica...)
	nonce := make([]byte, chacha20poly1305.NonceSizeX)
	rand.Read(nonce)
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nonce, nonce, plain, bind(binding)))
}

var errState = errors.New("not a state of this gateway, or not of this call")

func (s states) open(text, binding string) (st state, err error) {
	if len(text) > maxState {
		return st, errState
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) < chacha20poly1305.NonceSizeX || base64.RawURLEncoding.EncodeToString(raw) != text { // one form of each
		return st, errState
	}
	nonce, box := raw[:chacha20poly1305.NonceSizeX], raw[chacha20poly1305.NonceSizeX:]
	plain, err := s.aead.Open(nil, nonce, box, bind(binding))
	const head = 1 + 16 + 8 + 8
	if err != nil || len(plain) < head || len(plain) > head+maxReplica || plain[0] != stateVersion {
		return st, errState
	}
	copy(st.call[:], plain[1:])
	st.turn = binary.BigEndian.Uint64(plain[17:])
	st.until = time.Unix(0, int64(binary.BigEndian.Uint64(plain[25:])))
	st.replica = string(plain[head:])
	return st, nil
}
