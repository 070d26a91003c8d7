package config

import (
	"net/url"
	"slices"
	"strings"
)

// ofCommands are the keys of servers that are programs.
var ofCommands = slices.Clip([]string{"command", "args", "env", "isolation", "egress", "secrets", "roots", "limits", "idle", "processes"})

// api checks a server that is an HTTP API. The document is a URL, a path, or the
// name of a file whose text was handed over with it.
func (d *decoder) api(key string, s *Server, dir string) {
	place := func(k string) string { return join(key, k) }
	if IsURL(s.OpenAPI) {
		d.endpoint(place("openapi"), s.OpenAPI)
	} else if dir != "" {
		d.path(place("openapi"), &s.OpenAPI, dir)
	}
	for k, v := range map[string]string{"base": s.Base, "token_url": s.TokenURL} {
		if v == "" {
			continue
		}
		d.endpoint(place(k), v)
		if u, err := url.Parse(v); err == nil && u.RawQuery != "" && k == "base" {
			d.fail(d.places[place(k)], "write http://HOST[:PORT]/PATH or https://…", "%s has a query", place(k))
		}
	}
	for _, name := range sortedKeys(s.Auth) {
		k := place("auth." + name)
		d.name(k, "security scheme", name, `^[A-Za-z0-9._-]+$`, "write the name as it stands in the document, below components.securitySchemes")
		d.sent(k, s.Auth[name])
	}
}

// IsURL tells whether a document is fetched.
func IsURL(s string) bool {
	return strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://")
}
