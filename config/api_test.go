package config

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestAPIs(t *testing.T) {
	dir := t.TempDir()
	c, err := Parse(filepath.Join(dir, "sallyport.yaml"), []byte(`servers:
  pets: {openapi: pets.yaml, base: "https://a.example/v1", auth: {api_key: "${secret:pets}"}, headers: {X-A: b}, token_url: "https://login.example/token"}
  far: {openapi: "https://a.example/openapi.json"}
`))
	if err != nil {
		t.Fatal(err)
	}
	if s := c.Servers["pets"]; s.OpenAPI != filepath.Join(dir, "pets.yaml") || s.Isolation != "" || s.Auth["api_key"] != "${secret:pets}" {
		t.Errorf("%+v", s)
	}
	if s := c.Servers["far"]; s.OpenAPI != "https://a.example/openapi.json" {
		t.Errorf("%+v", s)
	}
	for text, want := range map[string]string{
		`{openapi: a.yaml, command: x}`:                              "openapi beside a command or a url",
		`{openapi: a.yaml, url: "http://h/"}`:                        "openapi beside a command or a url",
		`{openapi: a.yaml, args: [x]}`:                               "servers.a.args does not fit",
		`{openapi: a.yaml, egress: ["h:1"]}`:                         "servers.a.egress does not fit",
		`{url: "http://h/", auth: {a: b}}`:                           "servers.a.auth does not fit",
		`{command: x, base: "http://h/"}`:                            "servers.a.base does not fit",
		`{openapi: a.yaml, base: "ftp://h/"}`:                        "is not the URL of an HTTP endpoint",
		`{openapi: a.yaml, base: "http://u:p@h/"}`:                   "holds a user or password",
		`{openapi: a.yaml, base: "http://h/?a=b"}`:                   "has a query",
		`{openapi: "http://u:p@h/doc"}`:                              "holds a user or password",
		`{openapi: a.yaml, token_url: "h"}`:                          "is not the URL of an HTTP endpoint",
		`{openapi: a.yaml, auth: {"a b": x}}`:                        "cannot be the name of a security scheme",
		`{openapi: a.yaml, auth: {a: "${secret:}"}}`:                 "broken reference",
		`{openapi: a.yaml, auth: {a: "x\ny"}}`:                       "line break",
		`{openapi: a.yaml, headers: {A: "${secret:x} ${secretive"}}`: "broken reference",
	} {
		if _, err := Parse(filepath.Join(dir, "sallyport.yaml"), []byte("servers:\n  a: "+text+"\n")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
