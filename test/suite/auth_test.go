package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport/test/bearer"
	"sallyport.dev/sallyport/test/stage"
)

// The scenarios of authorisation: the suite's server wants tokens. An agent calls;
// where the gateway says which command is needed, an operator gives it, and a human
// opens the address that it prints.
var authScenarios = []string{
	"metadata-default", "metadata-var1", "metadata-var2", "metadata-var3", "basic-cimd",
	"scope-from-www-authenticate", "scope-from-scopes-supported", "scope-omitted-when-undefined", "scope-step-up", "scope-retry-limit",
	"token-endpoint-auth-basic", "token-endpoint-auth-post", "token-endpoint-auth-none", "pre-registration", "resource-mismatch",
	"offline-access-scope", "offline-access-not-supported", "authorization-server-migration",
	"iss-supported", "iss-not-advertised", "iss-supported-missing", "iss-wrong-issuer", "iss-unexpected", "iss-normalized", "metadata-issuer-mismatch",
	"client-credentials-jwt", "client-credentials-basic",
}

// command is what the gateway says that an operator must do.
var command = regexp.MustCompile("`sallyport (servers login [^`]+)`")

// browser goes where it is sent, once.
var browser = &http.Client{Timeout: 10 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

func open(link string) (*http.Response, error) {
	resp, err := browser.Get(link) //nolint:noctx // it has a time of its own
	if err == nil {
		resp.Body.Close()
	}
	return resp, err
}

// authorised plays a scenario of authorisation.
func authorised(t *testing.T, g *stage.Gateway, p Play) error {
	args := []string{"servers", "add", "suite", "--url", p.URL, "--oauth", "gateway"}
	var known struct {
		ID     string `json:"client_id"`
		Secret string `json:"client_secret"`
		Key    string `json:"private_key_pem"`
	}
	if err := json.Unmarshal(p.Context, &known); err != nil {
		return err
	}
	switch {
	case known.ID == "":
		args = append(args, "--oauth-set", "metadata_url=https://conformance-test.local/client-metadata.json")
	default:
		issuer, err := issuerOf(p.URL)
		if err != nil {
			return err
		}
		args = append(args, "--oauth-set", "client_id="+known.ID, "--oauth-set", "issuer="+issuer)
		for key, value := range map[string]string{"client_secret": known.Secret, "private_key": known.Key} {
			if value != "" {
				g.Must(value, "secrets", "set", "suite-"+key)
				args = append(args, "--oauth-set", key+"=${secret:suite-"+key+"}")
			}
		}
	}
	if strings.Contains(p.Scenario, "client-credentials") {
		args = append(args, "--oauth-set", "grant=client_credentials")
	}
	g.Run("", args...) // it does not answer before somebody has logged in
	defer g.Run("", "servers", "remove", "suite")
	for range 2 { // the second finds what has changed since the first
		if err := consenting(g, p); err != nil {
			return err
		}
	}
	return nil
}

// issuerOf is what an operator knows of whom he registered the client with.
func issuerOf(link string) (string, error) {
	resp, err := http.Get(strings.TrimSuffix(link, "/mcp") + "/.well-known/oauth-protected-resource/mcp") //nolint:noctx // it is the suite's
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var doc struct {
		Servers []string `json:"authorization_servers"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&doc); err != nil || len(doc.Servers) == 0 {
		return "", fmt.Errorf("no authorization server: %w", err)
	}
	return doc.Servers[0], nil
}

// consenting calls, and does what the gateway says that somebody must do.
func consenting(g *stage.Gateway, p Play) error {
	for logins := 0; ; logins++ {
		said, err := once(g, p)
		if err == nil {
			return nil
		}
		found := command.FindStringSubmatch(said)
		if found == nil || logins == 5 {
			return err
		}
		began := g.Run("", strings.Fields(found[1])...)
		if began.Code != 0 {
			return fmt.Errorf("%s: %s", found[1], began)
		}
		sent, err := open(strings.TrimSpace(began.Out))
		if err != nil {
			return err
		}
		back, err := sent.Location()
		if err != nil {
			return err
		}
		if page, err := open(back.String()); err != nil || page.StatusCode != http.StatusOK {
			return fmt.Errorf("the login did not succeed: %v", err)
		}
	}
}

// once lists and calls as an agent does, and returns all that was said where it
// fails.
func once(g *stage.Gateway, p Play) (said string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), stage.Patience)
	defer cancel()
	a := &agent{play: p, server: "suite"}
	transport := &mcp.StreamableClientTransport{Endpoint: g.URL + "/mcp", HTTPClient: bearer.Client(g.Token(""))}
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	if a.ClientSession, err = client.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: p.Version}); err != nil {
		return "", err
	}
	defer a.Close()
	for deadline := time.Now().Add(stage.Patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		tools, err := a.tools(ctx)
		if err != nil {
			return "", err
		}
		if len(tools) > 0 {
			if err = a.call(ctx, "test-tool", nil); err != nil {
				said = err.Error()
			}
			return said, err
		}
		var list struct {
			Servers []struct{ Name, State, Error string }
		}
		if err := json.Unmarshal([]byte(g.Must("", "servers", "list", "--json").Out), &list); err != nil {
			return "", err
		}
		for _, s := range list.Servers {
			if s.Name == "suite" && s.Error != "" {
				return s.Error, errors.New(s.Error)
			}
		}
	}
	return "", errors.New("nothing is listed, and nothing is said")
}
