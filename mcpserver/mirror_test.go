package mcpserver_test

import (
	"fmt"
	"testing"
)

// TO-07: headers that mirror arguments are checked for tools that the caller may see.
// Of any other one the answer tells nothing, whoever listed it before: not that it is
// there, nor which arguments it has, and to a stranger only that a token is needed.
func TestTO07_ParamHeadersTellOfNothingHidden(t *testing.T) {
	d := newDoor(t, nil)
	list, headers := modern("1", "tools/list", "")
	if res, body := d.post(list, headers...); res.StatusCode != 200 { // alice sees all tools
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	ask := func(token, tool string) string {
		body, headers := modern("2", "tools/call", fmt.Sprintf(`"name":%q,"arguments":{"region":"eu"}`, tool))
		res, said := d.post(body, append(headers, "Authorization: Bearer "+token, "Mcp-Param-Region: us")...)
		return fmt.Sprint(res.StatusCode, " ", said)
	}
	const mismatch = `400 {"jsonrpc":"2.0","id":2,"error":{"code":-32020,"message":"header mismatch: Mcp-Param-Region differs from arguments.region"}}`
	if got := ask("alice", "mirror"); got != mismatch {
		t.Errorf("who sees it: %s", got)
	}
	for _, token := range []string{"bob", "nobody"} { // bob sees another tool
		if got, other := ask(token, "mirror"), ask(token, "echo"); got == mismatch || got[:4] != other[:4] {
			t.Errorf("%s: %s; of a tool without such headers: %s", token, got, other)
		}
	}
}
