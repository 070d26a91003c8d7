// Package proxied says at which URL a request was sent that came through a reverse
// proxy, as far as the operator trusts that one and knows the URL.
package proxied

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"sallyport.dev/sallyport/oauth/discovery"
	"sallyport.dev/sallyport/wire"
)

// WellKnown is where RFC 9728 puts a resource's document; the resource's own path
// follows.
const WellKnown = "/.well-known/oauth-protected-resource"

// A Policy is what the operator says about proxies in front of the gateway.
type Policy struct {
	Proxies   []netip.Prefix    // whose X-Forwarded headers are believed; nobody else's are
	URL       string            // the gateway's own, an origin, "" if it has none
	Endpoints map[string]string // profile by the URL of an MCP endpoint
}

// Path is where the gateway itself has the endpoint of a profile.
func Path(profile string) string {
	if profile == "" {
		return "/mcp"
	}
	return "/mcp/" + profile
}

// Front has requests to endpoints, and for their documents, take the gateway's own
// paths. Those of others pass as they are.
func (p Policy) Front(next http.Handler) http.Handler {
	if len(p.Endpoints) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		link, document := p.sent(r, r.URL.Path)
		if endpoint, ok := p.endpoint(link); ok {
			own := new(http.Request)
			*own = *r
			u := *r.URL
			u.Path, u.RawPath = Path(p.Endpoints[endpoint]), ""
			if document {
				u.Path = WellKnown + u.Path
			}
			own.URL, r = &u, own // RequestURI stays what was sent
		}
		next.ServeHTTP(w, r)
	})
}

// Resource is the URL of a profile's endpoint as the sender of a request knows it,
// below base if that is the gateway's own address.
func (p Policy) Resource(base string, r *http.Request, profile string) string {
	own := base + Path(profile)
	u, err := url.ParseRequestURI(r.RequestURI)
	if err != nil {
		return own
	}
	link, _ := p.sent(r, u.Path)
	if endpoint, ok := p.endpoint(link); ok {
		return endpoint
	}
	if link != "" && p.URL != "" && discovery.Origin(link) == discovery.Origin(p.URL) {
		return strings.TrimSuffix(p.URL, "/") + Path(profile)
	}
	return own
}

// sent is the URL that a request was sent to, or whose document it wants; "" where
// no trusted proxy says so.
func (p Policy) sent(r *http.Request, path string) (link string, document bool) {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !p.trusts(peer.Addr().Unmap()) {
		return "", false
	}
	scheme, ok := one(r.Header, "X-Forwarded-Proto")
	host, given := one(r.Header, "X-Forwarded-Host")
	prefix, fine := one(r.Header, "X-Forwarded-Prefix")
	if !ok || !given || !fine || scheme != "http" && scheme != "https" {
		return "", false
	}
	if host == "" {
		host = r.Host
	}
	path, document = strings.CutPrefix(path, WellKnown)
	return scheme + "://" + host + strings.TrimSuffix(prefix, "/") + path, document
}

func (p Policy) trusts(a netip.Addr) bool {
	for _, known := range p.Proxies {
		if known.Contains(a) {
			return true
		}
	}
	return false
}

// one is a header's one value. More of them may be somebody else's.
func one(h http.Header, name string) (string, bool) {
	values := h[name]
	if len(values) == 0 {
		return "", true
	}
	return strings.TrimSpace(values[0]), len(values) == 1 && !strings.Contains(values[0], ",")
}

// endpoint finds a URL among those of the endpoints: the same origin and path, but
// for a slash at the end.
func (p Policy) endpoint(link string) (string, bool) {
	u, err := url.Parse(link)
	if err != nil || u.Host == "" {
		return "", false
	}
	for known := range p.Endpoints {
		k, err := url.Parse(known)
		if err == nil && discovery.Origin(link) == discovery.Origin(known) && strings.TrimSuffix(u.EscapedPath(), "/") == strings.TrimSuffix(k.EscapedPath(), "/") {
			return known, true
		}
	}
	return "", false
}

// Document says what a protected resource is, and whose tokens are good there.
func Document(resource string, servers []string) []byte {
	b := wire.AppendString([]byte(`{"resource":`), resource)
	b = append(b, `,"authorization_servers":[`...)
	for i, as := range servers {
		if i > 0 {
			b = append(b, ',')
		}
		b = wire.AppendString(b, as)
	}
	return append(b, `],"bearer_methods_supported":["header"],"resource_name":"Sallyport"}`...)
}

// Challenge says where the document of a resource is, and why a token is wanted, ""
// where there was none.
func Challenge(resource, reason string) string {
	v := "Bearer"
	if u, err := url.Parse(resource); err == nil {
		u.Path = WellKnown + strings.TrimSuffix(u.Path, "/")
		v += ` resource_metadata="` + u.String() + `"`
	}
	if reason != "" {
		v += `, error="` + reason + `"`
	}
	return v
}
