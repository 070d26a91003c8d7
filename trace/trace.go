// Package trace follows a call through several programs by the W3C Trace Context:
// a traceparent names the trace and the span that a request comes from.
//
// Which trace a call belongs to is one rule: the traceparent in its _meta if that
// is valid, else the one in its HTTP header if that is, else a new one. Of a trace
// that a caller brings, the name of the trace is kept, and the gateway is a span
// of its own in it. tracestate and baggage go on with it, from the same place, where they
// are what the specifications say; who passes them on sees to it that they hold no secret.
package trace

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
)

const (
	length = 55 // 00-32 digits-16 digits-2 digits
	zero   = "0000000000000000"
)

// Pick returns the first traceparent that is valid, or one of a new trace.
func Pick(candidates ...string) string {
	for _, c := range candidates {
		if Valid(c) {
			return c
		}
	}
	return format(digits(16), digits(8), "00")
}

// A Context is what a caller says of its trace in one place.
type Context struct{ Parent, State, Baggage string }

// Choose returns the first context whose traceparent is valid, with what else of it is;
// else one of a new trace.
func Choose(candidates ...Context) Context {
	for _, c := range candidates {
		if Valid(c.Parent) {
			if !list(c.State, 512, 32, stateMember) {
				c.State = ""
			}
			if !list(c.Baggage, 8192, 64, baggageMember) {
				c.Baggage = ""
			}
			return c
		}
	}
	return Context{Parent: Pick()}
}

// list tells whether s is a list of members, within bounds.
func list(s string, bytes, members int, is func(string) bool) bool {
	if s == "" || len(s) > bytes || strings.Count(s, ",") >= members {
		return false
	}
	some := false
	for m := range strings.SplitSeq(s, ",") {
		m = strings.Trim(m, " \t")
		if m != "" && !is(m) {
			return false
		}
		some = some || m != ""
	}
	return some
}

// stateMember: a key of lower-case letters, digits and a few signs, and a value of
// printable ASCII without "=".
func stateMember(m string) bool {
	key, value, ok := strings.Cut(m, "=")
	return ok && key != "" && len(key) <= 256 && strings.Trim(key, "abcdefghijklmnopqrstuvwxyz0123456789_-*/@") == "" &&
		strings.Trim(key[:1], "_-*/@") != "" && value != "" && len(value) <= 256 && printable(value, "=")
}

// baggageMember: a token, and a value of what a header may hold, with properties.
func baggageMember(m string) bool {
	key, value, ok := strings.Cut(m, "=")
	key = strings.TrimRight(key, " \t")
	return ok && key != "" && printable(key, ` "(),/:;<=>?@[\]{}`) && printable(strings.Map(blank, value), `"\`)
}

// blank takes white space for something that may stand anywhere.
func blank(r rune) rune {
	if r == ' ' || r == '\t' {
		return '_'
	}
	return r
}

func printable(s, but string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' || strings.IndexByte(but, s[i]) >= 0 {
			return false
		}
	}
	return true
}

// Continue returns the traceparent of a new span in the trace of parent; of a new
// trace if parent is not valid.
func Continue(parent string) string {
	parent = Pick(parent)
	return format(parent[3:35], digits(8), parent[53:])
}

func format(id, span, flags string) string { return "00-" + id + "-" + span + "-" + flags }

// digits are random, and not all zero.
func digits(n int) string {
	b := make([]byte, n)
	for {
		rand.Read(b)
		if s := hex.EncodeToString(b); strings.Trim(s, "0") != "" {
			return s
		}
	}
}

// Valid tells whether s is a traceparent of version 00. Of a version to come
// nothing is known, so a trace of one begins anew here.
func Valid(s string) bool {
	if len(s) != length || s[:3] != "00-" || s[35] != '-' || s[52] != '-' {
		return false
	}
	for i := 3; i < len(s); i++ {
		if c := s[i]; i != 35 && i != 52 && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return s[3:35] != zero+zero && s[36:52] != zero
}
