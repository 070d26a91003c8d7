package mcp

import (
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/upstream"
)

// Alice may read all of a but one resource, and its prompt; ann may read all.
const guarded = `
@id("all") permit (principal == Agent::"default/ann", action, resource);
@id("some") permit (principal == Agent::"default/alice", action == Action::"read", resource in Server::"a");
@id("none") forbid (principal == Agent::"default/alice", action == Action::"read", resource == Resource::"sallyport:a/file:///secret");
@id("who") forbid (principal == Agent::"default/alice", action == Action::"read", resource is Prompt) when { context.args has who && context.args.who == "root" };
`

// TO-07, FO-07: what a list hides can neither be read nor completed, in any
// spelling, and looks as if it were not there.
func TestTO07HiddenIsUnknown(t *testing.T) {
	t.Parallel()
	every(t, func(t *testing.T, version string, modern bool) {
		a, b := newShop(t, "a", modern), newShop(t, "b", modern)
		w := newWorld(t, setup{policies: guarded, servers: []upstream.Config{a.config, b.config}}).whole()
		ann, alice := w.client("ann", "", version, nil), w.client("alice", "", version, nil)
		if _, err := read(t, ann, "sallyport:a/file:///secret"); err != nil {
			t.Fatalf("the control: %v", err)
		}
		before := a.asked()
		if got := resourcesOf(t, alice); got != "sallyport:a/file:///pixel sallyport:a/file:///readme" {
			t.Errorf("alice sees %s", got)
		}
		unknown := ""
		for _, uri := range []string{
			"sallyport:b/file:///nothing", "sallyport:b/file:///readme", "sallyport:a/file:///secret", "sallyport:a/FILE:///secret", "sallyport:a/file:///%73ecret",
			"sallyport:a/file:///x/../secret", "sallyport:a/file:///./secret", "sallyport:A/file:///secret", "file:///secret", "sallyport:a/~ZmlsZTovLy9zZWNyZXQ",
		} {
			_, err := read(t, alice, uri)
			if err == nil {
				t.Fatalf("%s was read", uri)
			}
			if told := strings.ReplaceAll(err.Error(), uri, "X"); unknown == "" {
				unknown = told
			} else if told != unknown {
				t.Errorf("%s: %s, but what is not there: %s", uri, told, unknown)
			}
		}
		for _, ref := range []*sdk.CompleteReference{{Type: "ref/prompt", Name: "b__greet"}, {Type: "ref/resource", URI: "sallyport:b/db://{table}"}} {
			if _, err := alice.Complete(t.Context(), &sdk.CompleteParams{Ref: ref, Argument: sdk.CompleteParamsArgument{Name: "who", Value: "y"}}); rpcCode(err) != -32602 {
				t.Errorf("%+v: %v", ref, err)
			}
		}
		if _, err := alice.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "b__greet", Arguments: map[string]string{"who": "x"}}); rpcCode(err) != -32602 {
			t.Errorf("a hidden prompt: %v", err)
		}
		if _, err := alice.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "a__greet", Arguments: map[string]string{"who": "root"}}); rpcCode(err) != 403 {
			t.Errorf("arguments that a policy forbids: %v", err)
		}
		if _, err := alice.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "a__greet", Arguments: map[string]string{"who": "x"}}); err != nil {
			t.Errorf("and those that it does not: %v", err)
		}
		if a.asked() != before || b.asked() != "" {
			t.Errorf("the servers were asked %s, %s", a.asked(), b.asked())
		}
	})
}

// A secret does not leave in the arguments of a prompt, or in an address.
func TestSecretsDoNotLeaveInReadings(t *testing.T) {
	t.Parallel()
	a := newShop(t, "a", true)
	w := newWorld(t, setup{servers: []upstream.Config{a.config}}).whole()
	c := w.client("ann", "", "2026-07-28", nil)
	const secret = "postgres://app:tr0ub4dor-and-3@db.internal/x"
	if _, err := c.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "a__greet", Arguments: map[string]string{"who": secret}}); rpcCode(err) != 403 {
		t.Errorf("prompt: %v", err)
	}
	if _, err := read(t, c, "sallyport:a/"+secret); rpcCode(err) != 403 {
		t.Errorf("address: %v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.entries) != 2 || a.asked() != "" {
		t.Errorf("%d entries; the server was asked %s", len(w.entries), a.asked())
	}
	for _, r := range w.entries {
		if strings.Contains(string(r.Args)+r.Target+r.Message, "tr0ub4dor") || r.Code != sallyport.Denied {
			t.Errorf("recorded: %+v", r)
		}
	}
}
