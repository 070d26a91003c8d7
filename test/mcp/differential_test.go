package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/mcpserver"
	"sallyport.dev/sallyport/wire"
)

// raw sends bytes as they are and returns the status and the body.
func (w *world) raw(message string) (int, string) {
	w.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, message); err != nil {
		w.t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = res.Body.Close() }()
	b, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(b)
}

// TO-26, afresh: of whatever is sent, either nothing reaches the server, or it has
// the bytes that are on record, of which there is one reading.
func TestTO26WhatIsJudgedIsWhatIsSent(t *testing.T) {
	t.Parallel()
	srv := &witness{}
	h := httptest.NewServer(srv)
	t.Cleanup(h.Close)
	w := newWorld(t, setup{policies: permitAll, servers: []upstream.Config{{Name: "w", URL: h.URL}}, door: func(o *mcpserver.Options) { o.BodyTimeout = 3 * time.Second }}).whole()
	host := strings.TrimPrefix(w.url, "http://")
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	send := func(headers, body string) (int, string) {
		return w.raw("POST /mcp HTTP/1.1\r\nHost: " + host + "\r\nAuthorization: Bearer ann\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n" +
			"Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\n" + headers + fmt.Sprintf("Content-Length: %d\r\nConnection: close\r\n\r\n", len(body)) + body)
	}
	named := "Mcp-Name: w__note\r\n"
	with := func(args string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"w__note","arguments":` + args + `,` + meta + `}}`
	}
	for _, tt := range []struct {
		name, headers, body string
		passes              bool
	}{
		{"control", named, with(`{"id":1}`), true},
		{"a key twice, one escaped", named, with(`{"id":1,"\u0069d":2}`), false},
		{"a key twice, deep", named, with(`{"a":[{"b":{"id":1,"id":2}}]}`), false},
		{"a surrogate alone", named, with(`{"id":"\ud800"}`), false},
		{"a key with a surrogate alone", named, with(`{"\udc00":1}`), false},
		{"an infinite number", named, with(`{"id":Infinity}`), false},
		{"a number with a plus", named, with(`{"id":+1}`), false},
		{"a leading zero", named, with(`{"id":01}`), false},
		{"hexadecimal", named, with(`{"id":0x1}`), false},
		{"single quotes", named, with(`{'id':1}`), false},
		{"a trailing comma", named, with(`{"id":1,}`), false},
		{"a control character", named, with("{\"id\":\"a\x01b\"}"), false},
		{"bytes that are no UTF-8", named, with("{\"id\":\"\xff\xfe\"}"), false},
		{"an overlong slash", named, with("{\"id\":\"\xc0\xaf\"}"), false},
		{"a comment", named, with(`{"id":1/*,"id":2*/}`), false},
		{"params twice, one escaped", named, strings.Replace(with(`{"id":1}`), `"params":`, `"p\u0061rams":{"name":"w__note","arguments":{"id":2}},"params":`, 1), false},
		{"arguments twice", named, strings.Replace(with(`{"id":1}`), `"arguments":`, `"arguments":{"id":2},"arguments":`, 1), false},
		{"Arguments beside arguments", named, strings.Replace(with(`{"id":1}`), `"arguments":`, `"Arguments":{"id":2},"arguments":`, 1), true},
		{"two documents", named, with(`{"id":1}`) + with(`{"id":2}`), false},
		{"a zero byte behind", named, with(`{"id":1}`) + "\x00", false},
		{"a number of any size", named, with(`{"id":1e400,"n":-0,"m":0.10000000000000000000000001}`), true},
		{"keys that fold to one", named, with(`{"key":1,"KEY":2,"\u212Aey":3,"ſ":4}`), true},
		{"line separators", named, with("{\"id\":\"\u2028\u2029\\u2028\"}"), true},
		{"an escaped zero", named, with(`{"id":"a\u0000b"}`), true},
		{"the name in base64", "Mcp-Name: =?base64?d19fbm90ZQ==?=\r\n", with(`{"id":1}`), true},
		{"another name in base64", "Mcp-Name: =?base64?d19ub3Rl?=\r\n", with(`{"id":1}`), false},
		{"base64 in another case", "Mcp-Name: =?BASE64?d19fbm90ZQ==?=\r\n", with(`{"id":1}`), false},
		{"no name", "", with(`{"id":1}`), false},
		{"the name twice", named + named, with(`{"id":1}`), false},
		{"the name with an underscore", named + "Mcp_Name: w__other\r\n", with(`{"id":1}`), true},
		{"the name folded", "Mcp-Name: w__note\r\n x\r\n", with(`{"id":1}`), false},
		{"two lengths", named + "Content-Length: 5\r\n", with(`{"id":1}`), false},
		{"chunked beside a length", named + "Transfer-Encoding: chunked\r\n", with(`{"id":1}`), false},
		{"compressed", named + "Content-Encoding: gzip\r\n", with(`{"id":1}`), false},
	} {
		srv.mu.Lock()
		srv.whole = ""
		srv.mu.Unlock()
		status, said := send(tt.headers, tt.body)
		srv.mu.Lock()
		got := srv.whole
		srv.mu.Unlock()
		if (got != "") != tt.passes {
			t.Errorf("%s: %d %.200s; the server got %q", tt.name, status, said, got)
			continue
		}
		if !tt.passes {
			if status < 400 || status == http.StatusInternalServerError {
				t.Errorf("%s: refused with %d %s", tt.name, status, said)
			}
			continue
		}
		args := wire.Path([]byte(got), "params", "arguments")
		w.mu.Lock()
		record := w.entries[len(w.entries)-1].Args
		w.mu.Unlock()
		var one, other any
		if bytes.Equal(args, record) {
			continue
		}
		// The record spells strings in its own way; it must read the same.
		if json.Unmarshal(args, &one) != nil || json.Unmarshal(record, &other) != nil || fmt.Sprint(one) != fmt.Sprint(other) {
			t.Errorf("%s: on record is %s, the server got %s", tt.name, record, args)
		}
	}
}

// TO-15, afresh: whatever a caller names, the gateway itself opens no file and no
// connection for it.
func TestTO15GatewayFetchesNothing(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	canary, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = canary.Close() })
	go func() {
		for {
			c, err := canary.Accept()
			if err != nil {
				return
			}
			asked.Add(1)
			_ = c.Close()
		}
	}()
	at := canary.Addr().String()
	a, b := newShop(t, "a", true), newShop(t, "b", false)
	w := newWorld(t, setup{policies: permitAll, servers: []upstream.Config{a.config, b.config}}).whole()
	for _, address := range []string{
		"file:///etc/hostname", "file://localhost/etc/hostname", "FILE:///etc/hostname", "/etc/hostname", "../../etc/hostname", "http://" + at + "/x", "HTTP://" + at, "//" + at + "/x",
		"data:text/plain,CANARY", "ftp://" + at, "gopher://" + at + "/_x", "jar:http://" + at + "!/x", "unix:///var/run/x.sock", "sallyport:", "sallyport:a", "sallyport:nobody/http://" + at,
		"sallyport:a/sallyport:b/file:///readme", "sallyport:b/sallyport:a/file:///readme", "sallyport:a/../b/file:///readme", "sallyport:a%2F..%2Fb/file:///readme",
		"sallyport:a/db://{table}", "sallyport:a/db://a/../../b", "sallyport:a/db://%2e%2e%2fetc%2fpasswd", "sallyport:a/file:///../etc/hostname", "sallyport:a/http://" + at + "/x",
	} {
		for _, ask := range []struct{ method, params, version string }{
			{"resources/read", `"uri":%s`, "2026-07-28"}, {"resources/read", `"uri":%s`, "2025-11-25"}, {"resources/subscribe", `"uri":%s`, "2025-11-25"},
			{"completion/complete", `"ref":{"type":"ref/resource","uri":%s},"argument":{"name":"table","value":"x"}`, "2025-11-25"},
		} {
			uri := string(wire.Quote(address))
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{`+ask.params+`}}`, ask.method, uri)
			extra := []string{w.session("ann", "2025-11-25")}
			if ask.version == "2026-07-28" {
				body = strings.Replace(body, `"params":{`, `"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}},`, 1)
				extra = []string{"Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: resources/read", "Mcp-Name: " + wire.EncodeHeader(address)}
			}
			res := w.send(t.Context(), "POST", "ann", body, extra...)
			said, _ := io.ReadAll(res.Body)
			own := strings.HasPrefix(address, "sallyport:a/") || strings.HasPrefix(address, "sallyport:b/")
			if s := string(said); !own && strings.Contains(s, `"contents"`) || strings.Contains(s, "root:") || res.StatusCode >= 500 && res.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("%s %s: %d %.200s", ask.method, address, res.StatusCode, s)
			}
		}
	}
	if asked.Load() != 0 {
		t.Errorf("the gateway connected %d times to what a caller named", asked.Load())
	}
	for server, s := range map[string]*shop{"a": a, "b": b} {
		for _, uri := range strings.Fields(s.asked()) {
			if strings.HasPrefix(uri, "sallyport:") || strings.Contains(uri, "..") || strings.Contains(uri, "%2e") {
				t.Errorf("server %s was asked for %s", server, uri)
			}
		}
	}
	c := w.client("ann", "", "2025-11-25", nil) // control: the same door reads
	if part, err := read(t, c, "sallyport:a/file:///readme"); err != nil || !strings.Contains(part.Text, "a has file:///readme") {
		t.Errorf("control: %+v, %v", part, err)
	}
}
