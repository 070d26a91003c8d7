// Package passkeytest is an authenticator in software and the browser in front
// of it, for tests: it makes passkeys and signs challenges as a security key
// does, and lies on request.
package passkeytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"

	"github.com/fxamacker/cbor/v2"
)

// The flags of authenticator data.
const (
	Present  = 0x01
	Verified = 0x04
	attested = 0x40
)

// An Authenticator holds passkeys. Its fields are what it says of itself; a
// test may make it lie.
type Authenticator struct {
	Flags   byte // default: user present and verified
	Counter uint32
	Still   bool   // does not count
	RPID    string // default: what the page asks for

	keys map[string]*ecdsa.PrivateKey // by credential id, base64url
}

// New returns an authenticator without passkeys.
func New() *Authenticator {
	return &Authenticator{Flags: Present | Verified, keys: map[string]*ecdsa.PrivateKey{}}
}

// Clone returns a copy with the same passkeys and counter.
func (a *Authenticator) Clone() *Authenticator {
	b := *a
	return &b
}

// B64 is base64url without padding.
func B64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

type options struct {
	Challenge string `json:"challenge"`
	RP        struct {
		ID string `json:"id"`
	} `json:"rp"`
	RPID    string       `json:"rpId"`
	Exclude []descriptor `json:"excludeCredentials"`
	Allow   []descriptor `json:"allowCredentials"`
}

type descriptor struct {
	ID string `json:"id"`
}

// Create makes a passkey, as navigator.credentials.create does.
func (a *Authenticator) Create(raw json.RawMessage, origin string) (json.RawMessage, error) {
	var o options
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, err
	}
	for _, d := range o.Exclude {
		if a.keys[d.ID] != nil {
			return nil, errors.New("InvalidStateError: this authenticator has a passkey for the account")
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	id := make([]byte, 32)
	rand.Read(id)
	a.keys[B64(id)] = key
	cose, err := cbor.Marshal(map[int]any{1: 2, 3: -7, -1: 1, -2: key.X.FillBytes(make([]byte, 32)), -3: key.Y.FillBytes(make([]byte, 32))})
	if err != nil {
		return nil, err
	}
	data := a.data(o.RP.ID, attested)
	data = append(data, make([]byte, 16)...) // AAGUID
	data = binary.BigEndian.AppendUint16(data, uint16(len(id)))
	data = append(append(data, id...), cose...)
	object, err := cbor.Marshal(map[string]any{"fmt": "none", "attStmt": map[string]any{}, "authData": data})
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{
		"id": B64(id), "rawId": B64(id), "type": "public-key", "clientExtensionResults": map[string]any{},
		"response": map[string]any{"clientDataJSON": B64(clientData("webauthn.create", o.Challenge, origin)), "attestationObject": B64(object), "transports": []string{"usb"}},
	})
}

// Get signs a challenge with the first passkey that the page allows, as
// navigator.credentials.get does.
func (a *Authenticator) Get(raw json.RawMessage, origin string) (json.RawMessage, error) {
	var o options
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, err
	}
	for _, d := range o.Allow {
		if key := a.keys[d.ID]; key != nil {
			return a.Assert(d.ID, o.RPID, clientData("webauthn.get", o.Challenge, origin))
		}
	}
	return nil, errors.New("NotAllowedError: this authenticator has none of these passkeys")
}

// Assert signs any client data.
func (a *Authenticator) Assert(id, rpID string, client []byte) (json.RawMessage, error) {
	if !a.Still {
		a.Counter++
	}
	data, hash := a.data(rpID, 0), sha256.Sum256(client)
	digest := sha256.Sum256(append(append([]byte{}, data...), hash[:]...))
	sig, err := ecdsa.SignASN1(rand.Reader, a.keys[id], digest[:])
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{
		"id": id, "rawId": id, "type": "public-key", "clientExtensionResults": map[string]any{},
		"response": map[string]any{"clientDataJSON": B64(client), "authenticatorData": B64(data), "signature": B64(sig)},
	})
}

// IDs are the credential ids.
func (a *Authenticator) IDs() (ids []string) {
	for id := range a.keys {
		ids = append(ids, id)
	}
	return ids
}

func (a *Authenticator) data(rpID string, more byte) []byte {
	if a.RPID != "" {
		rpID = a.RPID
	}
	sum := sha256.Sum256([]byte(rpID))
	return binary.BigEndian.AppendUint32(append(sum[:], a.Flags|more), a.Counter)
}

func clientData(kind, challenge, origin string) []byte {
	b, _ := json.Marshal(map[string]any{"type": kind, "challenge": challenge, "origin": origin, "crossOrigin": false}) // strings always marshal
	return b
}
