// Package bearer sends a token with each request of a test's client.
package bearer

import "net/http"

// Client is a client with a token; "" sends none.
func Client(token string) *http.Client { return &http.Client{Transport: Transport{Token: token}} }

// A Transport adds a token to what it sends.
type Transport struct {
	Token string
	Next  http.RoundTripper // nil is http.DefaultTransport
}

// RoundTrip sends a request with the token.
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	next := t.Next
	if next == nil {
		next = http.DefaultTransport
	}
	if t.Token == "" {
		return next.RoundTrip(r)
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+t.Token)
	return next.RoundTrip(r)
}
