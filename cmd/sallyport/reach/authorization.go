package reach

import (
	"net/http"
	"net/url"
	"slices"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/upstream/web"
	"sallyport.dev/sallyport/config"
	"sallyport.dev/sallyport/oauth/discovery"
)

// Authorization returns the way to the authorization server of a server at link. A
// server on this machine may have one here, too.
func Authorization(c *config.Config) (func(link string) http.RoundTripper, error) {
	refused := &sallyport.Error{Code: sallyport.Unavailable, Step: sallyport.Execute, Err: sallyport.ErrNotExecuted,
		Message: "an address of its authorization server is private, and not reached", Hint: "if it is the right one, list its range in egress.private"}
	far, err := behind(c, c.Egress.Private, refused)
	if err != nil {
		return nil, err
	}
	near, err := behind(c, append(slices.Clone(c.Egress.Private), "127.0.0.0/8", "::1/128"), refused)
	if err != nil {
		return nil, err
	}
	outside, local := way(far), way(near)
	return func(link string) http.RoundTripper {
		if u, err := url.Parse(link); err == nil && discovery.Loopback(u.Hostname()) {
			return local
		}
		return outside
	}, nil
}

func way(dial Dial) http.RoundTripper {
	t := web.Transport(dial)
	t.ResponseHeaderTimeout = 20 * time.Second
	return t
}
