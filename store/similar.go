package store

import (
	"slices"
	"strings"
	"time"

	"sallyport.dev/sallyport"
)

// TicketRules bound what may be asked of humans. Zero fields ask for nothing.
type TicketRules struct {
	Cooldown  time.Duration // after a rejection, nothing similar may be asked for
	PerAgent  int           // tickets of one principal that wait at once
	PerTenant int           // of all principals of a tenant
}

// grave are the effects that are alike whatever they are done to: who was
// refused one of them is not to try it elsewhere at once.
var grave = []string{
	sallyport.EffectDelete, sallyport.EffectDestroy, sallyport.EffectPrivileges, sallyport.EffectMoney, sallyport.EffectMessage,
}

// Similar says what a new question has in common with one that was rejected,
// or "". The same tool is similar, and so is whatever touches the same objects,
// has the same grave effect, or cannot be read well enough to be told apart,
// through any other tool.
func Similar(rejected, asked sallyport.Ticket) string {
	if rejected.Binding.Tool == asked.Binding.Tool {
		return "the same tool"
	}
	if o := SharedObject(rejected.Risk, asked.Risk); o != "" {
		return o
	}
	for _, e := range asked.Risk.Effects {
		if slices.Contains(grave, e) && slices.Contains(rejected.Risk.Effects, e) {
			return "the same effect, " + e
		}
	}
	if len(asked.Risk.Objects) == 0 || slices.Contains(asked.Risk.Effects, sallyport.EffectOpaque) {
		return "an effect that cannot be read"
	}
	return ""
}

// SharedObject is an object of b that is, contains or lies in an object of a.
func SharedObject(a, b sallyport.Risk) string {
	for _, o := range b.Objects {
		if slices.ContainsFunc(a.Objects, func(x string) bool { return within(plain(x), plain(o)) || within(plain(o), plain(x)) }) {
			return o
		}
	}
	return ""
}

// plain is an object's name without quotes, case and a trailing slash.
func plain(s string) string {
	s = strings.Map(func(r rune) rune {
		if strings.ContainsRune("\"'`[] \t", r) {
			return -1
		}
		return r
	}, strings.ToLower(s))
	return strings.TrimRight(s, "/.")
}

// within reports whether b is a, is below the folder a, or is a in a schema or
// domain.
func within(a, b string) bool {
	return a != "" && (a == b || strings.HasPrefix(b, a+"/") || strings.HasSuffix(b, "."+a))
}
