package passkey

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/approval"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/store"
)

// Links keeps what invites an admin to the page. (store/sqlite)
type Links interface {
	PutLink(ctx context.Context, l store.Link, e sallyport.Entry) error

	// Link returns a link, or code NotFound.
	Link(ctx context.Context, tenant, id string) (store.Link, error)

	// BeginCeremony puts a challenge out, at most `most` times for a link.
	BeginCeremony(ctx context.Context, tenant, id string, ceremony []byte, most int) error

	// TakeCeremony takes the challenge in again: it serves for one answer.
	TakeCeremony(ctx context.Context, tenant, id string) (store.Link, error)

	// NoteLink keeps why a try failed.
	NoteLink(ctx context.Context, tenant, id, why string) error
}

// Tickets are what is signed. (approval)
type Tickets interface {
	// Ticket returns a ticket, or code NotFound.
	Ticket(ctx context.Context, tenant, id string) (sallyport.Ticket, error)

	// Decide takes a decision.
	Decide(ctx context.Context, tenant string, d sallyport.Decision) (sallyport.Ticket, error)
}

// Admins tells who is an admin. (store/sqlite)
type Admins interface {
	Admin(ctx context.Context, tenant, name string) (sallyport.Admin, error)
}

// A Record takes entries that no other change carries. (store/sqlite)
type Record interface {
	AppendEntries(ctx context.Context, entries ...sallyport.Entry) error
}

// A Desk makes links and plays the ceremonies. All fields but Log and Clock
// must be set.
type Desk struct {
	Tenant  string
	Keys    *Keys
	Links   Links
	Admins  Admins
	Tickets Tickets
	Record  Record
	Clock   func() time.Time // default time.Now
	Log     *slog.Logger     // default: nothing is logged
}

// linkLife is how long a link can be used: as long as the login it came from.
const linkLife = 10 * time.Minute

// maxTries is how many challenges one link gives out.
const maxTries = 10

// An Invitation is a link as its admin gets it.
type Invitation struct {
	ID      string    `json:"id"`
	Admin   string    `json:"admin"`
	URL     string    `json:"url,omitempty"` // holds the token: only who asked for the link sees it
	State   string    `json:"state"`         // open, used or expired
	Error   string    `json:"error,omitempty"`
	Expires time.Time `json:"expires"`
}

// PagePath is where the page is.
const PagePath = "/console/passkeys"

// Page is the address of the page, "" where passkeys cannot work.
func (k *Keys) Page() string {
	if k.party == nil {
		return ""
	}
	return k.origin() + PagePath
}

const maxLabel = 60

// Invite makes a link by which an admin, who has just logged in, enrols one
// passkey.
func (d *Desk) Invite(ctx context.Context, admin, label string) (Invitation, error) {
	label = strings.TrimSpace(label)
	if label == "" {
		label = "passkey"
	}
	if !utf8.ValidString(label) || utf8.RuneCountInString(label) > maxLabel || approval.Visible(label) != label {
		return Invitation{}, &sallyport.Error{Code: sallyport.Invalid, Step: sallyport.Approve,
			Message: fmt.Sprintf("a passkey's name is plain text of at most %d characters", maxLabel)}
	}
	return d.link(ctx, store.Link{Kind: store.LinkAdd, Admin: admin, Label: label}, sallyport.Change{Action: "passkeys add", By: admin, Target: label, Detail: "link"})
}

// AskToSign makes a link by which an admin, who has just logged in, signs one
// ticket; or reports that no signature is needed. hash, if given, is what the
// admin saw of the ticket's: at least its first 8 characters.
func (d *Desk) AskToSign(ctx context.Context, admin, ticket, reason, hash string) (link Invitation, needed bool, err error) {
	tk, err := d.Tickets.Ticket(ctx, d.Tenant, ticket)
	if err != nil || tk.State != sallyport.TicketPending {
		return Invitation{}, false, err // deciding it says why not
	}
	if needed, err = d.Keys.Needs(ctx, tk, admin); err != nil || !needed {
		return Invitation{}, false, err
	}
	if hash != "" && (len(hash) < 8 || !strings.HasPrefix(tk.Hash, strings.ToLower(hash))) {
		return Invitation{}, true, &sallyport.Error{Code: sallyport.Invalid, Step: sallyport.Approve, Ticket: ticket, Message: "the hash is not this ticket's",
			Hint: "look at the ticket again: give at least the first 8 characters of the hash that it shows"}
	}
	if len(reason) > approval.MaxReason || !utf8.ValidString(reason) {
		return Invitation{}, true, &sallyport.Error{Code: sallyport.Invalid, Step: sallyport.Approve,
			Message: fmt.Sprintf("the reason must be text of at most %d bytes", approval.MaxReason)}
	}
	if err := d.Keys.Usable(); err != nil {
		return Invitation{}, true, err
	}
	p, err := d.Keys.person(ctx, d.Tenant, admin)
	if err == nil && len(p.keys) == 0 {
		err = &sallyport.Error{Code: sallyport.Denied, Step: sallyport.Approve, Ticket: ticket,
			Message: "this cannot be undone: approving it takes a passkey, and " + admin + " has none",
			Hint:    "enrol one: sallyport passkeys add"}
	}
	if err != nil {
		return Invitation{}, true, err
	}
	link, err = d.link(ctx, store.Link{Kind: store.LinkSign, Admin: admin, Ticket: ticket, Reason: reason},
		sallyport.Change{Action: "approvals approve", By: admin, Target: ticket, Detail: "link"})
	return link, true, err
}

// fresh is how long the use of a passkey confirms a login.
const fresh = 5 * time.Minute

// Confirmed returns nil if the admin has no passkey, or used one just now. What
// changes who may decide needs it: else a password that leaked could make
// another admin, and approve as that one.
func (d *Desk) Confirmed(ctx context.Context, admin string) error {
	if d.Keys.mode == Off {
		return nil
	}
	keys, err := d.Keys.store.Passkeys(ctx, d.Tenant, admin)
	if err != nil || len(keys) == 0 {
		return err
	}
	for _, k := range keys {
		if ago := d.now().Sub(k.UsedAt); ago >= 0 && ago < fresh {
			return nil
		}
	}
	return &sallyport.Error{Code: sallyport.Denied, Step: sallyport.Authenticate, Message: "this changes who may decide: confirm with your passkey that it is you",
		Hint: "run `sallyport passkeys confirm`, then this again within 5 minutes"}
}

// AskToConfirm makes a link by which an admin confirms the login; or reports
// that there is nothing to confirm.
func (d *Desk) AskToConfirm(ctx context.Context, admin string) (link Invitation, needed bool, err error) {
	err = d.Confirmed(ctx, admin)
	if err == nil || sallyport.CodeOf(err) != sallyport.Denied {
		return Invitation{}, false, err
	}
	link, err = d.link(ctx, store.Link{Kind: store.LinkConfirm, Admin: admin}, sallyport.Change{Action: "passkeys confirm", By: admin, Detail: "link"})
	return link, true, err
}

func (d *Desk) link(ctx context.Context, l store.Link, c sallyport.Change) (Invitation, error) {
	if err := d.Keys.Usable(); err != nil {
		return Invitation{}, err
	}
	admin, err := d.Admins.Admin(ctx, d.Tenant, l.Admin)
	if err != nil {
		return Invitation{}, err
	}
	random := make([]byte, 32)
	rand.Read(random)
	token := base64.RawURLEncoding.EncodeToString(random)
	l.Tenant, l.ID, l.Login, l.ExpiresAt = d.Tenant, tokenID(token), loginOf(admin), d.now().Add(linkLife)
	e, err := audit.AdminEntry(d.Tenant, c)
	if err != nil {
		return Invitation{}, err
	}
	if err := d.Links.PutLink(ctx, l, e); err != nil {
		return Invitation{}, err
	}
	// A fragment is sent to no server and stands in no log.
	return Invitation{ID: l.ID, Admin: l.Admin, URL: d.Keys.Page() + "#" + token, State: store.LinkOpen, Expires: l.ExpiresAt}, nil
}

// tokenID is the name of a token's link: the token itself is not kept.
func tokenID(token string) string {
	sum := sha256.Sum256([]byte("sallyport passkey link v1\x00" + token))
	return hex.EncodeToString(sum[:])
}

// loginOf changes with the admin's password, and ends links with it.
func loginOf(a sallyport.Admin) string {
	sum := sha256.Sum256([]byte("sallyport login v1\x00" + a.PasswordHash))
	return hex.EncodeToString(sum[:])
}

// LinkState tells what became of a link.
func (d *Desk) LinkState(ctx context.Context, id string) (Invitation, error) {
	l, err := d.Links.Link(ctx, d.Tenant, id)
	i := Invitation{ID: l.ID, Admin: l.Admin, State: l.State, Error: l.Error, Expires: l.ExpiresAt}
	if err == nil && l.State == store.LinkOpen && !d.now().Before(l.ExpiresAt) {
		i.State = "expired"
	}
	return i, err
}

// List returns every enrolled passkey.
func (d *Desk) List(ctx context.Context) ([]store.Passkey, error) {
	return d.Keys.store.Passkeys(ctx, d.Tenant, "")
}

// Remove takes a passkey away from another admin: a password alone, even the
// right one, must not be enough to get rid of one's own.
func (d *Desk) Remove(ctx context.Context, by, id, reason string) error {
	all, err := d.List(ctx)
	if err != nil {
		return err
	}
	for _, k := range all {
		if k.ID != id {
			continue
		}
		if k.Admin == by {
			return &sallyport.Error{Code: sallyport.Denied, Step: sallyport.Approve, Message: "nobody removes a passkey of their own",
				Hint: "another admin removes it; where there is none, stop the gateway and run `sallyport admins reset " + by + " --passkeys`"}
		}
		e, err := audit.AdminEntry(d.Tenant, sallyport.Change{Action: "passkeys remove", By: by, Target: id, Reason: reason,
			Detail: map[string]any{"admin": k.Admin, "label": k.Label}})
		if err != nil {
			return err
		}
		return d.Keys.store.DeletePasskey(ctx, d.Tenant, id, e)
	}
	return &sallyport.Error{Code: sallyport.NotFound, Step: sallyport.Approve, Message: fmt.Sprintf("there is no passkey %.64q", id),
		Hint: "`sallyport passkeys list` shows them"}
}

func (d *Desk) now() time.Time {
	if d.Clock == nil {
		return time.Now()
	}
	return d.Clock()
}

func (d *Desk) log() *slog.Logger {
	if d.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return d.Log
}
