package message

import (
	"net/mail"
	"net/url"
	"regexp"
	"strings"

	"sallyport.dev/sallyport/risk/web"
)

var (
	phone   = regexp.MustCompile(`^(?:tel:|sms:|whatsapp:)?\+?[0-9][0-9 ().-]{5,20}[0-9]$`)
	channel = regexp.MustCompile(`^#[\pL\pN._-]{1,80}$`)                                  // Slack, Discord, IRC
	chatID  = regexp.MustCompile(`^(?:[CDGUW][A-Z0-9]{8,12}|[0-9]{17,20}|-[0-9]{6,14})$`) // Slack, Discord, Telegram groups
	mention = regexp.MustCompile(`^@[A-Za-z0-9._-]{1,64}$`)
	teams   = regexp.MustCompile(`^19:[A-Za-z0-9_-]+@(?:thread\.(?:tacv2|v2|skype)|unq\.gbl\.spaces)$`)
)

// read understands one argument: a list of addresses as mail has it (RFC 5322,
// groups included), a channel, a phone number, a webhook.
func read(f Field, inner []string) []recipient {
	text := strings.TrimSpace(f.Text)
	one := recipient{path: f.Path, text: text}
	if strings.ContainsAny(text, "\r\n\x00") {
		one.key, one.place, one.odd = "?", unclear, "holds a line break, which can add recipients"
		return []recipient{one}
	}
	switch low := strings.ToLower(text); {
	case text == "":
		return nil
	case low == "@channel" || low == "@everyone" || low == "@here" || low == "<!channel>" || low == "<!everyone>" || low == "<!here>" || low == "#everyone" || low == "#all":
		one.key, one.odd = "chat", "is everybody of a channel"
		return []recipient{one}
	case channel.MatchString(text), mention.MatchString(text), teams.MatchString(text), chatID.MatchString(text):
		one.key = "chat"
		return []recipient{one}
	case phone.MatchString(text):
		one.key, one.place = "phone", outside
		return []recipient{one}
	case strings.HasPrefix(low, "mailto:"):
		return mailto(f, text, inner)
	case strings.HasPrefix(low, "http://") || strings.HasPrefix(low, "https://"):
		return []recipient{hook(one)}
	}
	return addresses(f.Path, text, inner)
}

// hook is the address of a webhook: whoever holds it reads what is sent there.
func hook(r recipient) recipient {
	r.key, r.place = "webhook", outside
	u, err := url.Parse(r.text)
	if err != nil || u.Host == "" {
		r.odd = "is an address that cannot be read"
		return r
	}
	r.key = strings.ToLower(u.Hostname())
	r.odd = web.OddName(r.key)
	return r
}

func mailto(f Field, text string, inner []string) []recipient {
	rest := text[len("mailto:"):]
	to, query, _ := strings.Cut(rest, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return []recipient{{path: f.Path, text: text, key: "?", place: unclear, odd: "cannot be read"}}
	}
	list := []string{to}
	for name, vs := range values {
		switch strings.ToLower(name) {
		case "to", "cc", "bcc":
			list = append(list, vs...)
		}
	}
	var out []recipient
	for _, l := range list {
		if plain, err := url.PathUnescape(l); err == nil && plain != "" {
			out = append(out, addresses(f.Path, plain, inner)...)
		}
	}
	return out
}

func addresses(path, text string, inner []string) []recipient {
	list, err := mail.ParseAddressList(text)
	if err != nil {
		list, err = mail.ParseAddressList(strings.ReplaceAll(text, ";", ","))
	}
	if err != nil || len(list) == 0 {
		return []recipient{{path: path, text: text, key: "?", place: unclear, odd: "is no address that can be read, so where it goes is unknown"}}
	}
	out := make([]recipient, 0, len(list))
	for _, a := range list {
		out = append(out, address(path, a, inner))
	}
	return out
}

func address(path string, a *mail.Address, inner []string) recipient {
	at := strings.LastIndexByte(a.Address, '@')
	local, domain := a.Address[:at], a.Address[at+1:]
	r := recipient{path: path, text: a.Address, place: outside}
	r.key, r.odd = domainOf(domain)
	if internal(r.key, inner) && !strings.ContainsAny(local, "%!@") {
		r.place = inside
	}
	if a.Name != "" {
		r.text = a.Name + " <" + a.Address + ">"
	}
	if r.odd != "" {
		return r
	}
	switch name := strings.ToLower(a.Name); {
	case strings.ContainsAny(local, "%!@"):
		r.odd = "can be passed on to another server by its form"
	case strings.Contains(name, "@") && !strings.Contains(name, strings.ToLower(a.Address)):
		r.odd = "shows another address than it goes to"
	case web.Mixed(a.Name) != "":
		r.odd = "has a name of letters that look like others"
	case r.place != inside && near(r.key, inner):
		r.odd = "is at a domain that looks like one of ours"
	}
	return r
}

// near tells whether a domain is one letter away from one of list, or has its
// name with another ending or an addition: examp1e.com, example.co,
// example-mail.com.
func near(domain string, list []string) bool {
	for _, d := range list {
		d = strings.ToLower(strings.TrimPrefix(d, "@"))
		name, _, _ := strings.Cut(d, ".")
		if len(name) >= 4 && (strings.HasPrefix(domain, name+".") || strings.HasPrefix(domain, name+"-") || strings.Contains(domain, d+".")) {
			return true
		}
		if len(d) >= 6 && distance(domain, d) == 1 {
			return true
		}
	}
	return false
}

// distance is 1 for texts that differ by one letter changed, added or left out,
// or two letters swapped; 0 for equal ones; else 2.
func distance(a, b string) int {
	if a == b {
		return 0
	}
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	ra, rb := a[i:], b[i:]
	switch {
	case len(ra) == len(rb) && ra[1:] == rb[1:],
		len(ra) == len(rb)+1 && ra[1:] == rb,
		len(rb) == len(ra)+1 && rb[1:] == ra,
		len(ra) > 1 && len(rb) > 1 && ra[0] == rb[1] && ra[1] == rb[0] && ra[2:] == rb[2:]:
		return 1
	}
	return 2
}
