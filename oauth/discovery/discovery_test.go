package discovery_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/oauth/discovery"
)

// A site serves documents by path, and keeps which were asked for.
type site struct {
	*httptest.Server
	docs  map[string]any
	asked []string
}

func newSite(t *testing.T) *site {
	s := &site{docs: map[string]any{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked = append(s.asked, r.URL.Path)
		switch d := s.docs[r.URL.Path].(type) {
		case nil:
			http.NotFound(w, r)
		case string: // leads on
			http.Redirect(w, r, d, http.StatusFound)
		case int:
			w.WriteHeader(d)
		case []byte:
			_, _ = w.Write(d)
		default:
			_ = json.NewEncoder(w).Encode(d)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func prm(resource string, servers ...string) map[string]any {
	return map[string]any{"resource": resource, "authorization_servers": servers}
}

const known = "/.well-known/oauth-protected-resource"

// FO-35, the gateway as a client: header, then suffix, then root, and no document
// of another resource.
func TestFO35_ResourceDocuments(t *testing.T) {
	for _, tt := range []struct {
		name, path, header, at, resource string // of header, at and resource without the origin
		asked                            []string
		refused                          bool
	}{
		{name: "suffix", path: "/mcp", at: known + "/mcp", resource: "/mcp", asked: []string{known + "/mcp"}},
		{name: "suffix of a long path", path: "/team/a/mcp", at: known + "/team/a/mcp", resource: "/team/a/mcp", asked: []string{known + "/team/a/mcp"}},
		{name: "suffix, slash in the url", path: "/mcp/", at: known + "/mcp", resource: "/mcp", asked: []string{known + "/mcp"}},
		{name: "suffix, slash in the document", path: "/mcp", at: known + "/mcp", resource: "/mcp/", asked: []string{known + "/mcp"}},
		{name: "root", path: "/mcp", at: known, resource: "", asked: []string{known + "/mcp", known}},
		{name: "root with a slash", path: "/mcp", at: known, resource: "/", asked: []string{known + "/mcp", known}},
		{name: "root names the path", path: "/mcp", at: known, resource: "/mcp", asked: []string{known + "/mcp", known}},
		{name: "server at the root", path: "/", at: known, resource: "/", asked: []string{known}},
		{name: "header first", path: "/mcp", header: "/custom/doc", at: "/custom/doc", resource: "/mcp", asked: []string{"/custom/doc"}},
		{name: "header leads nowhere", path: "/mcp", header: "/gone", at: known + "/mcp", resource: "/mcp", asked: []string{"/gone", known + "/mcp"}},
		{name: "another path", path: "/mcp", at: known + "/mcp", resource: "/other", refused: true},
		{name: "a path above", path: "/team/a/mcp", at: known + "/team/a/mcp", resource: "/team", refused: true},
		{name: "a path below", path: "/mcp", at: known + "/mcp", resource: "/mcp/x", refused: true},
		{name: "a prefix of letters", path: "/mcp2", at: known + "/mcp2", resource: "/mcp", refused: true},
		{name: "another case of the path", path: "/mcp", at: known + "/mcp", resource: "/MCP", refused: true},
		{name: "a fragment", path: "/mcp", at: known + "/mcp", resource: "/mcp#x", refused: true},
		{name: "another host", path: "/mcp", at: known + "/mcp", resource: "https://evil.example/mcp", refused: true},
		{name: "none", path: "/mcp", at: known + "/mcp", resource: "-", refused: true},
		{name: "another host at the header's place", path: "/mcp", header: "/custom/doc", at: "/custom/doc", resource: "https://evil.example/mcp", refused: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t)
			resource := s.URL + tt.resource
			if strings.HasPrefix(tt.resource, "http") || tt.resource == "-" {
				resource = strings.TrimPrefix(tt.resource, "-")
			}
			s.docs[tt.at] = prm(resource, s.URL)
			header := tt.header
			if header != "" {
				header = s.URL + header
			}
			r, err := discovery.Finder{HTTP: http.DefaultTransport}.Resource(t.Context(), s.URL+tt.path, header)
			if tt.refused {
				if sallyport.CodeOf(err) != sallyport.AuthorizationRequired || !strings.Contains(err.Error(), "another resource") {
					t.Fatalf("%+v, %v: want it refused", r, err)
				}
				return
			}
			if err != nil || r.Resource != resource || !slices.Equal(s.asked, tt.asked) {
				t.Errorf("%+v, %v, asked for %q, want %q", r, err, s.asked, tt.asked)
			}
		})
	}
	t.Run("no document", func(t *testing.T) { // 2025-03-26
		s := newSite(t)
		r, err := discovery.Finder{HTTP: http.DefaultTransport}.Resource(t.Context(), s.URL+"/mcp/", "")
		if err != nil || r.Resource != s.URL+"/mcp" || !slices.Equal(r.AuthorizationServers, []string{s.URL}) {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

func metadata(origin, issuer string) map[string]any {
	return map[string]any{"issuer": issuer, "authorization_endpoint": origin + "/a", "token_endpoint": origin + "/t", "code_challenge_methods_supported": []string{"S256"}}
}

func TestServerMetadata(t *testing.T) {
	const as, oidc = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
	for _, tt := range []struct {
		path, at string
		asked    []string
	}{
		{"", as, []string{as}},
		{"", oidc, []string{as, oidc}},
		{"/t", as + "/t", []string{as + "/t"}},
		{"/t", oidc + "/t", []string{as + "/t", oidc + "/t"}},
		{"/t", "/t" + oidc, []string{as + "/t", oidc + "/t", "/t" + oidc}},
	} {
		s := newSite(t)
		s.docs[tt.at] = metadata(s.URL, s.URL+tt.path)
		got, err := discovery.Finder{HTTP: http.DefaultTransport}.Server(t.Context(), s.URL+tt.path)
		if err != nil || got.TokenEndpoint != s.URL+"/t" || !slices.Equal(s.asked, tt.asked) {
			t.Errorf("%s at %s: %+v, %v, asked for %q", tt.path, tt.at, got, err, s.asked)
		}
	}
}

// TO-11: metadata of another issuer, by however little, is not used.
func TestTO11_MetadataOfAnotherIssuer(t *testing.T) {
	for _, other := range []func(string) string{
		func(s string) string { return s + "/" },
		func(s string) string { return strings.ToUpper(s[:1]) + s[1:] },
		func(string) string { return "https://evil.example" },
		func(string) string { return "" },
		func(s string) string { return s + "/x" },
	} {
		s := newSite(t)
		s.docs["/.well-known/oauth-authorization-server"] = metadata(s.URL, other(s.URL))
		s.docs["/.well-known/openid-configuration"] = metadata(s.URL, s.URL) // no second chance
		_, err := discovery.Finder{HTTP: http.DefaultTransport}.Server(t.Context(), s.URL)
		if sallyport.CodeOf(err) != sallyport.AuthorizationRequired || !strings.Contains(err.Error(), "another issuer") {
			t.Errorf("%q: %v", other(s.URL), err)
		}
	}
}

// TO-12: documents are not fetched from where a redirect leads, and nothing secret is
// sent to where no TLS is.
func TestTO12_DocumentsStayAtTheirOrigin(t *testing.T) {
	evil, s := newSite(t), newSite(t)
	evil.docs["/doc"] = prm(s.URL+"/mcp", evil.URL)
	s.docs["/near"] = prm(s.URL+"/mcp", s.URL)
	s.docs[known+"/mcp"] = evil.URL + "/doc"
	f := discovery.Finder{HTTP: http.DefaultTransport}
	if _, err := f.Resource(t.Context(), s.URL+"/mcp", ""); err == nil || !strings.Contains(err.Error(), "another place") || len(evil.asked) != 0 {
		t.Errorf("%v, the other origin was asked for %q", err, evil.asked)
	}
	s.docs[known+"/mcp"] = "/near"
	if r, err := f.Resource(t.Context(), s.URL+"/mcp", ""); err != nil || r.Resource != s.URL+"/mcp" {
		t.Errorf("within the origin: %+v, %v", r, err)
	}
	for _, endpoint := range []string{"http://as.example/token", "https://user:pw@as.example/token", "ftp://as.example", "https://as.example/#x", "/token", "http://localhost.evil.example/t", "http://127.0.0.1.evil.example/t"} {
		m := metadata(s.URL, s.URL)
		m["token_endpoint"] = endpoint
		s.docs["/.well-known/oauth-authorization-server"] = m
		if _, err := f.Server(t.Context(), s.URL); sallyport.CodeOf(err) != sallyport.AuthorizationRequired {
			t.Errorf("token endpoint %q: %v", endpoint, err)
		}
		if _, err := f.Server(t.Context(), endpoint); err == nil {
			t.Errorf("issuer %q is used", endpoint)
		}
	}
	for _, endpoint := range []string{"https://as.example/token", "http://127.0.0.1:1/token", "http://[::1]:1/token", "http://localhost:1/t"} {
		if err := discovery.Endpoint(endpoint); err != nil {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
}

// TO-12: a server that is reached by https has no document read in clear, wherever its
// challenge says that it is; the places that are looked at then are the server's own.
func TestTO12_DocumentsInClear(t *testing.T) {
	var asked []string
	answer := func(r *http.Request) (*http.Response, error) {
		asked = append(asked, r.URL.String())
		w := httptest.NewRecorder()
		as := "https://as.example"
		if r.URL.Scheme == "http" {
			as = "https://evil.example"
		}
		_ = json.NewEncoder(w).Encode(prm("https://s.example/mcp", as))
		return w.Result(), nil
	}
	for metadata, want := range map[string]string{
		"http://s.example/doc": "https://s.example" + known + "/mcp", "HTTP://s.example/doc": "https://s.example" + known + "/mcp",
		"https://s.example/doc": "https://s.example/doc",
	} {
		asked = nil
		r, err := discovery.Finder{HTTP: roundTrip(answer)}.Resource(t.Context(), "https://s.example/mcp", metadata)
		if err != nil || !slices.Equal(r.AuthorizationServers, []string{"https://as.example"}) || !slices.Equal(asked, []string{want}) {
			t.Errorf("%s: %+v, %v, asked for %q", metadata, r, err, asked)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TO-26: documents that read differently to different readers are none.
func TestTO26_DocumentsReadOneWay(t *testing.T) {
	s := newSite(t)
	f := discovery.Finder{HTTP: http.DefaultTransport}
	for _, doc := range []string{
		`{"resource":"%[1]s/mcp","resource":"%[1]s/mcp","authorization_servers":["%[1]s"]}`,
		`{"RESOURCE":"%[1]s/mcp","Authorization_Servers":["%[1]s"]}`,
		`{"resource":"%[1]s/mcp","authorization_servers":["%[1]s"]}{}`,
	} {
		s.docs[known+"/mcp"] = fmt.Appendf(nil, doc, s.URL)
		if r, err := f.Resource(t.Context(), s.URL+"/mcp", ""); err == nil {
			t.Errorf("%s: %+v", doc, r)
		}
	}
	for doc, ok := range map[string]bool{
		`{"issuer":"%[1]s","token_endpoint":"%[1]s/t"}`: true, `{"issuer":"%[1]s","token_endpoint":"%[1]s/t","Token_Endpoint":"https://evil.example/t","Issuer":"x"}`: true,
		`{"Issuer":"%[1]s","token_endpoint":"%[1]s/t"}`: false, `{"issuer":"%[1]s","token_endpoint":"%[1]s/t","token_endpoint":"https://evil.example/t"}`: false,
	} {
		s.docs["/.well-known/oauth-authorization-server"] = fmt.Appendf(nil, doc, s.URL)
		if got, err := f.Server(t.Context(), s.URL); (err == nil) != ok || ok && got.TokenEndpoint != s.URL+"/t" {
			t.Errorf("%s: %+v, %v", doc, got, err)
		}
	}
}

func TestDocumentsAreBounded(t *testing.T) {
	s := newSite(t)
	f := discovery.Finder{HTTP: http.DefaultTransport}
	for what, doc := range map[string]any{
		"too large":    []byte(`{"resource":"` + strings.Repeat("x", 300<<10) + `"}`),
		"no JSON":      []byte("<html>"),
		"wrong kind":   []byte(`{"resource":7}`),
		"no servers":   prm(s.URL + "/mcp"),
		"many servers": prm(s.URL+"/mcp", strings.Split(strings.Repeat(s.URL+" ", 20), " ")...),
		"error":        500,
	} {
		s.docs[known+"/mcp"] = doc
		if r, err := f.Resource(t.Context(), s.URL+"/mcp", ""); err == nil {
			t.Errorf("%s: %+v", what, r)
		}
	}
}

func TestMatches(t *testing.T) {
	u, err := url.Parse("https://Host.example:443/a%2Fb?x=1")
	if err != nil {
		t.Fatal(err)
	}
	for resource, want := range map[string]bool{
		"https://host.example/a%2Fb": true, "https://HOST.example/a%2Fb?x=1": true, "https://host.example": true,
		"https://host.example/a/b": false, "https://host.example/a%2Fb?x=2": false, "http://host.example:443/a%2Fb": false, "https://host.example:444/a%2Fb": false, "": false, "host.example": false,
	} {
		if got := discovery.Matches(u, resource); got != want {
			t.Errorf("%q: %v", resource, got)
		}
	}
}

func TestChallenges(t *testing.T) {
	for _, tt := range []struct {
		headers []string
		want    discovery.Challenge
	}{
		{[]string{`Bearer resource_metadata="https://h/doc", scope="a b", error="insufficient_scope"`}, discovery.Challenge{Bearer: true, Error: "insufficient_scope", Scopes: []string{"a", "b"}, ResourceMetadata: "https://h/doc"}},
		{[]string{`Basic realm="x, y", bearer scope=a,error=invalid_token`}, discovery.Challenge{Bearer: true, Error: "invalid_token", Scopes: []string{"a"}}},
		{[]string{`DPoP algs="ES256"`, `Bearer`}, discovery.Challenge{Bearer: true}},
		{[]string{`Bearer scope="a a b", scope="c"`}, discovery.Challenge{Bearer: true, Scopes: []string{"a", "b"}}},
		{[]string{`Bearer realm="a \"quoted\" word", scope="x"`}, discovery.Challenge{Bearer: true, Scopes: []string{"x"}}},
		{[]string{`Negotiate abc==`}, discovery.Challenge{}},
		{[]string{``, `,,,`, `=`, `"`}, discovery.Challenge{}},
		{nil, discovery.Challenge{}},
	} {
		if got := discovery.ParseChallenge(tt.headers); fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("%q: %+v, want %+v", tt.headers, got, tt.want)
		}
	}
	if got := discovery.Scopes(strings.Repeat("x ", 5) + strings.Join(strings.Split(strings.Repeat("abcdefghij", 30), ""), " ") + " ab\"c \x01 " + strings.Repeat("y", 300)); len(got) != 11 {
		t.Errorf("%q", got)
	}
}

func FuzzChallenge(f *testing.F) {
	for _, s := range []string{`Bearer scope="a"`, `a b=c, d e="f`, `Bearer "`, "Bearer a=\"\\"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c := discovery.ParseChallenge([]string{s})
		for _, sc := range c.Scopes {
			if strings.ContainsAny(sc, " \"\\\r\n") {
				t.Errorf("%q gives the scope %q", s, sc)
			}
		}
	})
}
