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

// isNear tells a host that is this machine or in a private network.
func isNear(host string) bool {
	var l finding.List
	inner(&l, host, nearness{sallyport.High, sallyport.High})
	return l.Risk().Level >= sallyport.High
}

// nearby judges a request that only asks by its method, to this machine or a
// private network. What answers there is often made for one's own: consoles,
// devices, hooks and test servers act when they are asked. So more words count
// than on the web, wherever they stand.
func nearby(l *finding.List, u *url.URL) {
	says := func(what string) {
		l.Add(sallyport.High, "the address says %s, which a server nearby may do though the method only asks", what)
	}
	parts := split(u.Path)
	for i, part := range parts {
		part, _, _ = strings.Cut(part, ";")
		ws, last := cloud.Words(part), i == len(parts)-1
		if len(ws) == 0 || len(ws) > 4 {
			continue
		}
		if i < 2 && !last && hooks[ws[len(ws)-1]] || !last && (ws[0] == "pay" || leads[ws[0]] && !versioned.MatchString(parts[0])) ||
			slices.ContainsFunc(ws, ends) || last && slices.ContainsFunc(ws, acting) {
			says(part)
		}
	}
	values := u.Query()
	for _, name := range sortedKeys(values) {
		if ws := cloud.Words(name); len(ws) <= 3 && slices.ContainsFunc(ws, func(w string) bool { return ends(w) || toggles[w] }) {
			says(name)
		}
		told := tells[strings.ToLower(name)]
		for _, v := range values[name] {
			ws := cloud.Words(v)
			if changes.MatchString(v) || len(ws) <= 3 && slices.ContainsFunc(ws, ends) || told && slices.ContainsFunc(ws, func(w string) bool {
				return acting(w) || ends(w) || toggles[w] || opaque[strings.ToLower(name)] && !reads[w]
			}) {
				says(name + "=" + v[:min(len(v), 60)])
			}
		}
	}
}

// ends tells a word that takes away or turns off, acting any that acts.
func ends(w string) bool { return gone[w] || off[w] }

func acting(w string) bool {
	return asked[w] || orders[w] || asksOfOne[w] && w != "test" && w != "release" || more[w]
}

var (
	// hooks lead to what is done when an address is asked for.
	hooks = set("hook hooks webhook webhooks trigger triggers cron crons")
	// leads are verbs in front of what they are done to: /exec/NAME, /SET/key/value.
	leads = set("exec execute run write set del invoke eval close leave call incr decr expire rename flushdb flushall lpush rpush lpop rpop sadd srem hset hdel publish relay")
	// off turns something off or back.
	off = set("quit quitquitquit abortabortabort exit poweroff reboot restart shutdown halt flushall flushdb reset wipe undeploy unload dropall killall stopall leave")
	// toggles do so as the name of what a query gives.
	toggles = set("turn power toggle restore clear disable")
	// more are verbs that addresses nearby end in.
	more = set("abort reload reindex gc deploy redeploy migrate seed revalidate cleanup prune compact snapshot rebuild invoke send notify broadcast pay transfer refund eval shell command console format upgrade update install import apply commit write set save create add insert remove unload fail drain cordon reconcile down failover promote demote")
	// tells are parameters that say what to do.
	tells = set("action actions cmd cmnd command do op operation mode method act task a r route turn action_mode func function fn verb event exec goformid")
	// opaque are those of them by which devices and shells are told anything.
	opaque = set("cmd cmnd command exec goformid turn")
	reads  = set("status state info list get show version ping help stats read view")

	// changes is a statement in a query that is no question.
	changes   = regexp.MustCompile(`(?i)^\s*(drop|delete|truncate|alter|insert|update|create|grant|revoke|kill|replace|merge|call|exec|set|system|optimize|rename|attach|detach)\s+\S`)
	versioned = regexp.MustCompile(`^(api|v[0-9]+)$`)
)
