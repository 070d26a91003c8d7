package passkey

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/approval"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/store"
)

// A ceremony is what is remembered of a challenge that is out.
type ceremony struct {
	Nonce   base64url             `json:"nonce"`
	Create  *webauthn.SessionData `json:"create,omitempty"`  // a new passkey
	Confirm *webauthn.SessionData `json:"confirm,omitempty"` // by one that is enrolled already
	Sign    *webauthn.SessionData `json:"sign,omitempty"`
}

// An offer is what the page gets for a token.
type offer struct {
	Kind    string                                       `json:"kind"`
	Admin   string                                       `json:"admin"`
	Label   string                                       `json:"label,omitempty"`
	Card    *card                                        `json:"card,omitempty"`
	Create  *protocol.PublicKeyCredentialCreationOptions `json:"create,omitempty"`
	Confirm *protocol.PublicKeyCredentialRequestOptions  `json:"confirm,omitempty"`
	Sign    *protocol.PublicKeyCredentialRequestOptions  `json:"sign,omitempty"`
}

// An answer is what the page sends back.
type answer struct {
	Token   string          `json:"token"`
	Reason  string          `json:"reason,omitempty"` // where the link brought none
	Create  json.RawMessage `json:"create,omitempty"`
	Confirm json.RawMessage `json:"confirm,omitempty"`
	Sign    json.RawMessage `json:"sign,omitempty"`
}

// begin puts a challenge out for a link.
func (d *Desk) begin(ctx context.Context, token string) (o offer, err error) {
	l, p, err := d.open(ctx, tokenID(token))
	if err != nil {
		return o, err
	}
	c := ceremony{Nonce: make([]byte, nonceSize)}
	rand.Read(c.Nonce)
	o = offer{Kind: l.Kind, Admin: l.Admin, Label: l.Label}
	switch l.Kind {
	case store.LinkAdd:
		err = d.beginAdd(p, &c, &o)
	case store.LinkConfirm:
		err = d.beginConfirm(p, l.Kind, &c, &o)
	default:
		err = d.beginSign(ctx, l, p, &c, &o)
	}
	if err != nil {
		return o, err
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return o, err
	}
	return o, d.Links.BeginCeremony(ctx, d.Tenant, l.ID, raw, maxTries)
}

// open returns a link that can still be used, and its admin.
func (d *Desk) open(ctx context.Context, id string) (store.Link, person, error) {
	if err := d.Keys.Usable(); err != nil {
		return store.Link{}, person{}, err
	}
	l, err := d.Links.Link(ctx, d.Tenant, id)
	if err != nil {
		return l, person{}, err
	}
	p, err := d.invited(ctx, l)
	return l, p, err
}

// invited returns the admin of a link, if the login that it came from still holds.
func (d *Desk) invited(ctx context.Context, l store.Link) (person, error) {
	a, err := d.Admins.Admin(ctx, d.Tenant, l.Admin)
	if err != nil && sallyport.CodeOf(err) != sallyport.NotFound {
		return person{}, err
	}
	if err != nil || loginOf(a) != l.Login {
		return person{}, refuse("the admin of this link was removed or has a new password", err)
	}
	return d.Keys.person(ctx, d.Tenant, l.Admin)
}

func (d *Desk) beginAdd(p person, c *ceremony, o *offer) error {
	known := webauthn.Credentials(p.keys).CredentialDescriptors()
	create, session, err := d.Keys.party.BeginRegistration(p, webauthn.WithExclusions(known), webauthn.WithCredentialParameters(algorithms()))
	if err != nil {
		return err
	}
	c.Create, o.Create = session, &create.Response
	if len(p.keys) == 0 {
		return nil
	}
	// A password alone lets nobody add a passkey beside one that is enrolled.
	return d.beginConfirm(p, store.LinkAdd, c, o)
}

func (d *Desk) beginConfirm(p person, kind string, c *ceremony, o *offer) error {
	confirm, session, err := d.Keys.party.BeginLogin(p, webauthn.WithChallenge(confirmation(kind, p.tenant, p.name, c.Nonce)), webauthn.WithUserVerification(protocol.VerificationRequired))
	if err != nil {
		return err
	}
	c.Confirm, o.Confirm = session, &confirm.Response
	return nil
}

func (d *Desk) beginSign(ctx context.Context, l store.Link, p person, c *ceremony, o *offer) error {
	tk, err := d.Tickets.Ticket(ctx, d.Tenant, l.Ticket)
	if err != nil {
		return err
	}
	if tk.State != sallyport.TicketPending {
		return &sallyport.Error{Code: sallyport.Conflict, Step: sallyport.Approve, Ticket: tk.ID, Message: fmt.Sprintf("ticket %s is already %s", tk.ID, tk.State)}
	}
	what := Signed{Tenant: d.Tenant, Ticket: tk.ID, Hash: tk.Hash, Admin: l.Admin, Nonce: c.Nonce}
	sign, session, err := d.Keys.party.BeginLogin(p, webauthn.WithChallenge(what.Challenge()), webauthn.WithUserVerification(protocol.VerificationRequired))
	if err != nil {
		return err
	}
	c.Sign, o.Sign, o.Card = session, &sign.Response, cardOf(tk, d.now())
	return nil
}

// algorithms are those that authenticators have and auditors know.
func algorithms() []protocol.CredentialParameter {
	return []protocol.CredentialParameter{
		{Type: protocol.PublicKeyCredentialType, Algorithm: -7},   // ES256
		{Type: protocol.PublicKeyCredentialType, Algorithm: -8},   // EdDSA
		{Type: protocol.PublicKeyCredentialType, Algorithm: -257}, // RS256
	}
}

// finish takes the answer to a challenge. Whatever comes of it, the challenge
// is used; why it failed is kept in the record, and with the link.
func (d *Desk) finish(ctx context.Context, a answer) (sallyport.TicketState, error) {
	if err := d.Keys.Usable(); err != nil {
		return "", err
	}
	l, err := d.Links.TakeCeremony(ctx, d.Tenant, tokenID(a.Token))
	if err != nil {
		return "", err
	}
	state, err := d.answered(ctx, l, a)
	if err == nil {
		return state, nil
	}
	shown, ok := errors.AsType[*sallyport.Error](err)
	if !ok {
		shown = &sallyport.Error{Code: sallyport.Internal, Message: "internal error"}
	}
	change := sallyport.Change{Action: "passkeys refuse", By: l.Admin, Target: l.Ticket, Reason: shown.Message, Detail: map[string]any{"link": l.Kind, "cause": fmt.Sprintf("%.500s", err.Error())}}
	e, failed := audit.AdminEntry(d.Tenant, change)
	failed = errors.Join(failed, d.Record.AppendEntries(ctx, e), d.Links.NoteLink(ctx, d.Tenant, l.ID, shown.Message))
	if failed != nil {
		d.log().Error("a refused passkey is not on record", "err", failed)
	}
	return "", err
}

func (d *Desk) answered(ctx context.Context, l store.Link, a answer) (sallyport.TicketState, error) {
	p, err := d.invited(ctx, l)
	if err != nil {
		return "", err
	}
	var c ceremony
	if err := json.Unmarshal(l.Ceremony, &c); err != nil {
		return "", err
	}
	switch l.Kind {
	case store.LinkAdd:
		return "", d.finishAdd(ctx, l, p, c, a)
	case store.LinkConfirm:
		return "", d.finishConfirm(ctx, l.ID, p, c, a)
	default:
		return d.finishSign(ctx, l, p, c, a)
	}
}

func (d *Desk) finishAdd(ctx context.Context, l store.Link, p person, c ceremony, a answer) error {
	// Whoever got a passkey since the challenge went out must confirm, too.
	if len(p.keys) > 0 {
		if c.Confirm == nil {
			return refuse("another passkey was enrolled in the meantime", nil)
		}
		if err := d.finishConfirm(ctx, "", p, c, a); err != nil {
			return err
		}
	}
	r, err := protocol.ParseCredentialCreationResponseBytes(a.Create)
	if err != nil {
		return refuse("the browser's answer cannot be read", detailed(err))
	}
	made, err := d.Keys.party.CreateCredential(p, *c.Create, r)
	if err != nil {
		return refuse("the new passkey was not accepted", detailed(err))
	}
	made.Attestation = webauthn.CredentialAttestation{} // none was asked for, and none is judged
	raw, err := json.Marshal(made)
	if err != nil {
		return err
	}
	k := store.Passkey{Tenant: d.Tenant, ID: idOf(made.ID), Admin: l.Admin, Label: l.Label, RPID: d.Keys.rpID(), Credential: raw, Counter: int64(made.Authenticator.SignCount)}
	e, err := audit.AdminEntry(d.Tenant, sallyport.Change{Action: "passkeys add", By: l.Admin, Target: k.ID, Detail: Enrolment{
		Admin: l.Admin, Label: l.Label, RPID: k.RPID, CredentialID: made.ID, PublicKey: made.PublicKey, AAGUID: made.Authenticator.AAGUID}})
	if err != nil {
		return err
	}
	return d.Keys.store.PutPasskey(ctx, k, l.ID, e)
}

// finishConfirm notes that an enrolled passkey was used, and uses the link, if
// there is one of its own.
func (d *Desk) finishConfirm(ctx context.Context, link string, p person, c ceremony, a answer) error {
	if c.Confirm == nil {
		return refuse("no challenge is out", nil)
	}
	used, _, err := d.assertion(p, *c.Confirm, a.Confirm)
	if err != nil {
		return err
	}
	return d.use(ctx, p, used, link, sallyport.Change{Action: "passkeys confirm", By: p.name, Target: idOf(used.ID)})
}

// An Enrolment is what the record keeps of a passkey that was enrolled.
type Enrolment struct {
	Admin        string    `json:"admin"`
	Label        string    `json:"label"`
	RPID         string    `json:"rp_id"`
	CredentialID base64url `json:"credential_id"`
	PublicKey    base64url `json:"public_key"`
	AAGUID       base64url `json:"aaguid,omitempty"` // the model of the authenticator, as it says itself
}

// assertion checks the answer of a passkey.
func (d *Desk) assertion(p person, session webauthn.SessionData, raw json.RawMessage) (*webauthn.Credential, *protocol.ParsedCredentialAssertionData, error) {
	r, err := protocol.ParseCredentialRequestResponseBytes(raw)
	if err != nil {
		return nil, nil, refuse("the browser's answer cannot be read", detailed(err))
	}
	c, err := d.Keys.party.ValidateLogin(p, session, r)
	if err != nil {
		return nil, nil, refuse("the passkey's answer was not accepted", detailed(err))
	}
	if c.Authenticator.CloneWarning {
		return nil, nil, refuse(fmt.Sprintf("the passkey's counter went back to %d: there may be a copy of it", r.Response.AuthenticatorData.Counter), nil)
	}
	return c, r, nil
}

// use notes a signature, and uses the link.
func (d *Desk) use(ctx context.Context, p person, c *webauthn.Credential, link string, change sallyport.Change) error {
	e, err := audit.AdminEntry(p.tenant, change)
	if err != nil {
		return err
	}
	return d.Keys.store.UsePasskey(ctx, p.tenant, idOf(c.ID), int64(c.Authenticator.SignCount), link, e)
}

func (d *Desk) finishSign(ctx context.Context, l store.Link, p person, c ceremony, a answer) (sallyport.TicketState, error) {
	if c.Sign == nil {
		return "", refuse("no challenge is out", nil)
	}
	if l.Reason == "" {
		l.Reason = a.Reason
	}
	tk, err := d.Tickets.Ticket(ctx, d.Tenant, l.Ticket)
	if err != nil {
		return "", err
	}
	s := Signed{Version: 1, Tenant: d.Tenant, Ticket: tk.ID, Hash: tk.Binding.Hash(), Admin: l.Admin, Nonce: c.Nonce, RPID: d.Keys.rpID(), Origin: d.Keys.origin()}
	c.Sign.Challenge = base64.RawURLEncoding.EncodeToString(s.Challenge()) // of the ticket as it is now
	used, r, err := d.assertion(p, *c.Sign, a.Sign)
	if err != nil {
		return "", err
	}
	s.Passkey, s.CredentialID, s.PublicKey = idOf(used.ID), used.ID, used.PublicKey
	raw := r.Raw.AssertionResponse
	s.ClientData, s.AuthenticatorData, s.Signature = base64url(raw.ClientDataJSON), base64url(raw.AuthenticatorData), base64url(raw.Signature)
	if err := s.Verify(); err != nil {
		return "", refuse("the signature does not stand by itself", err)
	}
	if err := d.use(ctx, p, used, l.ID, sallyport.Change{Action: ActionSign, By: l.Admin, Target: tk.ID, Reason: l.Reason, Detail: s}); err != nil {
		return "", err
	}
	doc, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	tk, err = d.Tickets.Decide(ctx, d.Tenant,
		sallyport.Decision{Ticket: tk.ID, By: l.Admin, Approve: true, Reason: l.Reason, Door: "passkey", Passkey: s.Passkey, Signature: doc,
			Hash: tk.Hash, Seen: approval.SeenWord(tk)}) // the page has shown all of it
	return tk.State, err
}

// ActionSign is the action of the audit entry that keeps a Signed.
const ActionSign = "approvals sign"
