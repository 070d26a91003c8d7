package mcp

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport/backend/search"
	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/catalog/profile"
)

const seekers = `
permit (principal == Agent::"default/ann", action, resource);
permit (principal == Agent::"default/alice", action in [Action::"list", Action::"call"], resource) when { ["search_tools", "call_tool", "mail__send", "mail__drop"].contains(resource.name) };
permit (principal == Agent::"default/amy", action in [Action::"list", Action::"call"], resource) when { ["call_tool"].contains(resource.name) || resource.name like "mail__*" };
permit (principal == Agent::"default/abe", action in [Action::"list", Action::"call"], resource in Server::"mail");
@id("never") forbid (principal, action == Action::"call", resource == Tool::"mail__purge_everything") when { context.args has to && context.args.to == "all" };
`

func searching(t *testing.T, version string, modern bool) (*world, *post, func(agent string) *sdk.ClientSession) {
	p := newPost(t, modern, "purge_everything", "list_mails")
	w := newWorld(t, setup{policies: seekers, servers: []upstream.Config{p.config}, tools: search.Tools(), profiles: map[string]profile.Profile{
		"few": {Names: []string{"mail__*"}, Search: true, Above: 2}, "some": {Names: []string{"mail__*"}, Search: true, Above: 5}, "off": {Names: []string{"*"}},
		"renamed": {Names: []string{"mail__*"}, Search: true, Rename: map[string]string{"write": "mail__send"}, Fix: map[string]json.RawMessage{"mail__send": json.RawMessage(`{"from":"desk"}`)}},
	}}).whole()
	return w, p, func(where string) *sdk.ClientSession {
		agent, in, _ := strings.Cut(where, "/")
		return w.client(agent, "/"+in, version, nil)
	}
}

func find(t *testing.T, c *sdk.ClientSession, query string) (names string, res *sdk.CallToolResult) {
	t.Helper()
	res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "search_tools", Arguments: map[string]any{"query": query}})
	if err != nil {
		return err.Error(), &sdk.CallToolResult{}
	}
	var out struct{ Tools []*sdk.Tool }
	raw, _ := json.Marshal(res.StructuredContent)
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return toolNames(out.Tools), res
}

// Where there are more tools than the profile lists, they are found by searching:
// those only that the caller may see.
func TestSearchStandsForLongLists(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, version string, modern bool) {
		_, _, client := searching(t, version, modern)
		for where, want := range map[string]string{
			"ann/few": "call_tool search_tools", "ann/some": "mail__drop mail__link mail__list_mails mail__purge_everything mail__send",
			"ann/off": "mail__drop mail__link mail__list_mails mail__purge_everything mail__send",
			// Who may see two is shown two; who may not search is shown all.
			"alice/few": "mail__drop mail__send", "abe/few": "mail__drop mail__link mail__list_mails mail__purge_everything mail__send",
		} {
			if list, err := client(where).ListTools(t.Context(), nil); err != nil || toolNames(list.Tools) != want {
				t.Errorf("%s: %s, %v", where, toolNames(list.Tools), err)
			}
		}
		if got, _ := find(t, client("ann/few"), "delete everything: purge"); !strings.HasPrefix(got, "mail__purge_everything ") {
			t.Errorf("found %q", got)
		}
		if got, _ := find(t, client("ann/renamed"), "write to somebody"); !strings.HasPrefix(got, "write ") {
			t.Errorf("found %q", got)
		}
		_, res := find(t, client("alice/few"), "purge everything, list mails, send")
		if s := saidBy(res); strings.Contains(s, "purge") || strings.Contains(s, "list_mails") || !strings.Contains(s, "mail__send") || !strings.Contains(s, `"searched":2`) {
			t.Errorf("alice finds %s", s)
		}
		for _, where := range []string{"abe/few", "ann/off"} {
			if got, _ := find(t, client(where), "send"); !strings.Contains(got, "unknown tool") {
				t.Errorf("%s may not search, and finds %q", where, got)
			}
		}
	})
}

// A call of call_tool is a call of the tool: for policies, the server and the
// record, and what is not theirs is not there.
func TestTO07CallToolIsTheToolItself(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, version string, modern bool) {
		w, p, client := searching(t, version, modern)
		call := func(where string, args map[string]any) (string, error) {
			res, err := client(where).CallTool(t.Context(), &sdk.CallToolParams{Name: "call_tool", Arguments: args})
			if err != nil {
				return "", err
			}
			return fmt.Sprint(res.IsError, " ", saidBy(res)), nil
		}
		args := map[string]any{"from": "a", "to": "b"}
		if got, err := call("ann/few", map[string]any{"name": "mail__send", "arguments": args}); err != nil || got != "false sent" || p.took() != `send {"from":"a","to":"b"}` {
			t.Fatalf("%s, %v", got, err)
		}
		if r := w.last(); r.Target != "mail__send" || r.Upstream != "send" || string(r.Args) != `{"from":"a","to":"b"}` {
			t.Errorf("on record as %s %s", r.Target, r.Args)
		}
		if got, err := call("ann/renamed", map[string]any{"name": "write", "arguments": map[string]any{"to": "b"}}); err != nil || got != "false sent" || p.took() != `send {"from":"desk","to":"b"}` {
			t.Errorf("%s, %v", got, err)
		}
		if got, err := call("ann/few", map[string]any{"name": "mail__purge_everything", "arguments": map[string]any{"from": "a", "to": "all"}}); err != nil || !strings.Contains(got, "never") || p.took() != "" {
			t.Errorf("what a policy forbids: %s, %v", got, err)
		}
		for _, wrong := range []map[string]any{{"name": "mail__send", "arguments": map[string]any{"to": "b"}}, {"arguments": args}, {"name": 1}, {"name": "mail__send", "arguments": []any{}}, {"name": "mail__send", "arguments": args, "tool": "x"}} {
			if got, err := call("ann/few", wrong); err != nil || !strings.HasPrefix(got, "true") || p.took() != "" {
				t.Errorf("%v: %s, %v", wrong, got, err)
			}
		}
		unknown := ""
		for where, name := range map[string]string{
			"alice/few": "mail__purge_everything", "ann/few": "mail__nothing", "ann/some": "call_tool", "amy/few": "approval_result", "ann/off": "mail__send", "ann/renamed": "mail__SEND",
		} {
			_, err := call(where, map[string]any{"name": name, "arguments": args})
			if err == nil || p.took() != "" {
				t.Fatalf("%s calls %s", where, name)
			}
			if where == "ann/off" {
				name = "call_tool"
			}
			if said := strings.ReplaceAll(err.Error(), name, "X"); unknown == "" {
				unknown = said
			} else if said != unknown {
				t.Errorf("%s: %s, else %s", where, said, unknown)
			}
		}
	})
}

// both runs a test with a client and a server of each era.
func both(t *testing.T, test func(t *testing.T, version string, modern bool)) {
	for _, version := range []string{"2025-06-18", "2026-07-28"} {
		t.Run(version, func(t *testing.T) { test(t, version, version > "2026") })
	}
}
