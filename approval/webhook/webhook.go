// Package webhook attaches other tools, such as chat, to the tickets: it tells
// them what happens (Outbox) and takes decisions from them (Inbox). Both ways,
// messages are signed as the Standard Webhooks specification says, each way
// with a secret of its own.
//
// The outbox lies in the store and is filled from the tickets themselves, so
// that nothing is lost where a gateway dies: every message is sent at least
// once, and under the same webhook-id each time. No call ever waits for it.
//
// The inbox grants no more than its configuration: whom a user of the other
// tool is here, whether it may approve or only reject, and up to which risk.
package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/approval"
)

// A Hook is one attached tool.
type Hook struct {
	Name      string
	URL       string   // told what happens; "" tells nothing
	Secret    string   // name of the secret that signs what is sent
	Events    []string // that are sent; none means all
	Decisions *Decisions
}

// Decisions say what may come in from a tool.
type Decisions struct {
	Secret       string            // name of the secret that signs what comes in
	Users        map[string]string // of the tool → admins here
	Approve      bool
	Reject       bool
	Irreversible bool            // may approve what cannot be undone
	Risk         sallyport.Level // may approve up to this
}

// Secrets are the signing secrets, by name. (secret)
type Secrets interface {
	// Resolve returns a secret, or code NotFound.
	Resolve(ctx context.Context, tenant, name string) ([]byte, error)
}

// A Mask hides secrets in what leaves the gateway. (redact)
type Mask interface {
	JSON(v json.RawMessage) json.RawMessage
	Text(s string) string
}

// Host is where a hook's messages go, without the path, which may be a secret.
func (h Hook) Host() string {
	u, err := url.Parse(h.URL)
	if err != nil || u.Host == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// Missing says which of the hook's signing secrets cannot be used, nil if all can.
func (h Hook) Missing(ctx context.Context, tenant string, secrets Secrets) error {
	var names []string
	if h.URL != "" {
		names = append(names, h.Secret)
	}
	if h.Decisions != nil {
		names = append(names, h.Decisions.Secret)
	}
	for _, name := range names {
		text, err := secrets.Resolve(ctx, tenant, name)
		if err == nil {
			_, err = parseSecret(text)
		}
		if err != nil {
			return fmt.Errorf("secret %s: %w", name, err)
		}
	}
	return nil
}

// wants reports whether an event is sent to the hook.
func (h Hook) wants(event approval.Event) bool {
	if h.URL == "" {
		return false
	}
	for _, e := range h.Events {
		if e == string(event) {
			return true
		}
	}
	return len(h.Events) == 0
}

// test is the type of a message about no ticket: it shows that a hook works.
const test approval.Event = "test"

// A happening is one event of a ticket, under the id that its messages have.
type happening struct {
	event approval.Event
	id    string
}

// happened lists what has happened to a ticket, read from the ticket alone: so
// it does not matter who was told of it when.
func happened(t sallyport.Ticket) (all []happening) {
	add := func(event approval.Event, more string) {
		all = append(all, happening{event, "msg_" + plain(t.ID) + "_" + string(event) + more})
	}
	add(approval.Opened, "")
	if !t.EscalatedAt.IsZero() {
		add(approval.Escalated, "")
	}
	closing := 0 // the vote that decided is told with the decision
	if n := len(t.Votes); n > 0 && t.Votes[n-1].By == t.DecidedBy {
		closing = 1
	}
	for i := range len(t.Votes) - closing {
		add(approval.Voted, "_"+strconv.Itoa(i+1))
	}
	switch t.State {
	case sallyport.TicketPending:
	case sallyport.TicketWithdrawn:
		add(approval.Withdrawn, "")
	case sallyport.TicketVoid:
		add(approval.Decided, "")
		add(approval.Voided, "")
	default:
		add(approval.Decided, "")
	}
	return all
}

// plain keeps what a webhook-id may have: no dot, which separates its parts.
func plain(id string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '-'
	}, id)
}

// clock is the time, from now or the default.
func clock(now func() time.Time) time.Time {
	if now == nil {
		return time.Now()
	}
	return now()
}
