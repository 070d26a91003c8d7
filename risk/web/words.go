package web

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/cloud"
	"sallyport.dev/sallyport/risk/finding"
)

// words sees an address that says what is done more plainly than its method:
// POST /users/7/delete and POST /users:batchDelete take away as DELETE does, and
// GET /users/7/delete may.
func words(l *finding.List, verb string, u *url.URL) {
	verb = strings.ToUpper(strings.TrimSpace(verb))
	parts := split(u.Path)
	last := parts[len(parts)-1]
	last = last[strings.LastIndexAny(last, ":;")+1:]
	if !safe(verb) {
		if verb == "POST" || len(cloud.Words(last)) == 1 {
			acts(l, last)
		}
		before(l, parts[:len(parts)-1], strings.ContainsAny(last, "0123456789"))
		return
	}
	for i, part := range parts {
		if gone[strings.ToLower(part)] || i > 0 && identifies(parts[i-1]) && asked[strings.ToLower(part)] || i == len(parts)-2 && identifies(last) && (does(part) || links[strings.ToLower(part)]) {
			l.Add(sallyport.High, "the address says %s, which a server may do though the method only asks", part)
		}
	}
	last = strings.TrimSuffix(strings.TrimSuffix(last, ".json"), ".xml")
	if about := parts[:max(0, len(parts)-1)]; len(about) > 0 && asksOfOne[strings.ToLower(last)] && (strings.ContainsAny(about[len(about)-1], "0123456789") || u.RawQuery != "" && !titles[strings.ToLower(last)]) {
		l.Add(sallyport.High, "the address ends in %s, which a server may do though the method only asks", last)
	}
	apart := "-_ ." // titles of pages, unless something is asked of a script or an API
	switch scripted := script(&last); {
	case scripted && orders[strings.ToLower(last)]:
		l.Add(sallyport.High, "the address ends in %s, which a server may do though the method only asks", last)
	case scripted || u.RawQuery != "":
		apart = "- "
	case slices.ContainsFunc(parts[:len(parts)-1], func(p string) bool { return programs[strings.ToLower(p)] }):
		apart = " ."
	}
	ws := cloud.Words(last)
	if apart == " ." && len(ws) == 2 && asked[ws[1]] {
		ws = ws[1:]
	}
	if len(ws) > 1 && (ws[0] == "do" || ws[0] == "perform" || ws[0] == "force") {
		ws = ws[1:]
	}
	if len(ws) <= 2 && !strings.ContainsAny(last, apart) &&
		(slices.ContainsFunc(ws, func(w string) bool { return gone[w] }) || len(ws) > 0 && (asked[ws[0]] || acted[ws[0]] && !explains(u, parts))) {
		l.Add(sallyport.High, "the address says %s, which a server may do though the method only asks", last)
	}
}

// identifies tells a part that is the identifier of something: it has digits, and
// is no version.
func identifies(part string) bool {
	return strings.ContainsAny(part, "0123456789") && !version.MatchString(part)
}

// does tells a name that says what is done to what stands behind it: cancelOrder.
func does(part string) bool {
	ws := cloud.Words(part)
	return len(ws) > 1 && len(ws) <= 3 && (gone[ws[0]] || asked[ws[0]])
}

// explains tells an address of documentation, where verbs are titles.
func explains(u *url.URL, parts []string) bool {
	name, _, _ := strings.Cut(strings.ToLower(u.Hostname()), ".")
	return u.RawQuery == "" && (pages[name] || slices.ContainsFunc(parts[:min(len(parts)-1, 3)], func(p string) bool { return pages[strings.ToLower(p)] }))
}

// script tells whether a name is that of a script on the server, and leaves its
// ending out.
func script(name *string) bool {
	for _, ending := range []string{".php", ".cgi", ".pl", ".asp", ".aspx", ".jsp", ".do", ".action"} {
		if s, ok := strings.CutSuffix(*name, ending); ok {
			*name = s
			return true
		}
	}
	return false
}

// acts judges the last word of the address of a request that changes something.
// Long names are titles, not calls.
func acts(l *finding.List, last string) {
	ws := cloud.Words(last)
	if len(ws) > 3 {
		return
	}
	for _, w := range ws {
		switch {
		case gone[w]:
			l.Effect(sallyport.EffectDelete)
			l.Lost("the address says %s: what that takes away cannot be brought back", last)
		case moves[w]:
			l.Effect(sallyport.EffectMoney)
			l.Lost("the address says %s: money cannot be called back", last)
		}
	}
}

// before judges what stands before the last part of an address, which may be what
// is taken away: POST /delete/7, PUT /deleteUser/7.
func before(l *finding.List, parts []string, numbered bool) {
	for i, part := range parts {
		ws := cloud.Words(part)
		if len(ws) > 0 && gone[ws[0]] && (len(ws) == 1 || numbered && i == len(parts)-1 && len(ws) <= 3) {
			l.Effect(sallyport.EffectDelete)
			l.Lost("the address says %s: what that takes away cannot be brought back", part)
		}
	}
}

// gone are verbs that take away.
var gone = set("delete remove destroy purge drop shutdown reboot terminate unsubscribe erase wipe truncate uninstall kill")

// asked are verbs that are hardly the name of anything: an address that ends in
// one asks for it to be done.
var asked = set("off silence cancel run start stop restart execute exec trigger retry rerun resume suspend pause halt approve reject confirm activate deactivate enable disable revoke rollback revert flush logout signout logoff deauthorize deprovision publish unpublish resend unlock dismiss ban block unblock clear evict expire invalidate detach unmount")

// acted are verbs that are titles as well, of pages that explain them.
var acted = set("leave join drain migrate rotate promote demote reset restore redeploy deploy upgrade downgrade provision reindex rebuild resync sync failover evacuate cordon uncordon scale assign unassign subscribe grant refresh seed prune reload abort regenerate reprocess replay impersonate")

var (
	// pages are names of hosts and folders where things are explained.
	pages = set("docs doc documentation reference ref manual manuals man wiki guide guides blog learn help support developer developers tutorial tutorials howto commands faq kb articles topics questions pages packages package")
	// programs are folders whose names are commands.
	programs = set("api admin rpc actions action ops internal manage control cgi-bin")
	version  = regexp.MustCompile(`^(v[0-9.]+|[0-9]+\.[0-9.]+)([a-z]+[0-9]*)?$`)
	// links are what one-time addresses do: /approve/TOKEN.
	links = set("approve reject confirm activate deactivate revoke unlock unsubscribe dismiss cancel disable")
	// titles are verbs after which a query asks for a list.
	titles = set("archive build open release test lock charge")
)

// asksOfOne are verbs that are names as well; after an identifier they are asked for.
var asksOfOne = set("archive build close deploy lock merge open refresh release reset restore scale send submit sync trash accept charge pay refund capture void transfer withdraw rotate renew complete finish fail fire test ack acknowledge resolve assign")

// orders are verbs that change something where a query names what to do.
var orders = set("rm del trash disable restart reboot stop halt suspend ban block flush clear evict expire invalidate approve publish unsubscribe rollback revert detach unmount exec execute run eval")

// ordered tells whether one word of what a query says to do is an order.
func ordered(do string) bool {
	return removes(do) || slices.ContainsFunc(cloud.Words(do), func(w string) bool { return orders[w] || asked[w] })
}

// moves are what addresses call the movement of money.
var moves = set("pay payment payments payout payouts transfer transfers refund refunds charge charges withdraw withdrawal withdrawals remittance remittances disbursement disbursements")

func set(list string) map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.Fields(list) {
		out[w] = true
	}
	return out
}
