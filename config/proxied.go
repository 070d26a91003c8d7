package config

import (
	"net/netip"
	"net/url"
	"strings"
)

// proxied checks what is said about proxies in front of the gateway.
func (d *decoder) proxied(c *Config) {
	d.each("proxies", c.Proxies, func(key, v string) {
		if p, err := netip.ParsePrefix(v); err != nil || p.Bits() == 0 {
			d.fail(d.places[key], "write a range such as 10.1.0.0/16, or one address as 10.1.2.3/32", "%s: %q is not the range of a proxy", key, v)
		}
	})
	if c.URL != "" {
		d.endpoint("url", c.URL)
		if u, err := url.Parse(c.URL); err == nil && (strings.Trim(u.Path, "/") != "" || u.RawQuery != "") {
			d.fail(d.places["url"], "write https://HOST[:PORT]; paths belong under endpoints", "url has a path")
		}
		c.URL = strings.TrimSuffix(c.URL, "/")
	}
	for _, link := range sortedKeys(c.Endpoints) {
		key := "endpoints." + link
		d.endpoint(key, link)
		if u, err := url.Parse(link); err == nil && u.RawQuery != "" {
			d.fail(d.places[key], "write http://HOST[:PORT]/PATH or https://…", "%s has a query", key)
		}
		if profile := c.Endpoints[link]; profile != "" {
			if _, ok := c.Profiles[profile]; !ok {
				d.fail(d.places[key], "add it under profiles, or write \"\" for the default one", "%s: there is no profile %q", key, profile)
			}
		}
	}
	if len(c.Endpoints) > 0 && len(c.Proxies) == 0 {
		d.fail(d.places["endpoints"], "add proxies: only they can say that a request was sent there", "endpoints are of no use without proxies")
	}
}
