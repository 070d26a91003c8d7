package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sallyport.dev/sallyport/test/stage"
)

// asker is a program of the earlier eras whose tool asks for whom it is, without saying
// in which call.
const asker = `
const say = m => console.log(JSON.stringify({jsonrpc: '2.0', ...m}));
const open = {};
require('readline').createInterface({input: process.stdin}).on('line', l => {
  const m = JSON.parse(l);
  if (m.method === 'initialize') say({id: m.id, result: {protocolVersion: '2025-06-18', capabilities: {tools: {}}, serverInfo: {name: 'asker', version: '1'}}});
  else if (m.method === 'tools/list') say({id: m.id, result: {tools: [{name: 'act', description: 'acts, after an elicitation', inputSchema: {type: 'object'}}]}});
  else if (m.method === 'tools/call') {
    open['q' + m.id] = m.id;
    say({id: 'q' + m.id, method: 'elicitation/create', params: {message: 'For whom?', requestedSchema: {type: 'object', properties: {name: {type: 'string'}}}}});
  } else if (m.id in open) say({id: open[m.id], result: {content: [{type: 'text', text: m.result ? 'did it for ' + m.result.content.name : m.error.message}]}});
  else if (m.id !== undefined && m.method) say({id: m.id, error: {code: -32601, message: 'no'}});
});
`

// fills makes a call, answers what it asks, as often as it does, and returns what it
// comes to.
func (c raw) fills(t *testing.T, name string) string {
	const tool = "asker__act"
	more := ""
	for range 5 {
		body := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"` + tool + `","arguments":{}` + more +
			`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}`
		_, b, err := c.post(body, modernHeader(tool))
		var a turn
		if err == nil {
			err = json.Unmarshal(b, &a)
		}
		if err != nil || a.Error != nil {
			t.Errorf("%s: %s, %v", name, b, err)
			return ""
		}
		if a.Result.ResultType != "input_required" {
			return fmt.Sprint(a.Result.Content)
		}
		more = `,"requestState":` + str(a.Result.RequestState) + `,"inputResponses":{`
		for key := range a.Result.InputRequests {
			more += str(key) + `:{"action":"accept","content":{"name":` + str(name) + `}},`
		}
		more = strings.TrimSuffix(more, ",") + "}"
	}
	t.Errorf("%s: it asks without end", name)
	return ""
}

// A program of the earlier eras that asks in the middle of calls is one sandbox for each
// caller, from the first call on: agents that call at once are each asked their own
// questions only, and their answers go to their own calls. Who is alone needs one sandbox.
func TestAProgramThatAsksHasASandboxForEachCaller(t *testing.T) {
	dir := stage.OpenDir(t)
	if err := os.WriteFile(filepath.Join(dir, "asker.js"), []byte(asker), 0o644); err != nil {
		t.Fatal(err)
	}
	g := gateway{stage.New(t), t}
	g.Write("sallyport.yaml", g.Config(fmt.Sprintf("servers: {asker: {command: node, args: [%q], roots: [{path: %q}]}}\n", filepath.Join(dir, "asker.js"), dir)))
	g.Write("tools/ask.yaml", "server: asker\ntool: act\nread_only: true\n")
	g.Start("asker")
	const service = "server asker"
	first := newRaw(t, g.Gateway)
	if got := first.fills(t, "first"); !strings.Contains(got, "for first") {
		t.Errorf("the first: %s", got)
	}
	if n := g.sandboxes()[service]; n != 1 {
		t.Errorf("%d sandboxes for one caller", n)
	}
	callers := map[string]raw{"first": first}
	for _, agent := range []string{"ann", "bob"} {
		g.Must("", "agents", "add", agent)
		callers[agent] = raw{url: g.URL + "/mcp", token: g.Token(agent)}
	}
	var wait sync.WaitGroup
	for agent, c := range callers {
		for i := range 2 {
			wait.Go(func() {
				name := fmt.Sprint(agent, i)
				if got := c.fills(t, name); !strings.Contains(got, "for "+name) {
					t.Errorf("%s gets %s", name, got)
				}
			})
		}
	}
	wait.Wait()
	if n := g.sandboxes()[service]; n != len(callers) {
		t.Errorf("%d sandboxes for %d callers", n, len(callers))
	}
}
