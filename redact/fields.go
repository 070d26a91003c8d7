package redact

import (
	"strings"

	"sallyport.dev/sallyport/redact/keywords"
)

// secretKeys are names of JSON members whose text is a secret whatever it
// looks like, compared without case and signs, by their end.
var secretKeys = [...]struct {
	suffix, name string
	min          int // shorter values are not secrets
}{
	{"password", "password", 1}, {"passwd", "password", 1}, {"pwd", "password", 1}, {"passphrase", "passphrase", 1},
	{"clientsecret", "client secret", 8}, {"apikey", "api key", 8}, {"secretkey", "secret key", 8},
	{"secretaccesskey", "secret key", 8}, {"privatekey", "private key", 8}, {"accesstoken", "access token", 8},
	{"refreshtoken", "refresh token", 8}, {"idtoken", "id token", 8}, {"authtoken", "auth token", 8},
	{"sessiontoken", "session token", 8}, {"bearertoken", "bearer token", 8},
}

// field is clean for the value of a JSON member: its name can tell that the
// value is a secret, as in {"password": "hunter2"}.
func (w *work) field(key, s string) string {
	if s == "" || !hint(key) {
		return w.clean(s)
	}
	if name := secretKey(key, s); name != "" {
		w.tally.masked(name)
		return markOpen + name + markClose
	}
	// Some rules want to see name and value together. Only what they find in
	// the value counts.
	head := key + `="`
	var extra []span
	for _, sp := range w.look(head + s + `"`) {
		sp.start, sp.end = max(sp.start-len(head), 0), min(sp.end-len(head), len(s))
		if sp.start < sp.end {
			extra = append(extra, sp)
		}
	}
	if len(extra) == 0 {
		return w.clean(s)
	}
	return w.finish(s, merge(append(extra, w.spans(s)...)))
}

// hint is a cheap test whether a name may belong to a secret.
func hint(key string) bool {
	if len(key) > maxIdent {
		return false
	}
	for i := range len(key) {
		switch keywords.Fold(key[i]) {
		case 'p', 's', 't', 'k', 'a', 'c': // password, secret, token, key, auth, cred
			rest := key[i:]
			for _, w := range [...]string{"pass", "pwd", "secret", "token", "key", "auth", "cred", "api", "access"} {
				if len(rest) >= len(w) && strings.EqualFold(rest[:len(w)], w) {
					return true
				}
			}
		}
	}
	return false
}

func secretKey(key, s string) string {
	var buf [maxIdent]byte
	b := buf[:0]
	for i := range len(key) {
		if c := keywords.Fold(key[i]); c != '_' && c != '-' && c != '.' && c != ' ' {
			b = append(b, c)
		}
	}
	bare := string(b)
	for _, k := range secretKeys {
		if !strings.HasSuffix(bare, k.suffix) {
			continue
		}
		if len(s) < k.min || common(s) || folder(bare, s) || k.min > 1 && strings.ContainsAny(s, " \n\t") {
			continue
		}
		return k.name
	}
	return ""
}
