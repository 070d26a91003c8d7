// Package message judges what tells somebody something: mail, chat, text
// messages. What leaves the organisation cannot be called back.
package message

import (
	"fmt"
	"net/mail"
	"slices"
	"strings"

	"golang.org/x/net/idna"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
	"sallyport.dev/sallyport/risk/web"
)

const (
	maxRecipients = 5000
	many          = 50 // recipients are a mailing
	maxShown      = 12 // recipients of which each is a part of its own
)

// A Message is what a call sends, as its arguments have it.
type Message struct {
	Recipients  []Field
	Subject     string
	Body        string
	Attachments []string
	Internal    []string // domains of the organisation itself, and their subdomains
}

// A Field is one argument with recipients: an address, a list, a channel.
type Field struct {
	Path string
	Text string
}

// A place is where one recipient is.
type place int

const (
	inside  place = iota // in the organisation
	outside              // elsewhere
	unclear              // cannot be told
)

// A recipient is one address, as it was understood.
type recipient struct {
	path, text string
	key        string // domain, or kind of channel: recipients of one key are alike
	place      place
	odd        string // why a human must look at it
}

// Judge says what sending the message does.
func Judge(m Message) sallyport.Risk {
	var l finding.List
	l.Effect(sallyport.EffectMessage)
	var all []recipient
	for _, f := range m.Recipients {
		all = append(all, read(f, m.Internal)...)
		if len(all) > maxRecipients {
			l.Add(sallyport.Critical, "has more than %d recipients", maxRecipients)
			break
		}
	}
	if len(all) == 0 {
		l.Add(sallyport.Critical, "sends a message, and to whom is not said")
	}
	judgePlaces(&l, all)
	show(&l, all)
	if n := everybody(m.Subject + " " + m.Body); n != "" {
		l.Part("", "recipient", n)
		l.Add(sallyport.Critical, "calls everybody of a channel: %s", n)
	}
	for _, a := range m.Attachments {
		l.Part("", "attachment", a)
		l.Object(a)
		if finding.SecretPath(a) {
			l.Add(sallyport.Critical, "attaches %s, which holds secrets", a)
		}
	}
	if len(m.Attachments) > 0 {
		l.Add(sallyport.High, "attaches %d %s", len(m.Attachments), plural(len(m.Attachments), "file"))
	}
	l.Part("", "subject", m.Subject)
	if strings.ContainsAny(m.Subject, "\r\n\x00") {
		l.Add(sallyport.Critical, "the subject holds a line break, which can add recipients")
	}
	return l.Risk()
}

func judgePlaces(l *finding.List, all []recipient) {
	out, domains := 0, map[string]bool{}
	for _, r := range all {
		switch {
		case r.place != inside:
			out++
			domains[r.key] = true
		}
		if r.odd != "" {
			l.Add(sallyport.Critical, "%s %s", quoted(r.text), r.odd)
		}
	}
	switch {
	case len(all) == 0:
	case out == 0:
		l.Add(sallyport.High, "sends a message to %d %s inside", len(all), plural(len(all), "recipient"))
		if len(all) > many {
			l.Add(sallyport.Critical, "sends a message to %d recipients at once", len(all))
		}
	default:
		names := sorted(domains)
		l.Lost("sends a message outside: %d of %d %s, at %s", out, len(all), plural(len(all), "recipient"), strings.Join(names[:min(8, len(names))], ", "))
	}
}

// show names the odd recipients first, then those of the rarest domains: one
// stranger among five hundred colleagues must not drown.
func show(l *finding.List, all []recipient) {
	count := map[string]int{}
	for _, r := range all {
		count[r.key]++
	}
	order := slices.Clone(all)
	slices.SortStableFunc(order, func(a, b recipient) int {
		switch {
		case (a.odd != "") != (b.odd != ""):
			return sign(a.odd != "")
		case (a.place != inside) != (b.place != inside):
			return sign(a.place != inside)
		}
		return count[a.key] - count[b.key]
	})
	if len(order) > maxShown {
		l.Part("", "recipients", fmt.Sprintf("%d in all: %s", len(all), counts(count)))
	}
	for _, r := range order[:min(maxShown, len(order))] {
		l.Part(r.path, "recipient", r.text)
		l.Object(r.text)
	}
}

func sign(first bool) int {
	if first {
		return -1
	}
	return 1
}

func counts(count map[string]int) string {
	keys := sorted(count)
	slices.SortStableFunc(keys, func(a, b string) int { return count[a] - count[b] })
	var out []string
	for _, k := range keys[:min(8, len(keys))] {
		out = append(out, fmt.Sprintf("%d at %s", count[k], k))
	}
	return strings.Join(out, ", ")
}

func sorted[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

func quoted(s string) string {
	if len(s) > 120 {
		s = s[:120] + "…"
	}
	return fmt.Sprintf("%q", s)
}

// everybody finds a call to all members of a channel.
func everybody(text string) string {
	low := strings.ToLower(text)
	for _, w := range []string{"<!channel>", "<!everyone>", "<!here>", "<!subteam", "@channel", "@everyone", "@here"} {
		if i := strings.Index(low, w); i >= 0 && (w[0] == '<' || alone(low, i, len(w))) {
			return w
		}
	}
	return ""
}

// alone tells whether what stands at i is a word of its own, not part of an
// address.
func alone(s string, i, n int) bool {
	before := i == 0 || !word(s[i-1])
	after := i+n == len(s) || !word(s[i+n]) && !(s[i+n] == '.' && i+n+1 < len(s) && word(s[i+n+1]))
	return before && after
}

func word(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '+' || c >= 0x80
}

// domainOf brings a domain into its form in the DNS and says what is odd in it.
func domainOf(domain string) (ascii, odd string) {
	domain = strings.ToLower(strings.TrimSuffix(strings.TrimSpace(domain), "."))
	if strings.HasPrefix(domain, "[") {
		return domain, "is at a bare address instead of a domain"
	}
	ascii, err := idna.Lookup.ToASCII(domain)
	if err != nil || ascii == "" {
		return domain, "has a domain that is none"
	}
	return ascii, web.OddName(ascii)
}

func internal(domain string, list []string) bool {
	for _, d := range list {
		d = strings.ToLower(strings.TrimPrefix(d, "@"))
		if domain == d || strings.HasSuffix(domain, "."+d) {
			return true
		}
	}
	return false
}

// IsAddress tells whether a whole text is one mail address.
func IsAddress(s string) bool {
	if len(s) > 320 || !strings.Contains(s, "@") || strings.ContainsAny(s, " \t\r\n<>,;\"") {
		return false
	}
	a, err := mail.ParseAddress(s)
	if err != nil {
		return false
	}
	_, domain, _ := strings.Cut(a.Address, "@")
	return strings.Contains(domain, ".")
}
