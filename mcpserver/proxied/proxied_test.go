package proxied_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"sallyport.dev/sallyport/mcpserver/proxied"
)

// FO-35: what a request was sent to is what a trusted proxy says, of URLs that the
// operator listed, and nothing else.
func TestFO35_ForwardedHeaders(t *testing.T) {
	p := proxied.Policy{
		Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}, URL: "https://gw.example",
		Endpoints: map[string]string{"https://root.example/": "", "https://shop.example/mcp": "shop", "https://gw.example/team/a/mcp": "a"},
	}
	const known = "/.well-known/oauth-protected-resource"
	for _, tt := range []struct {
		name, peer, path, proto, host, prefix string
		more                                  http.Header
		arrives, resource                     string
	}{
		{name: "root", path: "/", host: "root.example", arrives: "/mcp", resource: "https://root.example/"},
		{name: "root's document", path: known, host: "root.example", arrives: known + "/mcp", resource: "https://root.example/"},
		{name: "mcp", path: "/mcp", host: "shop.example", arrives: "/mcp/shop", resource: "https://shop.example/mcp"},
		{name: "slash", path: "/mcp/", host: "shop.example", arrives: "/mcp/shop", resource: "https://shop.example/mcp"},
		{name: "mcp's document", path: known + "/mcp", host: "shop.example", arrives: known + "/mcp/shop", resource: "https://shop.example/mcp"},
		{name: "long path", path: "/team/a/mcp", host: "gw.example", arrives: "/mcp/a", resource: "https://gw.example/team/a/mcp"},
		{name: "default port", path: "/team/a/mcp", host: "gw.example:443", arrives: "/mcp/a", resource: "https://gw.example/team/a/mcp"},
		{name: "long path's document", path: known + "/team/a/mcp", host: "gw.example", arrives: known + "/mcp/a", resource: "https://gw.example/team/a/mcp"},
		{name: "prefix taken off", path: "/mcp", prefix: "/team/a", host: "gw.example", arrives: "/mcp/a", resource: "https://gw.example/team/a/mcp"},
		{name: "own path", path: "/mcp/x", host: "gw.example", arrives: "/mcp/x", resource: "https://gw.example/mcp/x"},
		{name: "from IPv6", peer: "[::1]:9", path: "/mcp", host: "shop.example", arrives: "/mcp/shop", resource: "https://shop.example/mcp"},
		{name: "mapped address", peer: "[::ffff:10.1.2.3]:9", path: "/mcp", host: "shop.example", arrives: "/mcp/shop", resource: "https://shop.example/mcp"},
		// and what is not believed
		{name: "a stranger", peer: "192.0.2.1:9", path: "/team/a/mcp", host: "gw.example", arrives: "/team/a/mcp"},
		{name: "a stranger at the own path", peer: "192.0.2.1:9", path: "/mcp", host: "shop.example", arrives: "/mcp"},
		{name: "an unknown host", path: "/mcp", host: "evil.example", arrives: "/mcp"},
		{name: "no TLS", proto: "http", path: "/mcp", host: "shop.example", arrives: "/mcp"},
		{name: "two hosts", path: "/mcp", host: "shop.example, evil.example", arrives: "/mcp"},
		{name: "two headers", path: "/mcp", host: "shop.example", more: http.Header{"X-Forwarded-Host": {"shop.example", "gw.example"}}, arrives: "/mcp"},
		{name: "no scheme", proto: "-", path: "/mcp", host: "shop.example", arrives: "/mcp"},
		{name: "another path", path: "/team/b/mcp", host: "gw.example", arrives: "/team/b/mcp", resource: "https://gw.example/mcp/x"},
		{name: "another case", path: "/Team/a/mcp", host: "gw.example", arrives: "/Team/a/mcp", resource: "https://gw.example/mcp/x"},
		{name: "a user in the host", path: "/mcp", host: "shop.example@evil.example", arrives: "/mcp"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, tt.path, nil)
			if r.RemoteAddr = tt.peer; tt.peer == "" {
				r.RemoteAddr = "10.1.2.3:9"
			}
			for name, v := range map[string]string{"X-Forwarded-Proto": tt.proto, "X-Forwarded-Host": tt.host, "X-Forwarded-Prefix": tt.prefix} {
				if v == "" && name == "X-Forwarded-Proto" {
					v = "https"
				}
				if v != "" && v != "-" {
					r.Header.Set(name, v)
				}
			}
			for name, v := range tt.more {
				r.Header[name] = v
			}
			var at, resource string
			p.Front(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				at, resource = r.URL.Path, strings.TrimPrefix(p.Resource("http://here", r, "x"), "http://here/mcp/x")
			})).ServeHTTP(httptest.NewRecorder(), r)
			if at != tt.arrives || resource != tt.resource {
				t.Errorf("arrives at %s as %q, want %s as %q", at, resource, tt.arrives, tt.resource)
			}
		})
	}
}
