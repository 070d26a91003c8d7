package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.dev/sallyport/oauth/oauthtest"
	"sallyport.dev/sallyport/test/stage"
)

type consented struct {
	Name  string
	State string
	OAuth []struct{ For, Issuer, Wants string }
}

func authorised(t *testing.T, g *stage.Gateway) (out []consented) {
	t.Helper()
	var all struct{ Servers []consented }
	if err := json.Unmarshal([]byte(g.Must("", "servers", "list", "--json").Out), &all); err != nil {
		t.Fatal(err)
	}
	return all.Servers
}

// consent is what a human does with the address that `servers login` prints; it
// ends at the gateway's own page.
func consent(t *testing.T, g *stage.Gateway, args ...string) {
	t.Helper()
	link := strings.TrimSpace(g.Must("", append([]string{"servers", "login"}, args...)...).Out)
	back := oauthtest.Consent(t, link)
	if "http://"+back.Host != g.URL {
		t.Fatalf("the browser is sent to %s", back.Host)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, back.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != 200 || !strings.Contains(string(page), "may now call server") {
		t.Fatalf("the page: %s %s", resp.Status, page)
	}
}

// eventuallyText calls a tool until its answer holds want.
func eventuallyText(t *testing.T, g *stage.Gateway, c raw, tool, want string) (a answer) {
	t.Helper()
	g.Eventually(stage.Patience, tool+" says "+want, func() error {
		a = c.must(t, tool, `{"a":1}`, "")
		if !strings.Contains(string(a.Result), want) {
			return errors.New(a.String())
		}
		return nil
	})
	return a
}

// leaks looks for tokens wherever the gateway writes.
func leaks(t *testing.T, g *stage.Gateway, tokens []string, more ...string) {
	t.Helper()
	texts := append(more, g.Log(), g.Must("", "audit", "search", "--json").Out, g.Must("", "servers", "list", "--json").Out)
	files, err := filepath.Glob(filepath.Join(g.Data, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil {
			texts = append(texts, string(b))
		}
	}
	seen := 0
	for _, token := range tokens {
		if token == "" {
			continue
		}
		seen++
		for _, text := range texts {
			if strings.Contains(text, token) {
				i := strings.Index(text, token)
				t.Errorf("a token of an upstream is in %.200q", text[max(0, i-100):])
			}
		}
	}
	if seen == 0 {
		t.Error("no token was seen at all")
	}
}

// FO-40: a server, its login, its removal, and another one of its name. TO-10 and the
// masking of tokens on the way: a server that says the token it got tells nobody.
func TestFO40_RemovedServerLeavesNothing(t *testing.T) {
	t.Parallel()
	as, other := oauthtest.New(t), oauthtest.New(t)
	site, next := oauthtest.NewSite(t, as, "/mcp"), oauthtest.NewSite(t, other, "/mcp")
	g := stage.New(t)
	g.Write("tools/s.yaml", "server: s\ntool: test-tool\nread_only: true\n")
	g.Start()
	g.Run("", "servers", "add", "s", "--url", site.URL, "--oauth", "gateway") // does not answer yet
	if r := g.Run("", "doctor"); !strings.Contains(r.Out, "servers login s") {
		t.Errorf("doctor does not say that a login is missing: %s", r)
	}
	if all := authorised(t, g); len(all) != 1 || len(all[0].OAuth) != 1 || all[0].OAuth[0].Wants != "a login" {
		t.Fatalf("%+v", all)
	}
	consent(t, g, "s")
	g.WaitServer("s")
	c := newRaw(t, g)
	a := eventuallyText(t, g, c, "s__test-tool", "with Bearer")
	if strings.Contains(a.Text, c.token) {
		t.Error("the agent's own token went to the server")
	}
	for _, token := range site.Tokens() {
		if token == c.token {
			t.Error("the agent's own token went to the server")
		}
	}
	leaks(t, g, site.Tokens(), a.Text)
	if all := authorised(t, g); len(all[0].OAuth) != 1 || all[0].OAuth[0].Wants != "" || all[0].OAuth[0].Issuer != as.ID() {
		t.Fatalf("%+v", all)
	}
	// More is wanted: the agent reads which command, and nothing runs.
	site.Need("b")
	a = eventuallyText(t, g, c, "s__test-tool", "authorization_required")
	if s := string(a.Structured); !strings.Contains(s, `"step":"execute"`) || !strings.Contains(s, "servers login s") || !strings.Contains(s, "consent to more: b") {
		t.Errorf("%s", a)
	}
	site.Need("")
	g.Must("", "servers", "remove", "s")
	g.Eventually(stage.Patience, "the grant is revoked", func() error {
		if n := as.Live(); n != 0 {
			return fmt.Errorf("%d grants live", n)
		}
		return nil
	})
	if all := authorised(t, g); len(all) != 0 {
		t.Errorf("after the removal: %+v", all)
	}
	g.Stop()
	g.Start()
	if all := authorised(t, g); len(all) != 0 {
		t.Errorf("after a start: %+v", all)
	}
	g.Run("", "servers", "add", "s", "--url", next.URL, "--oauth", "gateway")
	if all := authorised(t, g); len(all) != 1 || len(all[0].OAuth) != 1 || all[0].OAuth[0].Wants != "a login" {
		t.Errorf("the new one: %+v", all)
	}
	for _, token := range next.Tokens() {
		if token != "" {
			t.Error("the new one got a token")
		}
	}
	if r := g.Run("", "call", "s__test-tool", "{}"); r.Code == 0 {
		t.Errorf("the new one is called: %s", r)
	}
	if n, r, _ := other.Counts(); n+r != 0 {
		t.Errorf("somebody was sent to the new one's authorization server")
	}
}

// Each agent calls with a grant of its own, in a profile of the configuration, over
// a refresh at the authorization server.
func TestFO37_GrantsOfAgentsThroughTheGateway(t *testing.T) {
	t.Parallel()
	as := oauthtest.New(t)
	site := oauthtest.NewSite(t, as, "/mcp")
	g := stage.New(t)
	g.Write("sallyport.yaml", g.Config(fmt.Sprintf("servers: {s: {url: %q, oauth: {per: agent}}}\n", site.URL)))
	g.Write("tools/s.yaml", "server: s\ntool: test-tool\nread_only: true\n")
	g.Start()
	g.Must("", "agents", "add", "bob")
	consent(t, g, "s") // the gateway itself lists
	g.WaitServer("s")
	agent, bob := newRaw(t, g), raw{url: g.URL + "/mcp", token: g.Token("bob")}
	consent(t, g, "s", "--agent", "agent")
	eventuallyText(t, g, agent, "s__test-tool", "with Bearer")
	eventuallyText(t, g, bob, "s__test-tool", "--agent bob")
	before := site.Tokens()
	as.Expire()
	eventuallyText(t, g, agent, "s__test-tool", "with Bearer")
	if after := site.Tokens(); len(after) == len(before) || len(as.Asked("refresh_token")) == 0 {
		t.Error("nothing was refreshed")
	}
	if r := g.Run("", "servers", "login", "s", "--agent", "nobody"); r.Code != 3 {
		t.Errorf("a login for no agent: %s", r)
	}
	g.Must("", "servers", "logout", "s", "--agent", "agent")
	eventuallyText(t, g, agent, "s__test-tool", "--agent agent")
	leaks(t, g, site.Tokens())
}

// FO-35: behind a proxy, each endpoint has a document of its own, with the URL at
// which it was asked for, and takes the tokens for it; without a trusted proxy, or
// for a URL that nobody listed, the gateway is what it is.
func TestFO35_DocumentsBehindAProxy(t *testing.T) {
	t.Parallel()
	g := stage.New(t)
	g.Write("sallyport.yaml", g.Config("url: https://gw.example\nproxies: [127.0.0.1/32]\nprofiles: {a: {tools: [run_python]}}\n"+
		"endpoints: {\"https://root.example/\": \"\", \"https://gw.example/mcp\": \"\", \"https://gw.example/team/a/mcp\": a}\n"))
	g.Start()
	const known = "/.well-known/oauth-protected-resource"
	get := func(method, path, host string) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, g.URL+path, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		if err != nil {
			t.Fatal(err)
		}
		if host != "" {
			req.Header.Set("X-Forwarded-Proto", "https")
			req.Header.Set("X-Forwarded-Host", host)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp, string(b)
	}
	for _, tt := range []struct{ host, path, resource, document string }{
		{"root.example", "/", "https://root.example/", "https://root.example" + known},
		{"gw.example", "/mcp", "https://gw.example/mcp", "https://gw.example" + known + "/mcp"},
		{"gw.example", "/team/a/mcp", "https://gw.example/team/a/mcp", "https://gw.example" + known + "/team/a/mcp"},
		{"evil.example", "/mcp", g.URL + "/mcp", g.URL + known + "/mcp"},
		{"", "/mcp", g.URL + "/mcp", g.URL + known + "/mcp"},
	} {
		resp, body := get("GET", known+strings.TrimSuffix(tt.path, "/"), tt.host)
		var doc struct {
			Resource string
			Servers  []string `json:"authorization_servers"`
		}
		if err := json.Unmarshal([]byte(body), &doc); err != nil || doc.Resource != tt.resource || len(doc.Servers) != 1 || doc.Servers[0] != "https://gw.example" {
			t.Errorf("%s%s: %s %s", tt.host, tt.path, resp.Status, body)
		}
		resp, body = get("POST", tt.path, tt.host)
		if h := resp.Header.Get("WWW-Authenticate"); resp.StatusCode != 401 || !strings.Contains(h, `resource_metadata="`+tt.document+`"`) {
			t.Errorf("%s%s: %s %q %s", tt.host, tt.path, resp.Status, h, body)
		}
	}
	if resp, _ := get("POST", "/team/a/mcp", ""); resp.StatusCode != 404 {
		t.Errorf("without a proxy /team/a/mcp answers %s", resp.Status)
	}
	if _, body := get("GET", "/.well-known/oauth-authorization-server", ""); !strings.Contains(body, `"issuer":"https://gw.example"`) {
		t.Errorf("the authorization server: %s", body)
	}
	newRaw(t, g).must(t, "run_python", `{"code":"1"}`, "") // a token of the command line, at the gateway itself
	// TO-13: a request that names no path is looked at like every other.
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", g.Listen)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "OPTIONS * HTTP/1.1\r\nHost: attacker.test\r\nConnection: close\r\n\r\n")
	if said, _ := io.ReadAll(conn); !strings.HasPrefix(string(said), "HTTP/1.1 403 ") {
		t.Errorf("OPTIONS * of a foreign host: %.100s", said)
	}
}

// FO-38: a session is its principal's, not a token's. A new token of the same agent
// goes on in it; another agent's finds none, and does it no harm.
func TestFO38_SessionOutlivesItsToken(t *testing.T) {
	t.Parallel()
	g := stage.New(t)
	g.Start()
	g.Must("", "agents", "add", "eve")
	c := newRaw(t, g).legacy(t)
	c.must(t, "run_python", `{"code":"1"}`, "")
	later := c
	if later.token = g.Token("agent"); later.token == c.token {
		t.Fatal("it is the same token")
	}
	if a := later.must(t, "run_python", `{"code":"1"}`, ""); a.Error != nil || a.IsError {
		t.Errorf("with a new token: %s", a)
	}
	eve := c
	eve.token = g.Token("eve")
	if a, err := eve.call("1", "run_python", `{"code":"1"}`, ""); err == nil && !strings.Contains(a.Status, "404") && !strings.Contains(a.Status, "403") {
		t.Errorf("with another agent's token: %s", a)
	}
	for _, own := range []raw{c, later} {
		if a := own.must(t, "run_python", `{"code":"1"}`, ""); a.Error != nil || a.IsError {
			t.Errorf("afterwards: %s", a)
		}
	}
}
