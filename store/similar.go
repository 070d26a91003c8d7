package store

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/text/unicode/norm"

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

// plain is an object's name in the one form in which names are compared: without
// quotes, case, port and the forms that Unicode and paths give the same thing.
// Of a pattern it is the folder in which it matches.
func plain(s string) string {
	s = strings.Map(func(r rune) rune {
		if strings.ContainsRune("\"'`[] \t", r) {
			return -1
		}
		return r
	}, norm.NFKC.String(strings.ToLower(norm.NFKC.String(s))))
	s = port.ReplaceAllString(strings.ReplaceAll(s, `\`, "/"), "$1")
	written := s
	if i := strings.IndexAny(s, "*?{"); i >= 0 && strings.Contains(s[:i], "/") {
		s = s[:strings.LastIndexByte(s[:i], '/')+1]
	}
	if strings.Contains(s, "/") {
		if s = path.Clean("/" + s)[1:]; strings.HasPrefix(written, "/") {
			s = "/" + s
		}
	}
	if len(s) > 1 {
		s = strings.TrimRight(s, "/.")
	}
	return s
}

// port is that of a host.
var port = regexp.MustCompile(`^([^/:]+):[0-9]+$`)

// within reports whether b is a, is below the folder a, is a in a schema or
// domain, or is what a relative path may mean. Names of one place may differ in
// how much of it they say: that is too much rather than too little.
func within(a, b string) bool {
	return a != "" && (a == b || strings.HasPrefix(b, strings.TrimSuffix(a, "/")+"/") || strings.HasSuffix(b, "."+a) || strings.HasSuffix(b, "/"+a))
}
