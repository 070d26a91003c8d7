package webhook

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/approval"
)

// A message is the body of what is sent. Secrets in it are masked, and nothing
// in it is more than text.
type message struct {
	Type      approval.Event `json:"type"`
	ID        string         `json:"id"` // the header webhook-id says the same
	At        time.Time      `json:"at"`
	Ticket    *told          `json:"ticket,omitempty"`
	DecideURL string         `json:"decide_url,omitempty"`
}

// told is a ticket as others are told of it.
type told struct {
	ID         string                `json:"id"`
	Hash       string                `json:"hash"` // a decision must repeat it
	State      sallyport.TicketState `json:"state"`
	Tool       string                `json:"tool"`
	Agent      string                `json:"agent"`
	OnBehalfOf string                `json:"on_behalf_of,omitempty"`
	Risk       toldRisk              `json:"risk"`
	Parts      []sallyport.Part      `json:"parts"`
	Amounts    []sallyport.Amount    `json:"amounts"`
	Text       string                `json:"text"`               // for a chat, what is dangerous first
	Cut        bool                  `json:"text_cut,omitempty"` // it is not all: an approval needs the page, or the command line
	DecideBy   time.Time             `json:"decide_by"`
	Demands    []sallyport.Demand    `json:"demands"`
	Votes      []toldVote            `json:"votes"`
	DecidedBy  string                `json:"decided_by,omitempty"`
	Reason     string                `json:"reason,omitempty"`
	VoidReason string                `json:"void_reason,omitempty"`
}

type toldRisk struct {
	Level        sallyport.Level `json:"level"`
	Irreversible bool            `json:"irreversible"`
	Reasons      []string        `json:"reasons"`
}

type toldVote struct {
	By      string `json:"by"`
	Approve bool   `json:"approve"`
	Reason  string `json:"reason,omitempty"`
}

// Bounds of a message: the whole ticket is where DecideURL leads.
const (
	maxText  = 16 << 10
	maxItems = 50
	maxItem  = 1000
)

// compose makes the body of a message about a ticket.
func compose(h happening, t sallyport.Ticket, mask Mask, page string, now time.Time) ([]byte, error) {
	say := func(s string) string {
		s, _ = cut(approval.Visible(mask.Text(s)), maxItem)
		return s
	}
	masked := t
	masked.Binding.Args = mask.JSON(t.Binding.Args)
	masked.Risk = maskRisk(t.Risk, mask)
	masked.Reason, masked.VoidReason = mask.Text(t.Reason), mask.Text(t.VoidReason)
	masked.Votes = nil // told apart
	masked.About.Code = mask.Text(t.About.Code)
	m := message{Type: h.event, ID: h.id, At: now.UTC(), DecideURL: decideURL(page, t.ID), Ticket: &told{
		ID: t.ID, Hash: t.Hash, State: t.State, Tool: say(t.Binding.Tool), Agent: say(t.Binding.Principal), OnBehalfOf: say(t.Binding.OnBehalfOf),
		Risk:  toldRisk{t.Risk.Level, t.Risk.Irreversible, []string{}},
		Parts: []sallyport.Part{}, Amounts: []sallyport.Amount{}, Demands: append([]sallyport.Demand{}, t.Demands...), Votes: []toldVote{},
		DecideBy: t.DecideBy.UTC(), DecidedBy: say(t.DecidedBy), Reason: say(t.Reason), VoidReason: say(t.VoidReason),
	}}
	k := m.Ticket
	for _, r := range t.Risk.Reasons[:min(len(t.Risk.Reasons), maxItems)] {
		k.Risk.Reasons = append(k.Risk.Reasons, say(r))
	}
	for _, p := range t.Risk.Parts[:min(len(t.Risk.Parts), maxItems)] {
		k.Parts = append(k.Parts, sallyport.Part{Path: say(p.Path), Label: say(p.Label), Text: say(p.Text)})
	}
	for _, a := range t.Risk.Amounts[:min(len(t.Risk.Amounts), maxItems)] {
		k.Amounts = append(k.Amounts, sallyport.Amount{Value: say(a.Value), Currency: say(a.Currency), Recipient: say(a.Recipient)})
	}
	for _, v := range t.Votes {
		k.Votes = append(k.Votes, toldVote{say(v.By), v.Approve, say(v.Reason)})
	}
	text, whole := approval.NewView(masked, now).Card()
	k.Text, k.Cut = cut(text, maxText)
	k.Cut = k.Cut || !whole || len(t.Risk.Parts) > maxItems
	return json.Marshal(m)
}

// maskRisk masks what a verdict quotes of the arguments.
func maskRisk(r sallyport.Risk, mask Mask) sallyport.Risk {
	all := func(list []string) []string {
		out := make([]string, len(list))
		for i, s := range list {
			out[i] = mask.Text(s)
		}
		return out
	}
	r.Reasons, r.Objects = all(r.Reasons), all(r.Objects)
	parts := append([]sallyport.Part{}, r.Parts...)
	for i := range parts {
		parts[i].Text = mask.Text(parts[i].Text)
	}
	amounts := append([]sallyport.Amount{}, r.Amounts...)
	for i := range amounts {
		amounts[i].Recipient = mask.Text(amounts[i].Recipient)
	}
	r.Parts, r.Amounts = parts, amounts
	return r
}

// decideURL is where a human decides, "" where there is no page.
func decideURL(page, ticket string) string {
	if page == "" {
		return ""
	}
	return page + "?ticket=" + plain(ticket)
}

// cut shortens a text and says so in it.
func cut(s string, most int) (string, bool) {
	if len(s) <= most {
		return s, false
	}
	n := most
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return fmt.Sprintf("%s\n… (%d of %d bytes)", s[:n], n, len(s)), true
}
