package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"sallyport.dev/sallyport/test/stage"
	"sallyport.dev/sallyport/wire"
)

// roomy lifts the limits that a test's many calls would meet.
const roomy = "limits: {rate: 100000, burst: 100000, concurrency: 512, bytes: 1GiB}\n"

// A raw is a client that sends what it is told to, byte for byte.
type raw struct {
	url, token string
	session    string // of the earlier era; "" speaks the stateless one
}

func newRaw(t *testing.T, g *stage.Gateway) raw {
	return raw{url: g.URL + "/mcp", token: g.Token("")}
}

// legacy opens a session of the earlier era.
func (c raw) legacy(t *testing.T) raw {
	t.Helper()
	h, body, err := c.post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`, nil)
	if err != nil || h.Get("Mcp-Session-Id") == "" {
		t.Fatalf("initialize: %s, %v", body, err)
	}
	c.session = h.Get("Mcp-Session-Id")
	if _, _, err := c.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, nil); err != nil {
		t.Fatal(err)
	}
	return c
}

// post sends one body. The status is in the header as "Status".
func (c raw) post(body string, header map[string]string) (http.Header, []byte, error) {
	return c.postWith(client, body, header)
}

func (c raw) postWith(client *http.Client, body string, header map[string]string) (http.Header, []byte, error) {
	req, err := http.NewRequest(http.MethodPost, c.url, strings.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if c.session != "" {
		req.Header.Set("Mcp-Session-Id", c.session)
		req.Header.Set("MCP-Protocol-Version", "2025-11-25")
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	resp.Header.Set("Status", fmt.Sprint(resp.StatusCode))
	return resp.Header, message(b), err
}

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}

// message is the answer in a body: the body, or the last event of a stream.
func message(body []byte) []byte {
	if !bytes.Contains(body, []byte("data: ")) || bytes.HasPrefix(body, []byte("{")) {
		return body
	}
	i := bytes.LastIndex(body, []byte("data: "))
	return bytes.TrimSpace(body[i+len("data: "):])
}

// An answer is what came of a call.
type answer struct {
	Status string          `json:"-"`
	ID     json.RawMessage `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *wire.Error     `json:"error"`

	Text       string          `json:"-"` // of the first item
	Structured json.RawMessage `json:"-"`
	IsError    bool            `json:"-"`
	Code       string          `json:"-"` // of a refusal, "" for none
	Ticket     string          `json:"-"`
}

func (a answer) String() string {
	return fmt.Sprintf("status %s, result %.600s, error %v", a.Status, a.Result, a.Error)
}

const modernMeta = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`

func modernHeader(tool string) map[string]string {
	return map[string]string{"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool}
}

func callBody(id, tool, args, meta string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{%s}}}`, id, tool, args, meta)
}

// call calls a tool. meta is more of _meta, such as `"dev.sallyport/ticket":"…"`.
func (c raw) call(id, tool, args, meta string) (answer, error) {
	var header map[string]string
	if c.session == "" {
		header = modernHeader(tool)
		meta = strings.TrimSuffix(modernMeta+","+meta, ",")
	}
	h, b, err := c.post(callBody(id, tool, args, meta), header)
	if err != nil {
		return answer{}, err
	}
	a, err := parse(b)
	a.Status = h.Get("Status")
	return a, err
}

func parse(body []byte) (a answer, err error) {
	if err := json.Unmarshal(body, &a); err != nil {
		return a, fmt.Errorf("%w in %.300s", err, body)
	}
	var r struct {
		Content           []struct{ Text string }
		StructuredContent json.RawMessage
		IsError           bool
	}
	if a.Result != nil {
		if err := json.Unmarshal(a.Result, &r); err != nil {
			return a, fmt.Errorf("%w in %.300s", err, a.Result)
		}
	}
	a.Structured, a.IsError = r.StructuredContent, r.IsError
	if len(r.Content) > 0 {
		a.Text = r.Content[0].Text
	}
	var refusal struct{ Code, Ticket string }
	if a.IsError && r.StructuredContent != nil {
		_ = json.Unmarshal(r.StructuredContent, &refusal) // other shapes have no code
	}
	a.Code, a.Ticket = refusal.Code, refusal.Ticket
	return a, nil
}

// must is call, where a failure of the transport ends the test.
func (c raw) must(t *testing.T, tool, args, meta string) answer {
	t.Helper()
	a, err := c.call("1", tool, args, meta)
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return a
}

func str(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string marshals
	}
	return string(b)
}
