// Package front says by which URLs others reach the gateway.
package front

import (
	"cmp"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"

	"sallyport.dev/sallyport/config"
	"sallyport.dev/sallyport/mcpserver/proxied"
)

// External is the gateway's own origin, as others know it; base is where it listens.
func External(c *config.Config, base string) string { return cmp.Or(c.URL, base) }

// Proxied is what is said about proxies in front of the gateway.
func Proxied(c *config.Config) proxied.Policy {
	p := proxied.Policy{URL: c.URL, Endpoints: c.Endpoints}
	for _, s := range c.Proxies {
		if r, err := netip.ParsePrefix(s); err == nil { // the configuration was checked
			p.Proxies = append(p.Proxies, r)
		}
	}
	return p
}

// Resources are the names of each profile's endpoint, and all of them; the first is
// at the gateway itself.
func Resources(c *config.Config, base string) (of map[string][]string, all []string) {
	of = map[string][]string{}
	for _, name := range append([]string{""}, slices.Sorted(maps.Keys(c.Profiles))...) {
		of[name] = []string{base + proxied.Path(name)}
		if c.URL != "" {
			of[name] = append(of[name], c.URL+proxied.Path(name))
		}
	}
	for _, link := range slices.Sorted(maps.Keys(c.Endpoints)) {
		of[c.Endpoints[link]] = append(of[c.Endpoints[link]], link)
	}
	for _, name := range slices.Sorted(maps.Keys(of)) { // the default profile's first
		all = append(all, of[name]...)
	}
	return of, all
}

// Outside are the hosts of the gateway's URLs behind proxies.
func Outside(c *config.Config) (hosts []string) {
	for _, link := range append(slices.Sorted(maps.Keys(c.Endpoints)), c.URL) {
		if u, err := url.Parse(link); err == nil && u.Host != "" {
			hosts = append(hosts, u.Host)
		}
	}
	return hosts
}

// Resource says at which URL the sender of a request knows the endpoint of a profile.
func Resource(c *config.Config, base string) func(r *http.Request, profile string) string {
	p := Proxied(c)
	return func(r *http.Request, profile string) string { return p.Resource(base, r, profile) }
}
