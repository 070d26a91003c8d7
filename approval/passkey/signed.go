package passkey

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-webauthn/webauthn/protocol"
)

// base64url is bytes that JSON shows as base64url without padding.
type base64url []byte

// MarshalText implements encoding.TextMarshaler.
func (b base64url) MarshalText() ([]byte, error) {
	return base64.RawURLEncoding.AppendEncode(nil, b), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *base64url) UnmarshalText(text []byte) (err error) {
	*b, err = base64.RawURLEncoding.Strict().AppendDecode(nil, text)
	return err
}

// A Signed is an approval that a passkey signed, with all that it takes to
// check it offline. It is the Signature of a Vote, and the detail of the audit
// entry "approvals sign".
type Signed struct {
	Version int    `json:"v"` // 1
	Tenant  string `json:"tenant"`
	Ticket  string `json:"ticket"`
	Hash    string `json:"hash"` // the ticket's
	Admin   string `json:"admin"`

	Nonce        base64url `json:"nonce"`         // the gateway's part of the challenge
	Passkey      string    `json:"passkey"`       // id
	CredentialID base64url `json:"credential_id"` //
	PublicKey    base64url `json:"public_key"`    // COSE, as enrolled
	RPID         string    `json:"rp_id"`
	Origin       string    `json:"origin"`

	ClientData        base64url `json:"client_data"`        // clientDataJSON
	AuthenticatorData base64url `json:"authenticator_data"` //
	Signature         base64url `json:"signature"`          // over AuthenticatorData and SHA-256 of ClientData
}

// ParseSigned reads a Signed.
func ParseSigned(raw json.RawMessage) (s Signed, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err = d.Decode(&s); err == nil && d.More() {
		err = errors.New("more than one value")
	}
	if err == nil && s.Version != 1 {
		err = fmt.Errorf("version %d is not known", s.Version)
	}
	return s, err
}

// says reports whether s is about the same as want: what was approved, by
// whom, with which passkey, where.
func (s Signed) says(want Signed) bool {
	return s.Tenant == want.Tenant && s.Ticket == want.Ticket && s.Hash == want.Hash && s.Admin == want.Admin &&
		s.Passkey == want.Passkey && s.RPID == want.RPID && s.Origin == want.Origin
}

// Challenge is what the passkey was asked to sign:
//
//	SHA-256( field("sallyport passkey approval v1") field(tenant) field(ticket)
//	         field(hash) field(admin) field("approve") field(nonce) )
//
// where field(x) is the length of x as 8 bytes, big endian, followed by x. So
// a signature stands for this one decision, and the nonce makes it this one
// time.
func (s Signed) Challenge() []byte {
	sum := sha256.Sum256(framed("sallyport passkey approval v1", s.Tenant, s.Ticket, s.Hash, s.Admin, "approve", string(s.Nonce)))
	return sum[:]
}

// confirmation is the challenge that an enrolled passkey signs where no ticket
// is signed: to let another one in, or to show that it is the admin.
func confirmation(kind, tenant, admin string, nonce []byte) []byte {
	sum := sha256.Sum256(framed("sallyport passkey confirmation v1", kind, tenant, admin, string(nonce)))
	return sum[:]
}

func framed(fields ...string) (b []byte) {
	for _, f := range fields {
		b = binary.BigEndian.AppendUint64(b, uint64(len(f)))
		b = append(b, f...)
	}
	return b
}

// nonceSize is how many bytes of a challenge nobody can foresee.
const nonceSize = 32

// Verify recomputes the challenge and checks the assertion: kind, challenge,
// origin, RP id, user present and verified, signature. It needs nothing but s:
// whether the ticket had this hash, and the admin this key, is for others to say.
func (s Signed) Verify() error {
	if s.Version != 1 || len(s.Nonce) != nonceSize || s.RPID == "" || s.Origin == "" || s.Passkey != idOf(s.CredentialID) {
		return errors.New("incomplete")
	}
	id := base64.RawURLEncoding.EncodeToString(s.CredentialID)
	p, err := protocol.CredentialAssertionResponse{
		PublicKeyCredential: protocol.PublicKeyCredential{
			Credential: protocol.Credential{ID: id, Type: string(protocol.PublicKeyCredentialType)}, RawID: protocol.URLEncodedBase64(s.CredentialID),
		},
		AssertionResponse: protocol.AuthenticatorAssertionResponse{
			AuthenticatorResponse: protocol.AuthenticatorResponse{ClientDataJSON: protocol.URLEncodedBase64(s.ClientData)},
			AuthenticatorData:     protocol.URLEncodedBase64(s.AuthenticatorData), Signature: protocol.URLEncodedBase64(s.Signature),
		},
	}.Parse()
	if err != nil {
		return detailed(err)
	}
	challenge := base64.RawURLEncoding.EncodeToString(s.Challenge())
	return detailed(p.Verify(challenge, s.RPID, "", []string{s.Origin}, nil, nil, protocol.TopOriginExplicitVerificationMode, false, true, true, s.PublicKey, protocol.SignaturePolicy{}))
}

// detailed shows what the library keeps apart.
func detailed(err error) error {
	e, ok := errors.AsType[*protocol.Error](err)
	if !ok || e == nil {
		return err
	}
	return fmt.Errorf("%s %s", e.Details, e.DevInfo)
}
