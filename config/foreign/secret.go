package foreign

import (
	"net/url"
	"regexp"
	"strings"
	"sync"
	"unicode"
)

// lazy compiles a pattern when it is first needed: most commands never do.
func lazy(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// Words in the name of a variable, header or option that say that its value is a
// secret.
var secretWords = lazy(`(?i)(?:^|[^a-z])(?:token|secret|password|passwd|passphrase|pass|pwd|api_?-?key|apikey|access_?-?key|private_?-?key|key|pat|auth|authorization|credentials?|cookie|session|jwt|bearer|dsn|connection_?string|database_?url|webhook(?:_?url)?)(?:$|[^a-z])|(?:token|secret|password|apikey|passwd)s?$`)

// camel is the end of a word in a name such as apiKey.
var camel = lazy(`([a-z0-9])([A-Z])`)

func secretName(name string) bool {
	return secretWords().MatchString(camel().ReplaceAllString(name, "${1}_$2"))
}

// Beginnings by which services mark their keys.
var marked = lazy(`(?:^|[^A-Za-z0-9])(?:sk-|sk_live_|sk_test_|rk_live_|pk_live_|ghp_|gho_|ghu_|ghs_|ghr_|github_pat_|glpat-|xox[abposr]-|xapp-|AKIA[0-9A-Z]{12}|ASIA[0-9A-Z]{12}|AIza[0-9A-Za-z_-]{20}|ya29\.|eyJ[A-Za-z0-9_-]{10}|hf_[A-Za-z]{10}|npm_[A-Za-z0-9]{20}|dop_v1_|SG\.[A-Za-z0-9_-]{10}|lin_api_|ntn_|secret_[A-Za-z0-9]{10}|tvly-|-----BEGIN )|(?i)\b(?:bearer|basic|token) +[A-Za-z0-9+/_.=-]{8,}|[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@`)

// secretValue reports whether a value looks like a secret, whatever it is called.
func secretValue(v string) bool { return marked().MatchString(v) || random(v) }

// random reports whether a word looks drawn by lot: long, without a space, with
// letters and digits well mixed.
func random(v string) bool {
	for _, word := range strings.FieldsFunc(v, func(r rune) bool { return strings.ContainsRune(" \t\n,;=:/?&@\"'", r) }) {
		if len(word) < 24 {
			continue
		}
		digits, upper, lower := 0, 0, 0
		for _, r := range word {
			switch {
			case unicode.IsDigit(r):
				digits++
			case unicode.IsUpper(r):
				upper++
			case unicode.IsLower(r):
				lower++
			}
		}
		if digits >= 4 && upper+lower >= 4 && strings.Count(word, "-")+strings.Count(word, ".")+strings.Count(word, "_") < 5 {
			return true
		}
	}
	return false
}

// What a value is, if it plainly is no secret.
var (
	small  = lazy(`^(?:true|false|yes|no|on|off|-?[0-9]{1,8}(?:\.[0-9]{1,4})?[a-z]{0,2})$`)
	simple = lazy(`^[A-Za-z][A-Za-z ._-]{0,31}$`)
	path   = lazy(`^(?:/|~/|\./|[A-Za-z]:\\)[\w ./\\@+-]{0,400}$`)
	host   = lazy(`^[a-z0-9][a-z0-9.-]{0,100}\.[a-z]{2,20}(?::[0-9]{1,5})?$|^(?:localhost|127\.0\.0\.1)(?::[0-9]{1,5})?$`)
	accept = lazy(`^[a-z]+/[a-z0-9.+*-]+(?:, ?[a-z]+/[a-z0-9.+*-]+){0,4}$`)
)

// uuid is how things are numbered; as an argument it is more often a number than
// a key.
var uuid = lazy(`^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// drawn is secretValue for a text that has its place: a path or a number may
// look drawn by lot.
func drawn(v string) bool {
	return marked().MatchString(v) || random(v) && !path().MatchString(v) && !uuid().MatchString(v)
}

// harmless reports whether a value plainly is no secret. What is not plain is
// taken for one: a secret too many costs nothing.
func harmless(v string) bool {
	if v == "" || small().MatchString(v) {
		return true
	}
	if secretValue(v) {
		return false
	}
	if simple().MatchString(v) || path().MatchString(v) || host().MatchString(v) || accept().MatchString(v) {
		return true
	}
	u, err := url.Parse(v)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
}

// option is an argument that names a secret and has or is followed by its value.
var option = lazy(`^--?([A-Za-z][A-Za-z0-9_-]*)(?:=(.*))?$`)

// secretArgs refuses arguments that are secrets: they are shown to whoever may
// list servers or processes, and there is no other place for them.
func (e *entry) secretArgs() {
	for i, a := range e.c.Args {
		m := option().FindStringSubmatch(a)
		if m == nil || !secretName(m[1]) {
			continue
		}
		v := m[2]
		if v == "" && !strings.Contains(a, "=") && i+1 < len(e.c.Args) && !strings.HasPrefix(e.c.Args[i+1], "-") {
			v = e.c.Args[i+1]
		}
		if v != "" && !small().MatchString(v) && !path().MatchString(v) {
			e.refuse("let it read the secret from its environment", "the value of its option --%s is a secret, which would be shown in lists of servers and processes", m[1])
		}
	}
}
