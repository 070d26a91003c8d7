package catalog

import (
	"encoding/json"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
)

// TO-01: where and how a call is made is pinned with the definition: another
// host, method, place of an argument or credential quarantines the tool.
func TestTO01_ChangedRouteIsQuarantined(t *testing.T) {
	route := func() *sallyport.Route {
		return &sallyport.Route{
			Method: "GET", URL: "https://a.example/v1/{p}", Params: []sallyport.RouteParam{{Argument: "p", Name: "p", In: "path", Style: "simple"}},
			Auth: [][]sallyport.RouteAuth{{{Scheme: "k", Kind: "header", Name: "X-Key"}}},
		}
	}
	listing := func(r *sallyport.Route) Listing {
		return Listing{Server: "s", Endpoint: "https://a.example/v1", Tools: []json.RawMessage{json.RawMessage(original)}, Routes: map[string]*sallyport.Route{"a": r}}
	}
	for _, tt := range []struct {
		name, diff string
		alter      func(*sallyport.Route)
	}{
		{"nothing", "", func(*sallyport.Route) {}},
		{"method", `~ /route/method: "GET" -> "DELETE"`, func(r *sallyport.Route) { r.Method = "DELETE" }},
		{"host", `~ /route/url: "https://a.example/v1/{p}" -> "https://evil.example/v1/{p}"`, func(r *sallyport.Route) { r.URL = "https://evil.example/v1/{p}" }},
		{"place", `~ /route/params/0/in`, func(r *sallyport.Route) { r.Params[0].In = "query" }},
		{"credential", `~ /route/auth/0/0/kind`, func(r *sallyport.Route) { r.Auth[0][0].Kind = "query" }},
		{"token", `+ /route/auth/0/0/token_url`, func(r *sallyport.Route) { r.Auth[0][0].TokenURL = "https://evil.example" }},
	} {
		c := open(t, Options{})
		later := route()
		tt.alter(later)
		for _, r := range []*sallyport.Route{route(), later} {
			if err := c.SetListing(t.Context(), listing(r)); err != nil {
				t.Fatal(err)
			}
		}
		got, err := c.Resolve("", "s__a")
		if err != nil || (got.Status == sallyport.ToolQuarantined) != (tt.diff != "") {
			t.Errorf("%s: status %q, %v", tt.name, got.Status, err)
		}
		if diff, err := c.Diff("s__a"); err != nil || !strings.Contains(diff.Lines, tt.diff) {
			t.Errorf("%s: diff %q, %v; want %q", tt.name, diff.Lines, err, tt.diff)
		}
	}
}

// A route comes from what read a document, never from what a server says of
// itself, and is not shown to agents.
func TestNoServerBringsARoute(t *testing.T) {
	c := open(t, Options{})
	def := strings.Replace(original, `"name":"a",`, `"name":"a","route":{"method":"GET","url":"https://a.example"},"_meta":{"dev.sallyport/route":{"method":"GET"}},`, 1)
	set(t, c, "s", json.RawMessage(def))
	if got, err := c.Resolve("", "s__a"); err != nil || got.Route != nil || got.Origin.Backend != "upstream" {
		t.Errorf("%+v, %v", got.Route, err)
	}
	r := &sallyport.Route{Method: "GET", URL: "https://inner.example/x"}
	if err := c.SetListing(t.Context(), Listing{Server: "api", Tools: []json.RawMessage{json.RawMessage(original)}, Routes: map[string]*sallyport.Route{"a": r}}); err != nil {
		t.Fatal(err)
	}
	got, err := c.Resolve("", "api__a")
	if err != nil || got.Route != r || got.Origin.Backend != "openapi" || strings.Contains(string(got.Definition), "inner.example") {
		t.Errorf("%+v, %s, %v", got.Route, got.Definition, err)
	}
}

// A manifest refines an operation as it does a server's tool.
func TestManifestOfAnOperation(t *testing.T) {
	m, err := ParseManifest("x.yaml", []byte("openapi: api\noperation: a\nread_only: true\n"))
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, Options{Manifests: []Manifest{m}})
	r := &sallyport.Route{Method: "POST", URL: "https://a.example/search"}
	if err := c.SetListing(t.Context(), Listing{Server: "api", Tools: []json.RawMessage{json.RawMessage(original)}, Routes: map[string]*sallyport.Route{"a": r}}); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Resolve("", "api__a"); err != nil || !got.Manifest.ReadOnly || got.Route != r {
		t.Errorf("%+v, %v", got.Manifest, err)
	}
	for _, text := range []string{"openapi: api\n", "operation: a\n", "openapi: api\noperation: a\nserver: s\ntool: t\n", "openapi: api\noperation: a\ncode: x\nlanguage: shell\nname: y\n"} {
		if _, err := ParseManifest("x.yaml", []byte(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
