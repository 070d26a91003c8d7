package config

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestOAuth(t *testing.T) {
	parse := func(text string) (*Config, error) {
		return Parse(filepath.Join(t.TempDir(), "sallyport.yaml"), []byte(text))
	}
	c, err := parse(`servers:
  plain: {url: "https://h/mcp"}
  short: {url: "https://h/mcp", oauth: {}}
  whole: {url: "https://h/mcp", oauth: {grant: client_credentials, issuer: "https://as", client_id: me, client_secret: "${secret:me}", scopes: [a, "b:c"]}}
`)
	if err != nil {
		t.Fatal(err)
	}
	if o := c.Servers["plain"].OAuth; o.Grant != "" || o.Per != "" {
		t.Errorf("%+v", o)
	}
	if o := c.Servers["short"].OAuth; o.Grant != GrantCode || o.Per != PerGateway {
		t.Errorf("%+v", o)
	}
	if o := c.Servers["whole"].OAuth; o.Grant != GrantCredentials || !slices.Equal(o.Scopes, []string{"a", "b:c"}) {
		t.Errorf("%+v", o)
	}
	for oauth, want := range map[string]string{
		`{per: everybody}`:               "is not known",
		`{grant: password}`:              "is not known",
		`{client_id: x}`:                 "is of no issuer",
		`{client_secret: "${secret:x}"}`: "a credential of no client",
		`{issuer: "https://as", client_id: x, client_secret: s3cret}`:                                    "is written out",
		`{issuer: "https://as", client_id: x, client_secret: "${secret:x}", private_key: "${secret:y}"}`: "both client_secret and private_key",
		`{issuer: "https://as", client_id: x, metadata_url: "https://h/x"}`:                              "both client_id and metadata_url",
		`{grant: client_credentials}`: "needs credentials",
		`{grant: client_credentials, per: agent, issuer: "https://as", client_id: x, client_secret: "${secret:x}"}`: "nobody else's",
		`{metadata_url: "http://h/x"}`: "not the https address",
		`{metadata_url: "https://h"}`:  "not the https address",
		`{issuer: "as"}`:               "not the URL of an HTTP endpoint",
		`{scopes: ["a b"]}`:            "cannot be the name of a scope",
		`{scopess: [a]}`:               "unknown key",
		`{client_id: x, issuer: "https://as", private_key: "${secret"}`: "broken reference",
	} {
		if _, err := parse("servers:\n  a: {url: \"https://h/mcp\", oauth: " + oauth + "}\n"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", oauth, err, want)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error shows a secret: %v", err)
		}
	}
	for text, want := range map[string]string{
		`servers: {a: {command: x, oauth: {}}}`:                                     "servers.a.oauth does not fit",
		`servers: {a: {openapi: a.yaml, oauth: {}}}`:                                "servers.a.oauth does not fit",
		`servers: {a: {url: "https://h/", headers: {authorization: x}, oauth: {}}}`: "is set by oauth",
		`url: "https://h/path"`:                                                     "url has a path",
		`proxies: [10.0.0.1]`:                                                       "not the range of a proxy",
		`proxies: ["0.0.0.0/0"]`:                                                    "not the range of a proxy",
		`endpoints: {"https://h/mcp": ""}`:                                          "no use without proxies",
		"proxies: [10.0.0.0/8]\nendpoints: {\"https://h/mcp\": x}":                  "there is no profile",
		"proxies: [10.0.0.0/8]\nendpoints: {\"https://h/mcp?a=b\": \"\"}":           "has a query",
		"proxies: [10.0.0.0/8]\nendpoints: {\"ftp://h/mcp\": \"\"}":                 "not the URL of an HTTP endpoint",
	} {
		if _, err := parse(text + "\n"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
