// Package bearer knows what bearer tokens look like, and where they do not belong.
package bearer

import (
	"net/url"
	"strings"
)

// Valid reports whether a token is RFC 6750's b64token.
func Valid(s string) bool {
	body := strings.TrimRight(s, "=")
	for i := 0; i < len(body); i++ {
		c := body[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-._~+/", rune(c)) {
			return false
		}
	}
	return body != "" && len(s) <= 16<<10
}

// InQuery reports whether a token is in an address.
func InQuery(u *url.URL) bool {
	if u.RawQuery == "" {
		return false
	}
	q := u.RawQuery
	if plain, err := url.QueryUnescape(q); err == nil {
		q = plain
	}
	return strings.Contains(strings.ToLower(q), "access_token")
}
