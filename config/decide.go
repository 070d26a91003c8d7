package config

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// A Webhook attaches another tool, such as chat, to the tickets.
type Webhook struct {
	URL       string           `yaml:"url"`       // told what happens; https://…, or http:// on this machine: nothing is told
	Secret    string           `yaml:"secret"`    // ${secret:NAME}, which signs what is told
	Events    []string         `yaml:"events"`    // of opened, voted, decided, escalated, withdrawn, voided: all
	Decisions WebhookDecisions `yaml:"decisions"` // what may come in: nothing
}

// WebhookDecisions say what a tool may decide.
type WebhookDecisions struct {
	Secret       string            `yaml:"secret"`       // ${secret:NAME}, which signs what comes in
	Users        map[string]string `yaml:"users,text"`   // users of the tool: the admin that each of them is
	May          []string          `yaml:"may"`          // of approve, reject: both
	Irreversible bool              `yaml:"irreversible"` // may approve what cannot be undone: false
	Risk         string            `yaml:"risk"`         // may approve up to this: critical
}

// Enabled reports whether decisions may come in.
func (d WebhookDecisions) Enabled() bool { return d.Secret != "" }

// The values of approvals.passkeys.
const (
	PasskeysOff      = "off"
	PasskeysEnrolled = "enrolled"
	PasskeysRequired = "required"
)

// deciding checks the ways to decide tickets, and fills in their defaults.
func (d *decoder) deciding(c *Config) {
	a := &c.Approvals
	d.oneOf("approvals.passkeys", a.Passkeys, PasskeysOff, PasskeysEnrolled, PasskeysRequired)
	if a.URL != "" {
		d.page("approvals.url", a)
	}
	for _, name := range sortedKeys(a.Webhooks) {
		key := "approvals.webhooks." + name
		d.name(key, "webhook", name, profileName, "use small letters, digits and hyphens, at most 32")
		w := a.Webhooks[name]
		d.webhook(key, &w)
		a.Webhooks[name] = w
	}
}

// page checks the address of the approvers' page: of all of it only the origin
// counts.
func (d *decoder) page(key string, a *Approvals) {
	const hint = "write https://NAME[:PORT], or http://localhost:PORT: where approvers' browsers reach the gateway"
	u, err := url.Parse(a.URL)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/":
		d.fail(d.places[key], hint, "%s is not the address of a host", key)
	case u.Scheme != "https" && (u.Scheme != "http" || u.Hostname() != "localhost" && !strings.HasSuffix(u.Hostname(), ".localhost")):
		d.fail(d.places[key], hint, "%s must be https, except on localhost", key)
	default:
		a.URL = u.Scheme + "://" + strings.ToLower(u.Host)
	}
}

func (d *decoder) webhook(key string, w *Webhook) {
	_, decides := d.places[key+".decisions"]
	switch {
	case w.URL == "" && !decides:
		d.fail(d.places[key], "give it a url, decisions, or both", "%s does nothing", key)
	case w.URL == "":
		if _, set := d.places[key+".secret"]; set {
			d.fail(d.places[key+".secret"], "the secret of what comes in stands below decisions", "%s.secret signs nothing without a url", key)
		}
	default:
		d.receiver(key+".url", w.URL)
		d.signedWith(key+".secret", key, w.Secret)
	}
	d.each(key+".events", w.Events, func(key, event string) {
		d.oneOf(key, event, "opened", "voted", "decided", "escalated", "withdrawn", "voided")
	})
	if decides {
		d.decisions(key+".decisions", &w.Decisions)
	}
	if w.Secret != "" && w.Secret == w.Decisions.Secret {
		d.fail(d.places[key+".decisions.secret"], "make another one: who can check what is told must not be able to decide", "%s uses one secret both ways", key)
	}
}

// receiver checks where messages go. What leaves this machine is encrypted. A
// private address is the operator's choice.
func (d *decoder) receiver(key, s string) {
	const hint = "write https://HOST[:PORT]/PATH; http:// is for this machine only"
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Fragment != "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
		d.fail(d.places[key], hint, "%s is not the URL of an HTTP endpoint without a user", key)
		return
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if u.Scheme == "http" && u.Hostname() != "localhost" && (err != nil || !ip.IsLoopback()) {
		d.fail(d.places[key], hint, "%s would send tickets in the clear", key)
	}
}

// signedWith checks a reference to one secret.
func (d *decoder) signedWith(key, above, value string) {
	p, set := d.places[key]
	if !set {
		p = d.places[above]
	}
	if names := References(value); len(names) != 1 || value != referenceOpen+names[0]+"}" {
		d.fail(p, "write ${secret:NAME}; make the secret with: sallyport webhooks secret | sallyport secrets set NAME", "%s must be a reference to a secret", key)
	}
}

func (d *decoder) decisions(key string, w *WebhookDecisions) {
	d.signedWith(key+".secret", key, w.Secret)
	if len(w.Users) == 0 {
		d.fail(d.places[key], "write users: {USER-OF-THE-TOOL: ADMIN}", "%s.users names nobody who may decide", key)
	}
	for _, user := range sortedKeys(w.Users) {
		d.name(key+".users."+user, "admin", w.Users[user], agentName, "use the name of an admin, as `sallyport login --name` takes it")
	}
	d.each(key+".may", w.May, func(key, what string) { d.oneOf(key, what, "approve", "reject") })
	if _, set := d.places[key+".may"]; !set {
		w.May = []string{"approve", "reject"}
	} else if len(w.May) == 0 {
		d.fail(d.places[key+".may"], "write [reject], or [approve, reject]", "%s.may is empty", key)
	}
	if w.Risk == "" {
		w.Risk = "critical"
	}
	d.oneOf(key+".risk", w.Risk, "low", "medium", "high", "critical")
	if w.Irreversible && !slices.Contains(w.May, "approve") {
		d.fail(d.places[key+".irreversible"], "take it out, or let it approve", "%s.irreversible is about approving", key)
	}
}
