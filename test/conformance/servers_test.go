package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport/test/stage"
)

// serversOf is each server of a gateway with its state, as `servers list` shows.
func serversOf(g *stage.Gateway) map[string]string {
	var out struct {
		Servers []struct{ Name, State string }
	}
	_ = json.Unmarshal([]byte(g.Must("", "servers", "list", "--json").Out), &out)
	all := map[string]string{}
	for _, s := range out.Servers {
		all[s.Name] = s.State
	}
	return all
}

// A server that is added or removed at one gateway comes and goes at the others
// of the same database, while they run.
func TestServersReachTheOtherGateway(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	has := func(i int, name, state string) {
		t.Helper()
		p.g[i].Eventually(stage.Patience, fmt.Sprintf("gateway %d: %s is %q", i, name, state), func() error {
			if s := serversOf(p.g[i])[name]; s != state {
				return errors.New(s)
			}
			return nil
		})
	}
	add := func(i int, name, answers string) {
		t.Helper()
		p.g[i].Must("", "servers", "add", name, "--isolation", "uid", "--env", "STAGE_ROLE=actor", "--env", "ACTOR_NAME="+answers, "--env", named("search"), "--", stage.Self(t))
	}
	add(0, "late", "late")
	p.g[1].WaitServer("late")
	if a := p.c[1].must(t, "late__search", `{}`, ""); a.Text != "late/search" {
		t.Errorf("called at the other: %s", a)
	}
	if r := p.g[1].Run("", "servers", "add", "late", "--", "/bin/true"); r.Code != 2 || !strings.Contains(r.Err, `there is a server "late"`) {
		t.Errorf("added once more at the other: %s", r)
	}
	p.g[1].Must("", "servers", "remove", "late")
	has(0, "late", "")
	if a, err := p.c[0].call("1", "late__search", `{}`, ""); err == nil && a.Text != "" && a.Code != "unavailable" { // it is gone before its tools are
		t.Errorf("called after it was removed at the other: %s", a)
	}
	add(1, "late", "another") // the same name, something else
	p.g[0].WaitServer("late")
	if a := p.c[0].must(t, "late__search", `{}`, ""); a.Text != "another/search" {
		t.Errorf("called at the other: %s", a)
	}
	p.verify(t)
}

// A server that does not answer is added all the same; the command says so, why,
// and by its exit status.
func TestServerThatDoesNotAnswerIsAdded(t *testing.T) {
	t.Parallel()
	g := stage.New(t)
	g.Start()
	for name, argv := range map[string][]string{"closed": {"--url", "http://" + stage.FreePort(t) + "/mcp"}, "ends": {"--", "/bin/false"}} {
		why := map[string]string{"closed": "connection refused", "ends": "exit status 1"}[name]
		r := g.Run("", append([]string{"servers", "add", name}, argv...)...)
		if r.Code != 5 || !strings.Contains(r.Err, name+" is added, but does not answer: ") || !strings.Contains(r.Err, why) || !strings.Contains(r.Err, "servers remove "+name) {
			t.Errorf("%s: %s", name, r)
		}
		if _, there := serversOf(g)[name]; !there {
			t.Errorf("%s is not in the list", name)
		}
		g.Must("", "servers", "remove", name)
		r = g.Run("", append([]string{"--json", "servers", "add", name}, argv...)...)
		if r.Code != 5 || !json.Valid([]byte(r.Out)) {
			t.Errorf("%s as JSON: %s", name, r)
		}
	}
	g.Must("", "servers", "add", "good", "--isolation", "uid", "--env", "STAGE_ROLE=actor", "--env", "ACTOR_NAME=good", "--", stage.Self(t)) // the control
}

// Who has no tools is ready, too: nobody waits for them.
func TestServerWithoutToolsIsAddedAtOnce(t *testing.T) {
	t.Parallel()
	s := mcp.NewServer(&mcp.Implementation{Name: "prompts", Version: "1"}, nil)
	s.AddPrompt(&mcp.Prompt{Name: "hello"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{}, nil
	})
	peer := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	t.Cleanup(peer.Close) // once the gateway, which listens to it, is gone
	g := stage.New(t)
	g.Start()
	if r := g.Must("", "servers", "add", "prompts", "--url", peer.URL); !strings.Contains(r.Out, "ready") || strings.Contains(r.Out, "not told") { // as it is said of one that was waited for in vain
		t.Error(r)
	}
}
