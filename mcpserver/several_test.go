package mcpserver_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"sallyport.dev/sallyport/mcpserver"
	"sallyport.dev/sallyport/mcpserver/batch"
	"sallyport.dev/sallyport/mcpserver/stream"
)

// openAs makes a session of a revision and returns its header line.
func (d *door) openAs(version string) string {
	d.t.Helper()
	res, body := d.post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` + version + `","capabilities":{}}}`)
	if !strings.Contains(body, `"protocolVersion":"`+version+`"`) {
		d.t.Fatalf("initialize: %d %s", res.StatusCode, body)
	}
	return "Mcp-Session-Id: " + res.Header.Get("Mcp-Session-Id")
}

func echo(id, n string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"echo","arguments":{"n":` + n + `}}}`
}

// The revision 2025-03-26 has batches: each message is taken as if it had come alone.
func TestBatches(t *testing.T) {
	d := newDoor(t, nil)
	s := d.openAs("2025-03-26")
	note := `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	for _, tt := range []struct {
		name, body string
		status     int
		want       []string // of each answer
	}{
		{"two calls", "[" + echo("1", "1.0") + "," + echo(`"a"`, "2e2") + "]", 200, []string{`"id":1,"result":{"content"`, `"id":"a","result":{"content"`}},
		{"FO-12: an id twice", "[" + echo("1", "1") + "," + echo("1", "2") + "," + echo(`"1"`, "3") + "]", 200, []string{`"id":1,"result":`, `"id":1,"error":{"code":-32600`, `"id":"1","result":`}},
		{"with space around", " \n[ " + echo("1", "1") + " ]\r\n", 200, []string{`"id":1,"result":`}},
		{"calls and notifications", "[" + note + "," + echo("7", "1") + "," + note + "]", 200, []string{`"id":7,"result":`}},
		{"notifications alone", "[" + note + "," + note + "]", 202, nil},
		{"a response that nobody awaits", `[{"jsonrpc":"2.0","id":3,"result":{}}]`, 202, nil},
		{"what is refused", "[" + echo("1", "1") + `,{"jsonrpc":"2.0","id":2,"method":"no/such"},{"jsonrpc":"2.0","id":null,"method":"ping"},7,[],` + strings.Replace(echo("3", "1"), `"echo"`, `"other"`, 1) + "]", 200,
			[]string{`"id":1,"result":`, `"id":2,"error":{"code":-32601`, `"error":{"code":-32600`, `"error":{"code":-32600`, `"error":{"code":-32600`, `"id":3,"error":{"code":-32602`}},
		{"initialize", `[{"jsonrpc":"2.0","id":9,"method":"initialize","params":{"protocolVersion":"2025-03-26"}}]`, 200, []string{`"id":9,"error":{"code":-32600`}},
		{"empty", "[]", 400, nil},
		{"not JSON", "[" + echo("1", "1") + ",]", 400, nil},
		{"a name twice", "[" + strings.Replace(echo("1", "1"), `"n":1`, `"n":1,"n":2`, 1) + "]", 400, nil},
		{"two documents", "[" + echo("1", "1") + "][" + echo("2", "1") + "]", 400, nil},
		{"too many", "[" + strings.Repeat(note+",", batch.Most) + note + "]", 400, nil},
	} {
		res, body := d.post(tt.body, s)
		var got []json.RawMessage
		if err := json.Unmarshal([]byte(body), &got); res.StatusCode != tt.status || tt.want != nil && (err != nil || len(got) != len(tt.want)) || tt.status == 202 && body != "" {
			t.Errorf("%s: %d %s", tt.name, res.StatusCode, body)
			continue
		}
		for i, want := range tt.want {
			if !strings.Contains(string(got[i]), want) {
				t.Errorf("%s: answer %d is %s, want %s", tt.name, i, got[i], want)
			}
		}
	}
	if n := d.gw.count(); n != 8 {
		t.Errorf("the gateway was called %d times", n)
	}
}

// TO-07: a batch is no way around who a session belongs to, or what a revision has.
func TestTO07_BatchesOfOthers(t *testing.T) {
	d := newDoor(t, nil)
	body := "[" + echo("1", "1") + "]"
	_, headers := modern("1", "tools/call", `"name":"echo"`)
	s := d.openAs("2025-03-26")
	for _, tt := range []struct {
		name   string
		extra  []string
		status int
	}{
		{"another's session", []string{s, "Authorization: Bearer bob"}, 404},
		{"no token", []string{s, "-Authorization"}, 401},
		{"a token that is no good", []string{s, "Authorization: Bearer mallory"}, 401},
		{"no session", nil, 400},
		{"two sessions", []string{s, "+" + s}, 400},
		{"stateless", headers, 400},
		{"stateless, with a session", append(headers, s), 400},
		{"2025-06-18", []string{d.openAs("2025-06-18")}, 400},
		{"2025-11-25", []string{d.openAs("2025-11-25")}, 400},
	} {
		if res, got := d.post(body, tt.extra...); res.StatusCode != tt.status {
			t.Errorf("%s: %d %s", tt.name, res.StatusCode, got)
		}
	}
	if n := d.gw.count(); n != 0 {
		t.Errorf("the gateway was called %d times", n)
	}
	// A message of the stateless revision within one is none of it.
	one, _ := modern("1", "tools/call", `"name":"echo"`)
	if _, got := d.post("["+one+"]", s); !strings.Contains(got, `"error"`) || d.gw.count() != 0 {
		t.Errorf("a stateless message in a batch: %s", got)
	}
}

// What all answers may need is bounded, and nothing is done that could not be told.
func TestBatchesAreBounded(t *testing.T) {
	d := newDoor(t, nil)
	s := d.openAs("2025-03-26")
	big := `"` + strings.Repeat("x", 1<<20) + `"`
	res, body := d.post("["+echo("1", big)+","+echo("2", big)+","+echo("3", big)+"]", s)
	var got []json.RawMessage
	if err := json.Unmarshal([]byte(body), &got); err != nil || len(got) != 3 || d.gw.count() != 3 {
		t.Fatalf("%d, %d answers, %d calls", res.StatusCode, len(got), d.gw.count())
	}
	d = newDoor(t, nil)
	s = d.openAs("2025-03-26")
	d.gw.huge = batch.Enough
	_, body = d.post("["+echo("1", "1")+","+echo("2", "2")+"]", s)
	if err := json.Unmarshal([]byte(body), &got); err != nil || len(got) != 2 || d.gw.count() != 1 || !strings.Contains(string(got[1]), `"id":2,"error":{"code":413`) {
		t.Errorf("%d answers, %d calls: %.300s", len(got), d.gw.count(), got[len(got)-1])
	}
}

// A revision that is not known here is refused by every method of HTTP.
func TestUnknownRevisionOnEveryMethod(t *testing.T) {
	d := newDoor(t, func(o *mcpserver.Options) { o.Hub = stream.NewHub(nil, nil) })
	s := d.open("alice")
	for _, version := range []string{"2024-11-05", "2025-13-01", "banana"} {
		for _, method := range []string{"POST", "GET", "DELETE"} {
			res, body := d.do(d.newRequest(context.Background(), method, "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, s, "Mcp-Protocol-Version: "+version))
			if res.StatusCode != 400 {
				t.Errorf("%s with %q: %d %s", method, version, res.StatusCode, body)
			}
		}
	}
	if res, body := d.post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, s, "Mcp-Protocol-Version: 2025-11-25"); res.StatusCode != 200 {
		t.Errorf("afterwards: %d %s", res.StatusCode, body)
	}
	res, _ := d.do(d.newRequest(context.Background(), "DELETE", "/mcp", "", s, "+Mcp-Protocol-Version: 2025-11-25", "+Mcp-Protocol-Version: 2025-06-18"))
	if res.StatusCode != 400 {
		t.Errorf("two revisions: %d", res.StatusCode)
	}
}
