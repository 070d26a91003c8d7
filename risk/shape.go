package risk

import (
	"regexp"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/cloud"
	"sallyport.dev/sallyport/risk/message"
	"sallyport.dev/sallyport/risk/money"
	"sallyport.dev/sallyport/risk/web"
)

// sightings are values that tell by their own form what an argument is, wherever
// it stands and whatever it is called. Together they make requests, transfers
// and messages.
type sightings struct {
	methods    []string
	urls       []string
	paths      []string // of a URL without its host
	numbers    []money.Transfer
	currencies []string
	accounts   []string
	addresses  []string // of mail, and telephone numbers
	channels   []string
	prose      []string // texts of more than one word
	texts      int
	actions    []string // of a cloud
	graphql    []string
	more       bool // there was more of a kind than is kept
}

// maxSeen bounds each kind of sighting.
const maxSeen = 32

func (s *sightings) keep(list *[]string, text string) {
	if len(*list) < maxSeen {
		*list = append(*list, text)
	} else {
		s.more = true
	}
}

var (
	telephone = regexp.MustCompile(`^(?:tel:|sms:|whatsapp:)?\+[1-9][0-9]{7,14}$`)
	room      = regexp.MustCompile(`^(?:#[a-z0-9][a-z0-9._-]{1,79}|<![a-z]+>|@(?:channel|everyone|here))$`)
	awsAction = regexp.MustCompile(`^(?:[a-z0-9-]{2,32}:)?[A-Z][a-z]+(?:[A-Z]+[a-z0-9]*)+$`)
	otherAct  = regexp.MustCompile(`^(?:[a-z]+(?:[_-][a-z]+)+|[a-z]+(?:\.[a-zA-Z]+){2,}|Microsoft\.[A-Za-z]+(?:/[A-Za-z]+)+)$`)
)

// number notes a number, which may be an amount.
func (s *sightings) number(text string, number bool) {
	if len(s.numbers) < maxSeen {
		s.numbers = append(s.numbers, money.Transfer{Amount: text, Number: number})
	} else {
		s.more = true
	}
}

// text notes what one text is.
func (s *sightings) text(text string) {
	t := strings.TrimSpace(text)
	if t == "" {
		return
	}
	s.texts++
	switch {
	case isURL(t) && !strings.ContainsAny(t, " \t\n"):
		s.keep(&s.urls, t)
		return
	case t[0] == '/' && len(t) > 1 && !strings.ContainsAny(t, " \t\n"):
		s.keep(&s.paths, t)
		return
	case len(t) <= 12 && web.IsMethod(t):
		s.keep(&s.methods, t)
	case isAmount(t):
		s.number(t, false)
	case len(t) == 3 && money.Known(t) && !wordlike[t]:
		s.keep(&s.currencies, t)
	case money.IsAccount(t):
		s.keep(&s.accounts, t)
	case message.IsAddress(t) || strings.HasPrefix(t, "mailto:") || strings.Contains(t, "@") && len(t) < 4096 && isList(t) || telephone.MatchString(t):
		s.keep(&s.addresses, t)
	case room.MatchString(t):
		s.keep(&s.channels, t)
	case len(t) <= 128 && (awsAction.MatchString(t) || otherAct.MatchString(t)):
		s.keep(&s.actions, t)
	case strings.ContainsAny(t, " \t\n"):
		if len(s.prose) < maxSeen {
			s.prose = append(s.prose, t)
		}
		s.line(t)
	}
	if strings.Contains(t, "mutation") {
		s.keep(&s.graphql, t)
	}
}

// line sees a request that is written in one text: DELETE https://…
func (s *sightings) line(t string) {
	first, rest, _ := strings.Cut(t, " ")
	address, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	address, _, _ = strings.Cut(address, " ")
	if len(first) <= 12 && web.IsMethod(first) && (isURL(address) || strings.HasPrefix(address, "/")) {
		s.keep(&s.methods, first)
		s.keep(&s.urls, address)
	}
}

// isAmount tells whether a text is a decimal with a currency, or a decimal with
// a point: 10.00, EUR 10.
func isAmount(t string) bool {
	if len(t) > 40 || !strings.ContainsAny(t, "0123456789") {
		return false
	}
	if strings.Trim(t, "0123456789.,'_ ") == "" {
		return true // however it is to be read
	}
	_, currency, bad := money.Parse(t, false)
	return bad == "" && (currency == "" || money.Known(currency))
}

func isList(t string) bool {
	r := message.Judge(message.Message{Recipients: []message.Field{{Text: t}}, Internal: []string{"."}})
	for _, p := range r.Parts {
		if !strings.Contains(p.Text, "@") {
			return false
		}
	}
	return !strings.Contains(strings.Join(r.Reasons, " "), "no address")
}

// wordlike are codes of currencies that are words or marks as well.
var wordlike = map[string]bool{"ALL": true, "TOP": true, "TRY": true, "SOS": true, "MAD": true, "BOB": true, "PEN": true, "CUP": true, "GEL": true, "SOL": true,
	"COP": true, "BAM": true, "MOP": true, "DAI": true, "BTN": true, "LTC": true, "STN": true}

// judge merges what the sightings mean together. Only what raises the verdict
// counts.
func (s *sightings) judge(sc *scan) {
	s.requests(sc)
	s.clouds(sc)
	s.transfer(sc)
	s.message(sc)
	for _, g := range s.graphql {
		s.raise(sc, web.Document(g))
	}
	if s.more {
		sc.found.Add(sallyport.High, "the arguments hold more values of one kind than are looked at together")
	}
}

func (s *sightings) raise(sc *scan, r sallyport.Risk) {
	if r.Level >= sallyport.High {
		sc.found.Merge(r)
	}
}

func (s *sightings) requests(sc *scan) {
	for _, u := range s.urls {
		s.raise(sc, web.Judge(web.Request{Method: "GET", URL: u, Guessed: true}))
		if r := web.Judge(web.Request{Method: "POST", URL: u}); len(s.methods) == 0 && s.texts > 1 && r.Irreversible {
			sc.found.Merge(r) // a webhook, with something to say
		}
	}
	for _, m := range s.methods {
		for _, u := range append(append([]string{}, s.urls...), s.paths...) {
			if !sc.spend() {
				return
			}
			s.raise(sc, web.Judge(web.Request{Method: m, URL: u}))
		}
	}
}

func (s *sightings) clouds(sc *scan) {
	for _, a := range s.actions {
		if r := cloud.Action(a); r.Irreversible {
			sc.found.Merge(r)
		}
	}
}

func (s *sightings) transfer(sc *scan) {
	currencies := map[string]bool{}
	for _, c := range s.currencies {
		currencies[c] = true
	}
	if len(s.numbers) == 0 || len(s.accounts) == 0 && len(currencies) == 0 && !inlineCurrency(s.numbers) {
		return
	}
	if len(s.accounts) == 0 && len(currencies) > 1 {
		return // so many of this for so many of that: a rate
	}
	t := largest(s.numbers)
	if len(s.currencies) > 0 {
		t.Currency = s.currencies[0]
	}
	t.Recipients, t.Reversible = s.accounts, len(s.accounts) == 0
	r := money.Judge(t)
	sc.found.Merge(r)
	sc.found.Add(sallyport.Critical, "an argument looks like an amount of money: declare what the tool does with it")
}

func inlineCurrency(list []money.Transfer) bool {
	for _, t := range list {
		if _, currency, bad := money.Parse(t.Amount, t.Number); bad == "" && currency != "" {
			return true
		}
	}
	return false
}

// largest is the number that would be the most money; one that cannot be read is
// more than any.
func largest(list []money.Transfer) money.Transfer {
	best, value := list[0], ""
	for _, t := range list {
		v, _, bad := money.Parse(t.Amount, t.Number)
		if bad != "" {
			return t
		}
		if money.Less(value, v) {
			best, value = t, v
		}
	}
	return best
}

func (s *sightings) message(sc *scan) {
	said := len(s.prose) > 0 || s.texts > len(s.addresses)+1
	switch {
	case len(s.addresses) > 0 && said:
		m := message.Message{Internal: sc.engine.internal, Body: strings.Join(s.prose, "\n")}
		for _, a := range s.addresses {
			m.Recipients = append(m.Recipients, message.Field{Text: a})
		}
		r := message.Judge(m)
		sc.found.Merge(sallyport.Risk{Level: min(r.Level, sallyport.Critical), Reasons: r.Reasons, Objects: r.Objects, Effects: r.Effects, Parts: r.Parts})
	case len(s.channels) > 0 && len(s.prose) > 0:
		m := message.Message{Internal: sc.engine.internal, Body: strings.Join(s.prose, "\n")}
		for _, c := range s.channels {
			m.Recipients = append(m.Recipients, message.Field{Text: c})
		}
		sc.found.Merge(message.Judge(m))
	}
}
