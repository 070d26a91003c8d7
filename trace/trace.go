// Package trace follows a call through several programs by the W3C Trace Context:
// a traceparent names the trace and the span that a request comes from.
//
// Which trace a call belongs to is one rule: the traceparent in its _meta if that
// is valid, else the one in its HTTP header if that is, else a new one. Of a trace
// that a caller brings, the name of the trace is kept, and the gateway is a span
// of its own in it. Nothing else of a caller's context travels on: tracestate and
// baggage would carry what nobody has looked at.
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
