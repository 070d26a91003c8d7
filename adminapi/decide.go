package adminapi

import (
	"context"
	"slices"
	"strconv"
	"time"

	"sallyport.dev/sallyport"
)

// Passkeys keeps approvers' passkeys. (approval/passkey)
type Passkeys interface {
	ListPasskeys(ctx context.Context) ([]PasskeyInfo, error)
	// RemovePasskey takes away a passkey of another admin than by.
	RemovePasskey(ctx context.Context, id, by, reason string) error
	// NewPasskeyLink lets an admin use a passkey on the page, where that is needed.
	NewPasskeyLink(ctx context.Context, admin string, r LinkRequest) (PasskeyLink, error)
	PasskeyLink(ctx context.Context, id string) (PasskeyLink, error)
	// Confirmed returns nil if the admin has no passkey, or used one just now.
	Confirmed(ctx context.Context, admin string) error
}

// A LinkRequest says what a link is for.
type LinkRequest struct {
	Kind   string // "add" a passkey, "sign" a ticket, "confirm" the login
	Label  string // add: what the passkey is called
	Ticket string // sign
	Reason string // sign
	Hash   string // sign: what was seen of the ticket's, or ""
}

// A PasskeyInfo is one enrolled passkey.
type PasskeyInfo struct {
	ID      string    `json:"id"`
	Admin   string    `json:"admin"`
	Label   string    `json:"label"`
	RPID    string    `json:"rp_id"` // the name that it works under
	Created time.Time `json:"created"`
	Used    time.Time `json:"used,omitzero"`
}

// A PasskeyLink leads to the page on which a passkey is used.
type PasskeyLink struct {
	Needed  bool      `json:"needed"` // false: no signature is needed, and there is no link
	ID      string    `json:"id,omitempty"`
	Admin   string    `json:"admin,omitempty"` // whose it is
	URL     string    `json:"url,omitempty"`   // serves once; whoever has it is as good as the login that made it
	State   string    `json:"state,omitempty"` // open, used or expired
	Error   string    `json:"error,omitempty"` // why the last try failed
	Expires time.Time `json:"expires,omitzero"`
}

// Webhooks tell other tools of tickets. (approval/webhook)
type Webhooks interface {
	ListWebhooks(ctx context.Context) ([]WebhookInfo, error)
	// TestWebhook sends a message of type test, now.
	TestWebhook(ctx context.Context, name string) error
	// RetryWebhook gives the messages that were given up another life.
	RetryWebhook(ctx context.Context, name, by string) (int, error)
}

// A WebhookInfo says how one webhook is.
type WebhookInfo struct {
	Name    string    `json:"name"`
	Host    string    `json:"host,omitempty"` // where messages go, without the path; "" if none go
	Decides bool      `json:"decides"`        // decisions may come in
	Waiting int       `json:"waiting"`        // messages to be sent
	Since   time.Time `json:"since,omitzero"` // when the oldest of them was made
	Sent    int       `json:"sent"`           // in the last seven days
	Dead    int       `json:"dead"`           // given up
	Error   string    `json:"error,omitempty"`
}

func (s *Server) listPasskeys(c call) (any, error) {
	list, err := s.Passkeys.ListPasskeys(c.Context())
	return struct {
		Passkeys []PasskeyInfo `json:"passkeys"`
	}{orEmpty(list)}, err
}

func (s *Server) removePasskey(c call) (any, error) {
	return struct{}{}, s.Passkeys.RemovePasskey(c.Context(), c.PathValue("id"), c.admin, c.FormValue("reason"))
}

func (s *Server) linkPasskey(c call) (any, error) {
	var in LinkRequest
	if err := c.body(&in); err != nil {
		return nil, err
	}
	if !slices.Contains([]string{"add", "sign", "confirm"}, in.Kind) {
		return nil, &sallyport.Error{Code: sallyport.Invalid, Message: "bad kind " + strconv.Quote(in.Kind), Hint: "add, sign or confirm"}
	}
	return s.Passkeys.NewPasskeyLink(c.Context(), c.admin, in)
}

func (s *Server) passkeyLink(c call) (any, error) {
	return s.Passkeys.PasskeyLink(c.Context(), c.PathValue("id"))
}

func (s *Server) listWebhooks(c call) (any, error) {
	list, err := s.Webhooks.ListWebhooks(c.Context())
	return struct {
		Webhooks []WebhookInfo `json:"webhooks"`
	}{orEmpty(list)}, err
}

func (s *Server) changeWebhook(c call) (any, error) {
	name := c.PathValue("name")
	switch c.PathValue("change") {
	case "test":
		return struct{}{}, s.Webhooks.TestWebhook(c.Context(), name)
	case "retry":
		n, err := s.Webhooks.RetryWebhook(c.Context(), name, c.actor())
		return struct {
			Retried int `json:"retried"`
		}{n}, err
	}
	return nil, &sallyport.Error{Code: sallyport.NotFound, Message: "no such change: " + c.PathValue("change"), Hint: "test or retry"}
}
