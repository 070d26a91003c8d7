package store

import (
	"encoding/json"
	"time"
)

// A Passkey is an approver's key, of which only the public half is here.
type Passkey struct {
	Tenant     string          `json:"tenant"`
	ID         string          `json:"id"` // credential id, base64url
	Admin      string          `json:"admin"`
	Label      string          `json:"label"`
	RPID       string          `json:"rp_id"`      // the name that it is bound to
	Credential json.RawMessage `json:"credential"` // as package approval/passkey writes it
	Counter    int64           `json:"counter"`    // of signatures; stays 0 where the authenticator does not count
	CreatedAt  time.Time       `json:"created_at"` // set by the store
	UsedAt     time.Time       `json:"used_at,omitzero"`
}

// The kinds of link.
const (
	LinkAdd     = "add"     // to enrol a passkey
	LinkSign    = "sign"    // to sign one ticket
	LinkConfirm = "confirm" // to show that it is the admin who is logged in
)

// The states of a link.
const (
	LinkOpen = "open"
	LinkUsed = "used"
)

// A Link lets whoever holds its token act once, on a page, for the admin who
// asked for it.
type Link struct {
	Tenant    string
	ID        string // sha256 hex of the token, which is not kept
	Kind      string
	Admin     string
	Login     string // what must still be true of the admin's password
	Ticket    string // LinkSign
	Reason    string // LinkSign
	Label     string // LinkAdd
	State     string
	Ceremony  json.RawMessage // the challenge that is out, nil if none is
	Tries     int
	Error     string    // why the last try failed
	CreatedAt time.Time // set by the store
	ExpiresAt time.Time
}

// The states of a notice.
const (
	NoticeWaiting = "waiting"
	NoticeSent    = "sent"
	NoticeDead    = "dead" // given up
)

// A Notice is one message to one webhook.
type Notice struct {
	Tenant    string
	Hook      string
	ID        string // the same at every try
	Type      string
	Ticket    string
	Body      []byte
	State     string
	Tries     int
	NextAt    time.Time // not before this
	CreatedAt time.Time // set by the store
	Error     string    // why the last try failed
}

// A NoticeCount tells how many notices of a hook are in a state.
type NoticeCount struct {
	Hook  string
	State string
	Count int
	Since time.Time // when the oldest of them was made
	Error string    // of the one that was touched last
}
