package mcpserver_test

import (
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/mcpserver"
	"sallyport.dev/sallyport/wire"
)

func (d *door) listed(method, params string, extra ...string) (string, wire.Message) {
	d.t.Helper()
	body, headers := modern("1", method, params)
	_, got := d.post(body, append(headers, extra...)...)
	m, err := wire.ParseMessage([]byte(got))
	if err != nil {
		d.t.Fatalf("%s: %v", got, err)
	}
	next, _ := wire.String(wire.Member(m.Result, "nextCursor"))
	return next, m
}

// FO-05: cursors are the gateway's own: of one list, one caller, one state.
func TestFO05CursorsOfOthersAreRefused(t *testing.T) {
	d := newDoor(t, func(o *mcpserver.Options) { o.PageSize = 1 })
	next, _ := d.listed("tools/list", "")
	with := `"cursor":` + string(wire.Quote(next))
	if after, m := d.listed("tools/list", with); m.Error != nil || after == "" || after == next {
		t.Fatalf("the control: %+v", m)
	}
	refused := func(what string, m wire.Message) {
		t.Helper()
		if m.Error == nil || m.Error.Code != wire.CodeInvalidParams {
			t.Errorf("%s: %s, %+v", what, m.Result, m.Error)
		}
	}
	_, m := d.listed("tools/list", with, "Authorization: Bearer carol")
	refused("another caller's", m)
	_, m = d.listed("resources/list", with)
	refused("another list's", m)
	_, m = d.listed("tools/list", `"cursor":"`+next[:len(next)-1]+`"`)
	refused("a cut one", m)
	res, got := d.post(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+with+`}}`, d.open("alice"))
	if res.StatusCode != 200 || !strings.Contains(got, "-32602") {
		t.Errorf("another session's: %s", got)
	}
	d.gw.mu.Lock()
	d.gw.tools = append(d.gw.tools, sallyport.Tool{Name: "zz", Digest: "d"})
	d.gw.mu.Unlock()
	_, m = d.listed("tools/list", with)
	refused("one from before a change", m)
}

// A list that lacks a server says so, and an empty one is an error.
func TestListsAreNeverEmptyBecauseOfAFailure(t *testing.T) {
	d := newDoor(t, nil)
	d.gw.incomplete = true
	for _, method := range []string{"tools/list", "resources/list", "resources/templates/list", "prompts/list"} {
		_, m := d.listed(method, "")
		if m.Error != nil || string(wire.Path(m.Result, "_meta", wire.MetaIncomplete)) != "true" || wire.Path(m.Result, "_meta", wire.MetaServerInfo) == nil {
			t.Errorf("%s: %s, %v", method, m.Result, m.Error)
		}
		_, got := d.post(`{"jsonrpc":"2.0","id":1,"method":"`+method+`"}`, d.open("alice"))
		if !strings.Contains(got, `"_meta":{"`+wire.MetaIncomplete+`":true}`) {
			t.Errorf("%s: %s", method, got)
		}
	}
	d.gw.shelves = nil
	_, m := d.listed("prompts/list", "")
	if m.Error == nil || m.Error.Code != 503 {
		t.Errorf("an empty list: %s", m.Result)
	}
	d.gw.incomplete = false
	if _, m := d.listed("prompts/list", ""); m.Error != nil || string(wire.Member(m.Result, "prompts")) != "[]" {
		t.Errorf("where there is nothing: %+v", m)
	}
}

// Clients with sessions know structured content that is an object, and its schema;
// stateless ones get what the server wrote.
func TestStructuredContentThatIsNoObject(t *testing.T) {
	d := newDoor(t, nil)
	d.gw.tools = []sallyport.Tool{{Name: "numbers", Definition: []byte(`{"name":"numbers","inputSchema":{"type":"object"},"outputSchema":{"type":"array"}}`)}}
	_, m := d.listed("tools/list", "")
	if !strings.Contains(string(m.Result), `"outputSchema":{"type":"array"}`) {
		t.Errorf("a stateless client: %s", m.Result)
	}
	body, headers := modern("1", "tools/call", `"name":"numbers"`)
	if _, got := d.post(body, headers...); !strings.Contains(got, `"content":[],"structuredContent":[9007199254740993]`) {
		t.Errorf("a stateless client: %s", got)
	}
	session := d.open("alice")
	if _, got := d.post(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, session); strings.Contains(got, "outputSchema") || !strings.Contains(got, `"numbers"`) {
		t.Errorf("a client with a session: %s", got)
	}
	_, got := d.post(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"numbers"}}`, session)
	if !strings.Contains(got, `"content":[{"type":"text","text":"[9007199254740993]"}],"structuredContent":{"result":[9007199254740993]}`) {
		t.Errorf("a client with a session: %s", got)
	}
}
