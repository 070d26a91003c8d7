package passkey

import (
	"strings"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/approval"
)

// A card is a ticket as the page shows it: what is dangerous first. All of it
// is plain text in which whatever does not show as itself is an escape.
type card struct {
	Ticket       string    `json:"ticket"`
	Level        string    `json:"level"`
	Irreversible bool      `json:"irreversible"`
	Reasons      []string  `json:"reasons"`
	Parts        []fact    `json:"parts"`
	Facts        []fact    `json:"facts"`
	Hash         string    `json:"hash"`
	Text         string    `json:"text"` // the whole ticket, as `approvals show` prints it
	DecideBy     time.Time `json:"decide_by"`
}

type fact struct {
	Label string `json:"label"`
	Text  string `json:"text"`
}

func cardOf(t sallyport.Ticket, now time.Time) *card {
	b := t.Binding
	c := &card{
		Ticket: approval.Visible(t.ID), Level: t.Risk.Level.String(), Irreversible: t.Risk.Irreversible,
		Hash: approval.Visible(t.Hash), Text: approval.Render(t, now), DecideBy: t.DecideBy,
		Reasons: []string{}, Parts: []fact{}, Facts: []fact{},
	}
	for _, r := range t.Risk.Reasons {
		c.Reasons = append(c.Reasons, approval.Visible(r))
	}
	for _, p := range t.Risk.Parts {
		c.Parts = append(c.Parts, fact{approval.Visible(strings.TrimSpace(p.Label + " " + p.Path)), approval.Visible(p.Text)})
	}
	for _, a := range t.Risk.Amounts {
		text := strings.TrimSpace(a.Value + " " + a.Currency)
		if a.Recipient != "" {
			text += " to " + a.Recipient
		}
		c.Parts = append(c.Parts, fact{"amount", approval.Visible(text)})
	}
	for _, f := range []fact{
		{"tool", b.Tool + " (version " + b.ToolVersion + ")"}, {"agent", b.Principal}, {"on behalf of", b.OnBehalfOf},
		{"touches", strings.Join(t.Risk.Objects, ", ")}, {"goes to", approval.Destination(b.Endpoint)}, {"credential", b.Credential},
		{"not bound", strings.Join(t.Unbound, ", ")}, {"demanded by", strings.Join(t.Policies, ", ")},
	} {
		if f.Text != "" {
			c.Facts = append(c.Facts, fact{f.Label, approval.Visible(f.Text)})
		}
	}
	return c
}
