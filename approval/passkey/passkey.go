// Package passkey lets approvers sign what they approve. An admin enrols
// passkeys in a browser; from then on, approving a ticket that cannot be undone
// takes an assertion whose challenge is made of the ticket's hash. The assertion
// is kept with everything that is needed to check it again, years later and
// offline: see Signed.
//
// Keys says which decisions need a signature and checks those that carry one;
// the approval engine asks it whichever door a decision comes through. Desk
// makes links, plays the ceremonies and serves the page.
package passkey

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/store"
)

// A Mode says when a passkey is needed to approve what cannot be undone.
type Mode string

// The modes.
const (
	Off      Mode = "off"      // never, and none can be enrolled
	Enrolled Mode = "enrolled" // from an admin who has one
	Required Mode = "required" // from every admin
)

// A Store keeps passkeys; each change is one transaction with its audit entry.
// (store/sqlite)
type Store interface {
	// Passkeys returns those of an admin, or of every admin for "".
	Passkeys(ctx context.Context, tenant, admin string) ([]store.Passkey, error)

	// PutPasskey stores a new one and uses the link that it came by; code
	// Conflict if either was there or used before.
	PutPasskey(ctx context.Context, k store.Passkey, link string, e sallyport.Entry) error

	// UsePasskey notes a signature and uses its link ("" for none); code
	// Conflict if the counter went back or the link was used before.
	UsePasskey(ctx context.Context, tenant, id string, counter int64, link string, e sallyport.Entry) error

	// DeletePasskey takes one away, or returns code NotFound.
	DeletePasskey(ctx context.Context, tenant, id string, e sallyport.Entry) error
}

// Keys are the enrolled passkeys. They implement approval.Signatures.
type Keys struct {
	store Store
	mode  Mode
	party *webauthn.WebAuthn // nil where passkeys cannot work
	why   error              // why they cannot
}

// NewKeys returns the passkeys of the page at base, http://localhost:7450 or
// https://gw.example.com. Where passkeys cannot work there, Usable says why:
// that is an error only if they are required.
func NewKeys(s Store, mode Mode, base string) (*Keys, error) {
	k := &Keys{store: s, mode: mode}
	k.party, k.why = partyOf(base)
	if k.why != nil && mode == Required {
		return nil, k.why
	}
	return k, nil
}

// Usable returns why no passkey can be enrolled or used here, or nil.
func (k *Keys) Usable() error {
	if k.mode == Off {
		return &sallyport.Error{Code: sallyport.Denied, Step: sallyport.Approve, Message: "passkeys are off",
			Hint: "the operator sets approvals.passkeys to enrolled or required in sallyport.yaml"}
	}
	return k.why
}

// partyOf is the relying party at an address. A passkey belongs to a name: it
// works under no other, and under no IP address.
func partyOf(base string) (*webauthn.WebAuthn, error) {
	bad := func(what string) error {
		return &sallyport.Error{Code: sallyport.Unavailable, Step: sallyport.Approve, Message: "passkeys cannot work at " + base + ": " + what,
			Hint: "set approvals.url in sallyport.yaml to where approvers' browsers reach the gateway: https://NAME, or http://localhost:PORT on this machine"}
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return nil, bad("it is not the address of a web page")
	}
	name := strings.ToLower(u.Hostname())
	if _, err := netip.ParseAddr(name); err == nil {
		return nil, bad("a passkey belongs to a name, and this is an IP address")
	}
	if local := name == "localhost" || strings.HasSuffix(name, ".localhost"); u.Scheme != "https" && (u.Scheme != "http" || !local) {
		return nil, bad("browsers offer passkeys over https only, except on localhost")
	}
	p, err := webauthn.New(&webauthn.Config{
		RPID: name, RPDisplayName: "Sallyport", RPOrigins: []string{u.Scheme + "://" + strings.ToLower(u.Host)},
		AttestationPreference:  protocol.PreferNoAttestation,
		AuthenticatorSelection: protocol.AuthenticatorSelection{UserVerification: protocol.VerificationRequired, ResidentKey: protocol.ResidentKeyRequirementDiscouraged},
	})
	if err != nil {
		return nil, bad(err.Error())
	}
	return p, nil
}

func (k *Keys) rpID() string   { return k.party.Config.RPID }
func (k *Keys) origin() string { return k.party.Config.RPOrigins[0] }

// Needs reports whether the admin must sign to approve the ticket.
func (k *Keys) Needs(ctx context.Context, t sallyport.Ticket, admin string) (bool, error) {
	if k.mode == Off || !t.Risk.Irreversible {
		return false, nil
	}
	if k.mode == Required {
		return true, nil
	}
	have, err := k.store.Passkeys(ctx, t.Binding.Tenant, admin)
	return len(have) > 0, err
}

// Check implements approval.Signatures.
func (k *Keys) Check(ctx context.Context, t sallyport.Ticket, d sallyport.Decision) error {
	if d.Passkey != "" || len(d.Signature) > 0 {
		return k.checkSigned(ctx, t, d)
	}
	if !d.Approve {
		return nil
	}
	needed, err := k.Needs(ctx, t, d.By)
	if err != nil || !needed {
		return err
	}
	return &sallyport.Error{Code: sallyport.Denied, Step: sallyport.Approve, Ticket: t.ID,
		Message: fmt.Sprintf("this cannot be undone: approving it takes a signature by a passkey of %s", d.By),
		Hint:    "`sallyport approvals approve` prints a link to sign it; `sallyport passkeys add` enrols a passkey"}
}

// checkSigned holds the signature against the ticket, the admin and the
// enrolled key, once more: whatever a door made of it.
func (k *Keys) checkSigned(ctx context.Context, t sallyport.Ticket, d sallyport.Decision) error {
	if err := k.Usable(); err != nil {
		return err
	}
	s, err := ParseSigned(d.Signature)
	if err != nil {
		return refuse("the signature cannot be read", err)
	}
	want := Signed{Version: s.Version, Tenant: t.Binding.Tenant, Ticket: t.ID, Hash: t.Binding.Hash(), Admin: d.By, Passkey: d.Passkey, RPID: k.rpID(), Origin: k.origin()}
	if !d.Approve || !s.says(want) {
		return refuse("the signature is for something else", nil)
	}
	keys, err := k.store.Passkeys(ctx, t.Binding.Tenant, d.By)
	if err != nil {
		return err
	}
	for _, have := range keys {
		c, err := credentialOf(have)
		if err == nil && have.ID == d.Passkey && bytes.Equal(c.PublicKey, s.PublicKey) {
			if err := s.Verify(); err != nil {
				return refuse("the signature is wrong", err)
			}
			return nil
		}
	}
	return refuse("the signature is by no passkey of "+d.By, nil)
}

func refuse(what string, err error) *sallyport.Error {
	return &sallyport.Error{Code: sallyport.Denied, Step: sallyport.Approve, Message: what, Hint: "ask for a new link and sign again", Err: err}
}

// idOf names a passkey: short enough to type, and never taken for a flag.
func idOf(credential []byte) string {
	sum := sha256.Sum256(credential)
	return "pk_" + hex.EncodeToString(sum[:16])
}

func credentialOf(k store.Passkey) (c webauthn.Credential, err error) {
	if err = json.Unmarshal(k.Credential, &c); err != nil {
		return c, fmt.Errorf("passkey %s is malformed: %w", k.ID, err)
	}
	c.Authenticator.SignCount = uint32(k.Counter)
	return c, nil
}

// A person is an admin, as a relying party sees one.
type person struct {
	tenant, name string
	keys         []webauthn.Credential
}

func (p person) WebAuthnID() []byte {
	sum := sha256.Sum256(framed("sallyport passkey user v1", p.tenant, p.name))
	return sum[:]
}
func (p person) WebAuthnName() string                       { return p.name }
func (p person) WebAuthnDisplayName() string                { return p.name }
func (p person) WebAuthnCredentials() []webauthn.Credential { return p.keys }

// person returns an admin with the passkeys that belong to this page.
func (k *Keys) person(ctx context.Context, tenant, admin string) (person, error) {
	p := person{tenant: tenant, name: admin}
	all, err := k.store.Passkeys(ctx, tenant, admin)
	for _, have := range all {
		if have.RPID != k.rpID() {
			continue
		}
		c, err := credentialOf(have)
		if err != nil {
			return p, err
		}
		p.keys = append(p.keys, c)
	}
	if err == nil && len(all) > 0 && len(p.keys) == 0 {
		err = &sallyport.Error{Code: sallyport.Denied, Step: sallyport.Approve,
			Message: fmt.Sprintf("the passkeys of %s belong to %s, not to %s", admin, all[0].RPID, k.rpID()),
			Hint:    "set approvals.url back, or have another admin remove them"}
	}
	return p, err
}
