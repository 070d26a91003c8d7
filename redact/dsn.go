package redact

import (
	"strings"
)

// Bounds on how far the rules below look around a keyword. They keep hostile
// text linear, and are far beyond any real connection string.
const (
	maxUserinfo = 1024
	maxIdent    = 64
	maxValue    = 4096
	maxApart    = 256 // between the keys of one connection string
)

// ownSpans runs the rules that gitleaks lacks: passwords in connection strings
// and beside keys that say so. Only the secret part is masked: user, host and
// database stay readable.
func ownSpans(s string, c *scratch, spans []span) []span {
	for _, h := range c.hits {
		var sp span
		switch h.kind {
		case wordURL:
			sp = urlSecret(s, h.end)
		case wordMySQL:
			sp = mysqlSecret(s, h.end-int(h.len))
		case wordOracle:
			sp = oracleSecret(s, h.end)
		case wordAuth:
			sp = authSecret(s, h.end)
		case wordKey:
			sp = keySecret(s, h, c.dsn)
		case wordLeak, wordDSN, wordInject: // the business of other rules
		}
		if sp.start < sp.end && !placeholder(s[sp.start:sp.end]) {
			sp.rank = rankOwn
			spans = append(spans, sp)
		}
	}
	return spans
}

// schemes names what a URL's password opens. Other schemes are "url".
var schemes = map[string]string{
	"postgres": "postgres", "postgresql": "postgres", "mysql": "mysql", "mariadb": "mariadb", "redis": "redis",
	"rediss": "redis", "mongodb": "mongodb", "amqp": "amqp", "amqps": "amqp", "sqlserver": "sqlserver",
	"mssql": "sqlserver", "clickhouse": "clickhouse", "cockroachdb": "cockroachdb", "oracle": "oracle", "ftp": "ftp",
	"sftp": "sftp", "ldap": "ldap", "ldaps": "ldap", "smtp": "smtp", "smtps": "smtp", "nats": "nats", "kafka": "kafka",
}

// urlSecret finds the password in scheme://user:password@host; at is the byte
// after "://". A password may hold unescaped / ? # as long as an @ follows.
func urlSecret(s string, at int) span {
	if at < len(s) && s[at] == '[' {
		return span{} // an IPv6 address, which is full of colons
	}
	end := until(s, at, maxUserinfo, " \t\r\n\"'`<>\\/?#")
	if i := strings.LastIndexByte(s[at:end], '@'); i >= 0 {
		colon := strings.IndexByte(s[at:at+i], ':')
		if colon < 0 {
			return span{}
		}
		return span{start: at + colon + 1, end: at + i, name: scheme(s, at) + " password"}
	}
	colon := strings.IndexByte(s[at:end], ':')
	if colon < 0 || digits(s[at+colon+1:end]) {
		return span{} // no password, or a port
	}
	start := at + colon + 1
	stop := until(s, end, maxUserinfo, " \t\r\n\"`<>")
	i := strings.LastIndexByte(s[end:stop], '@')
	if i < 0 || end+i+1 >= len(s) || !wordByte(s[end+i+1]) {
		return span{}
	}
	return span{start: start, end: end + i, name: scheme(s, at) + " password"}
}

func scheme(s string, at int) string {
	end := at - len("://")
	i := end
	for i > 0 && end-i < maxIdent && (wordByte(s[i-1]) || s[i-1] == '+' || s[i-1] == '-' || s[i-1] == '.') {
		i--
	}
	name, _, _ := strings.Cut(strings.ToLower(s[i:end]), "+")
	if known, ok := schemes[name]; ok {
		return known
	}
	return "url"
}

// mysqlSecret finds the password in user:password@tcp(host); at is the @.
func mysqlSecret(s string, at int) span {
	start := since(s, at, maxUserinfo, " \t\r\n\"'`<>")
	if i := strings.LastIndex(s[start:at], "://"); i >= 0 {
		return span{} // urlSecret's
	}
	colon := strings.IndexByte(s[start:at], ':')
	if colon < 0 {
		return span{}
	}
	return span{start: start + colon + 1, end: at, name: "mysql password"}
}

// oracleSecret finds the password in jdbc:oracle:thin:user/password@host.
func oracleSecret(s string, at int) span {
	end := until(s, at, maxUserinfo, " \t\r\n\"'`<>")
	i := strings.LastIndexByte(s[at:end], '@')
	if i < 0 {
		return span{}
	}
	slash := strings.IndexByte(s[at:at+i], '/')
	if slash < 0 {
		return span{}
	}
	return span{start: at + slash + 1, end: at + i, name: "oracle password"}
}

// authSecret finds the credential in Authorization: Scheme credential.
func authSecret(s string, at int) span {
	const quotes = "\"'\\"
	i := at
	for i < len(s) && strings.IndexByte(quotes, s[i]) >= 0 && i-at < 4 {
		i++
	}
	i = skipSpaces(s, i)
	if i >= len(s) || s[i] != ':' && s[i] != '=' {
		return span{}
	}
	i = skipSpaces(s, i+1)
	for n := 0; i < len(s) && strings.IndexByte(quotes, s[i]) >= 0 && n < 4; n++ {
		i++
	}
	end := until(s, i, maxValue, " \t\r\n\"'`<>\\,")
	if next := skipSpaces(s, end); next > end && !strings.HasPrefix(s[next:], markOpen) {
		if e := until(s, next, maxValue, " \t\r\n\"'`<>\\,"); e-next >= 8 {
			return span{start: next, end: e, name: "authorization header"}
		}
		return span{}
	}
	if end-i < 16 {
		return span{}
	}
	return span{start: i, end: end, name: "authorization header"}
}

// placeholder reports whether a value only stands for a secret: it is masked
// already, or a reference that the reader has to fill in.
func placeholder(v string) bool {
	if v == "" || marker(v) || strings.Trim(v, "*") == "" {
		return true
	}
	for _, p := range [...][2]string{{"${", "}"}, {"$(", ")"}, {"{{", "}}"}, {"<", ">"}, {"{", "}"}, {"%(", ")s"}, {"%", "%"}} {
		if len(v) <= len(p[0])+len(p[1])+maxIdent && strings.HasPrefix(v, p[0]) && strings.HasSuffix(v, p[1]) && names(v) {
			return true
		}
	}
	return v == "%s" || v == "%v" || v == "?" || v == ":password" || v[0] == '$' && len(v) > 1 && upper(v[1:])
}

// names reports whether v holds only the letters, digits and signs of a reference.
func names(v string) bool {
	for i := range len(v) {
		if !wordByte(v[i]) && strings.IndexByte("${}()<>%.:- \"'[]", v[i]) < 0 {
			return false
		}
	}
	return true
}

const (
	markOpen  = "[masked: "
	markClose = "]"
)

// marker reports whether v is exactly one of our own markers.
func marker(v string) bool {
	inner, ok := strings.CutPrefix(v, markOpen)
	if !ok {
		return false
	}
	inner, ok = strings.CutSuffix(inner, markClose)
	if !ok || len(inner) > maxIdent {
		return false
	}
	for i := range len(inner) {
		if c := inner[i]; c != ' ' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

func digits(v string) bool {
	for i := range len(v) {
		if v[i] < '0' || v[i] > '9' {
			return false
		}
	}
	return true
}

func upper(v string) bool {
	for i := range len(v) {
		if c := v[i]; c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return true
}

// until returns the index of the first byte of stop in s from i on, or where
// it gave up.
func until(s string, i, limit int, stop string) int {
	for n := 0; i < len(s) && n < limit && strings.IndexByte(stop, s[i]) < 0; n++ {
		i++
	}
	return i
}

// since is until backwards: the index after the last byte of stop before i.
func since(s string, i, limit int, stop string) int {
	for n := 0; i > 0 && n < limit && strings.IndexByte(stop, s[i-1]) < 0; n++ {
		i--
	}
	return i
}
