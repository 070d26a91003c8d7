// Package deciding wires every way to decide tickets but the admin API itself:
// passkeys and webhooks.
package deciding

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/approval"
	"sallyport.dev/sallyport/approval/passkey"
	"sallyport.dev/sallyport/approval/webhook"
	"sallyport.dev/sallyport/config"
	"sallyport.dev/sallyport/secret"
)

// A Desk is passkeys and webhooks, in the words of the admin API.
type Desk struct {
	keys   *passkey.Keys
	desk   *passkey.Desk
	hooks  []webhook.Hook
	outbox *webhook.Outbox
	inbox  *webhook.Inbox
	vault  *secret.Vault
}

// PageURL is where approvers' browsers reach the gateway, whose own address is
// base. A passkey belongs to a name, so a gateway on loopback is called
// localhost.
func PageURL(c *config.Config, base string) string {
	if c.Approvals.URL != "" {
		return c.Approvals.URL
	}
	host, port, err := net.SplitHostPort(c.Listen)
	if ip, bad := netip.ParseAddr(host); err == nil && (host == "localhost" || bad == nil && (ip.IsLoopback() || ip.IsUnspecified())) {
		return "http://" + net.JoinHostPort("localhost", port)
	}
	return base
}

// A Store keeps tickets, passkeys and messages.
type Store interface {
	approval.Store
	passkey.Store
	passkey.Links
	webhook.Notices
	webhook.Moves
	webhook.Messages
	Admin(ctx context.Context, tenant, name string) (sallyport.Admin, error)
}

// New returns the engine that decides, and what decides through it. page is
// where approvers' browsers reach the gateway.
func New(tenant string, c config.Approvals, page string, db Store, vault *secret.Vault, mask webhook.Mask, log *slog.Logger) (*approval.Engine, *Desk, error) {
	keys, err := passkey.NewKeys(db, passkey.Mode(c.Passkeys), page)
	if err != nil {
		return nil, nil, err
	}
	d := &Desk{keys: keys, vault: vault}
	for _, name := range slices.Sorted(maps.Keys(c.Webhooks)) {
		d.hooks = append(d.hooks, hookOf(name, c.Webhooks[name]))
	}
	d.outbox = webhook.NewOutbox(tenant, d.hooks, page+passkey.PagePath, db, db, vault, mask, webhook.Options{Log: log})
	engine := approval.New(db, db, approval.Options{RunWithin: c.RunBy, Escalate: approval.Escalation(c.Escalate), Signatures: keys, Notifier: d.outbox})
	d.desk = &passkey.Desk{Tenant: tenant, Keys: keys, Links: db, Admins: db, Tickets: engine, Record: db, Log: log}
	d.inbox = webhook.NewInbox(tenant, d.hooks, db, engine, vault, nil, log)
	return engine, d, nil
}

// Run sends messages until ctx ends.
func (d *Desk) Run(ctx context.Context) { d.outbox.Run(ctx) }

// hookOf says a webhook of the configuration in the engine's words.
func hookOf(name string, w config.Webhook) webhook.Hook {
	one := func(reference string) string { return strings.Join(config.References(reference), "") }
	h := webhook.Hook{Name: name, URL: w.URL, Secret: one(w.Secret), Events: w.Events}
	if d := w.Decisions; d.Enabled() {
		var level sallyport.Level
		if level.UnmarshalText([]byte(d.Risk)) != nil {
			level = sallyport.Low // the configuration was checked
		}
		h.Decisions = &webhook.Decisions{Secret: one(d.Secret), Users: d.Users, Irreversible: d.Irreversible, Risk: level,
			Approve: slices.Contains(d.May, "approve"), Reject: slices.Contains(d.May, "reject")}
	}
	return h
}

// Routes mounts the page and the inbox.
func (d *Desk) Routes(mux *http.ServeMux) {
	page := d.desk.Handler()
	mux.Handle(passkey.PagePath, page)
	mux.Handle(passkey.PagePath+"/", page)
	mux.Handle("POST "+webhook.DecisionsPath, d.inbox)
}

// Origin is the page's name and origin, for the policy that guards every door.
func Origin(c *config.Config) (host, origin string) {
	u, err := url.Parse(c.Approvals.URL)
	if err != nil || u.Host == "" {
		return "", ""
	}
	return u.Host, u.Scheme + "://" + u.Host
}

// ListPasskeys returns every passkey.
func (d *Desk) ListPasskeys(ctx context.Context) ([]adminapi.PasskeyInfo, error) {
	list, err := d.desk.List(ctx)
	out := make([]adminapi.PasskeyInfo, 0, len(list))
	for _, k := range list {
		out = append(out, adminapi.PasskeyInfo{ID: k.ID, Admin: k.Admin, Label: k.Label, RPID: k.RPID, Created: k.CreatedAt, Used: k.UsedAt})
	}
	return out, err
}

// RemovePasskey takes away a passkey of another admin.
func (d *Desk) RemovePasskey(ctx context.Context, id, by, reason string) error {
	return d.desk.Remove(ctx, by, id, reason)
}

// NewPasskeyLink makes a link, where one is needed.
func (d *Desk) NewPasskeyLink(ctx context.Context, admin string, r adminapi.LinkRequest) (adminapi.PasskeyLink, error) {
	var i passkey.Invitation
	var err error
	needed := true
	switch r.Kind {
	case "add":
		i, err = d.desk.Invite(ctx, admin, r.Label)
	case "confirm":
		i, needed, err = d.desk.AskToConfirm(ctx, admin)
	default:
		i, needed, err = d.desk.AskToSign(ctx, admin, r.Ticket, r.Reason, r.Hash)
	}
	return linkOf(i, needed), err
}

// Confirmed returns nil if the admin has no passkey, or used one just now.
func (d *Desk) Confirmed(ctx context.Context, admin string) error {
	return d.desk.Confirmed(ctx, admin)
}

// Decides reports whether a secret signs decisions: who knows it can decide.
func (d *Desk) Decides(secret string) bool {
	return slices.ContainsFunc(d.hooks, func(h webhook.Hook) bool { return h.Decisions != nil && h.Decisions.Secret == secret })
}

// PasskeyLink tells what became of a link.
func (d *Desk) PasskeyLink(ctx context.Context, id string) (adminapi.PasskeyLink, error) {
	i, err := d.desk.LinkState(ctx, id)
	return linkOf(i, true), err
}

func linkOf(i passkey.Invitation, needed bool) adminapi.PasskeyLink {
	return adminapi.PasskeyLink{Needed: needed, ID: i.ID, URL: i.URL, Admin: i.Admin, State: i.State, Error: i.Error, Expires: i.Expires}
}

// ListWebhooks says how each webhook is.
func (d *Desk) ListWebhooks(ctx context.Context) ([]adminapi.WebhookInfo, error) {
	counts, err := d.outbox.Counts(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]adminapi.WebhookInfo, 0, len(d.hooks))
	for _, h := range d.hooks {
		w := adminapi.WebhookInfo{Name: h.Name, Host: h.Host(), Decides: h.Decisions != nil}
		for _, c := range counts {
			if c.Hook != h.Name {
				continue
			}
			switch c.State {
			case "waiting":
				w.Waiting, w.Since, w.Error = c.Count, c.Since, c.Error
			case "sent":
				w.Sent = c.Count
			case "dead":
				w.Dead = c.Count
				if w.Error == "" {
					w.Error = c.Error
				}
			}
		}
		if missing := h.Missing(ctx, sallyport.DefaultTenant, d.vault); missing != nil {
			w.Error = missing.Error()
		}
		out = append(out, w)
	}
	return out, nil
}

// TestWebhook sends a message now.
func (d *Desk) TestWebhook(ctx context.Context, name string) error {
	return d.outbox.Probe(ctx, name)
}

// RetryWebhook sends again what was given up.
func (d *Desk) RetryWebhook(ctx context.Context, name, by string) (int, error) {
	return d.outbox.Retry(ctx, name, by)
}

// Metrics writes the outboxes in the Prometheus text format.
func (d *Desk) Metrics(ctx context.Context, w io.Writer) {
	counts, err := d.outbox.Counts(ctx)
	if err != nil || len(counts) == 0 {
		return
	}
	fmt.Fprintln(w, "# HELP sallyport_webhook_messages Messages to webhooks, by state; sent and dead ones of the last seven days.\n# TYPE sallyport_webhook_messages gauge")
	for _, c := range counts {
		fmt.Fprintf(w, "sallyport_webhook_messages{webhook=%q,state=%q} %d\n", c.Hook, c.State, c.Count)
	}
}

// Passkeys says where passkeys are used, or why they are not.
func (d *Desk) Passkeys() string {
	if err := d.keys.Usable(); err != nil {
		e, _ := errors.AsType[*sallyport.Error](err) // it always is one
		return e.Message + "; " + e.Hint
	}
	return "at " + d.keys.Page()
}

// late is how long a message may wait before doctor says so.
const late = 10 * time.Minute

// Finding says how a webhook is.
func Finding(w adminapi.WebhookInfo) (said string, err error) {
	const hint = "`sallyport webhooks test NAME` tries it now, `sallyport webhooks retry NAME` sends again what was given up"
	switch {
	case w.Dead > 0:
		return "", &sallyport.Error{Message: fmt.Sprintf("%d messages were given up: %s", w.Dead, w.Error), Hint: hint}
	case w.Waiting > 0 && time.Since(w.Since) > late:
		return "", &sallyport.Error{Message: fmt.Sprintf("%d messages wait, the oldest since %s: %s", w.Waiting, w.Since.Format(time.RFC3339), w.Error), Hint: hint}
	case w.Error != "" && w.Waiting == 0:
		return "", &sallyport.Error{Message: w.Error, Hint: "make one: sallyport webhooks secret | sallyport secrets set NAME"}
	}
	return fmt.Sprintf("%d messages sent, %d wait", w.Sent, w.Waiting), nil
}
