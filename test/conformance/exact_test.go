package conformance

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"unicode/utf16"

	"sallyport.dev/sallyport/test/stage"
)

// A post is a gateway with its raw client and the ledger behind it.
type post struct {
	*stage.Gateway
	raw
	ledger *stage.Ledger
}

func TestExact(t *testing.T) {
	t.Parallel()
	g, ledger := ledgered(t, "")
	p := &post{g, newRaw(t, g), ledger}
	for _, c := range []struct {
		name string
		test func(*testing.T, *post)
	}{
		{"FO12_OneIDForAll", oneIDForAll},
		{"FO13_IDsComeBackAsTheyWere", idsComeBack},
		{"FO27_Digits", digits},
		{"TO26_OneView", oneView},
		{"TO26_Refused", refusedBodies},
		{"TO13_HostAndOrigin", hostAndOrigin},
	} {
		t.Run(c.name, func(t *testing.T) {
			g.In(t)
			c.test(t, p)
		})
	}
}

// A thousand calls with one id, interleaved over sessions and requests: no
// answer reaches anybody but its caller.
func oneIDForAll(t *testing.T, p *post) {
	sessions := []raw{p.legacy(t), p.legacy(t), p.raw, p.raw, p.raw, p.raw, p.raw, p.raw, p.raw, p.raw}
	var wg sync.WaitGroup
	for i, c := range sessions {
		wg.Go(func() {
			for n := range 100 {
				marker := fmt.Sprintf(`{"marker":"%d-%d"}`, i, n)
				if a, err := c.call("1", "a__echo", marker, ""); err != nil || a.Text != marker || string(a.ID) != "1" {
					t.Errorf("%s came back as %s, %v", marker, a, err)
					return
				}
			}
		})
	}
	wg.Wait()
	// Two calls with one id at once in one session: one is refused, the other
	// ends as ever.
	s := p.legacy(t)
	both := make(chan answer, 2)
	for range 2 {
		go func() {
			a, err := s.call("7", "a__wait", `{"n":500}`, "")
			if err != nil {
				t.Error(err)
			}
			both <- a
		}()
	}
	refused, done := <-both, <-both
	if refused.Error == nil || refused.Error.Code != -32600 || done.Text != "waited" {
		t.Errorf("first %s, then %s", refused, done)
	}
}

func idsComeBack(t *testing.T, p *post) {
	session := p.legacy(t)
	for _, id := range []string{`1`, `"1"`, `"001"`, `""`, `9007199254740993`, `-7`, `0`, `"2f1c1a1e-7b1f-4d6a-9a55-0c1d7b2f6a11"`, `"é\u0000"`} {
		for era, c := range map[string]raw{"modern": p.raw, "legacy": session} {
			if a, err := c.call(id, "a__echo", `{}`, ""); err != nil || !bytes.Equal(a.ID, []byte(id)) || a.Text != `{}` {
				t.Errorf("%s, id %s: %s came back, %s, %v", era, id, a.ID, a, err)
			}
		}
		if _, b, err := session.post(`{"jsonrpc":"2.0","id":`+id+`,"method":"ping"}`, nil); err != nil || !strings.Contains(string(b), `"id":`+id+`,`) && !strings.Contains(string(b), `"id":`+id+`}`) {
			t.Errorf("ping, id %s: %s, %v", id, b, err)
		}
	}
	for _, id := range []string{`null`, `1.5`, `1e3`, `[]`, `{}`, `true`} {
		for era, c := range map[string]raw{"modern": p.raw, "legacy": session} {
			if a, err := c.call(id, "a__echo", `{}`, ""); err != nil || a.Error == nil || a.Error.Code != -32600 {
				t.Errorf("%s, id %s: %s, %v; want -32600", era, id, a, err)
			}
		}
	}
	var wg sync.WaitGroup // 1 and "1" at the same time
	for _, id := range []string{`1`, `"1"`} {
		wg.Go(func() {
			args := `{"n":100,"text":` + str(id) + `}`
			if a, err := session.call(id, "a__wait", args, ""); err != nil || string(a.ID) != id || a.Text != "waited" {
				t.Errorf("%s beside the other: %s, %v", id, a, err)
			}
		})
	}
	wg.Wait()
}

const numbers = `{"a":9007199254740993,"b":9223372036854775807,"c":-9223372036854775808,"d":18446744073709551615,` +
	`"e":1e400,"f":0.1,"g":1.0,"h":-0,"i":12345678901234567890.123456789}`

// An audited entry, as `audit search` gives it.
type audited struct {
	Kind    string
	CallID  string `json:"call_id"`
	Payload json.RawMessage
}

func (p *post) audit(t *testing.T, flags ...string) (all []audited) {
	t.Helper()
	var out struct{ Entries []audited }
	if err := json.Unmarshal([]byte(p.Must("", append([]string{"audit", "search", "--json"}, flags...)...).Out), &out); err != nil {
		t.Fatal(err)
	}
	return out.Entries
}

// compact takes white space out, and leaves every digit where it is.
func compact(t *testing.T, raw []byte) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return b.String()
}

// Everybody sees the same digits: upstream, caller, approver, audit, and the
// fingerprint under which the call is remembered.
func digits(t *testing.T, p *post) {
	a := p.must(t, "a__echo", numbers, keyed("digits"))
	if a.Text != numbers || string(a.Structured) != numbers {
		t.Errorf("the upstream got %s\nthe caller gets %s\nthe agent sent %s", a.Text, a.Structured, numbers)
	}
	if r := p.Must("", "call", "a__echo", numbers); strings.TrimSpace(r.Out) != numbers {
		t.Errorf("by the command line: %s", r)
	}
	id := ticketFor(t, p.raw, "a__transfer", numbers, "")
	if got := compact(t, ticket(t, p.Gateway, id).Binding.Args); got != numbers {
		t.Errorf("the ticket holds %s", got)
	}
	shown := p.Must("", "approvals", "show", id).Out
	for n := range strings.SplitSeq(strings.Trim(numbers, "{}"), ",") {
		name, literal, _ := strings.Cut(n, ":")
		if !strings.Contains(shown, name+": "+literal+"\n") && !strings.Contains(shown, name+": "+literal+",\n") {
			t.Errorf("the approver does not see %s: %s", n, shown)
		}
	}
	p.Login()
	p.Must("", "approvals", "approve", id)
	if a := p.must(t, "a__transfer", numbers, ticketed(id)); a.Text != "paid "+numbers || p.ledger.Count(numbers) != 1 {
		t.Errorf("what was executed: %s, %q", a, p.ledger.Lines())
	}
	for _, tool := range []string{"a__echo", "a__transfer"} {
		seen := false
		for _, e := range p.audit(t, "--tool", tool) {
			seen = seen || strings.Contains(compact(t, e.Payload), numbers)
		}
		if !seen {
			t.Errorf("audit search --tool %s does not show the digits: %s", tool, p.audit(t, "--tool", tool))
		}
	}
	var out struct {
		Reservations []struct{ Key, Fingerprint string }
	}
	if err := json.Unmarshal([]byte(p.Must("", "reservations", "list", "--json").Out), &out); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(numbers))
	for _, r := range out.Reservations {
		if r.Key == "digits" && r.Fingerprint == hex.EncodeToString(sum[:]) {
			return
		}
	}
	t.Errorf("no reservation has the fingerprint of these digits: %+v", out)
}

// What the approver, the audit and the upstream see of a call is the same, byte
// for byte, however it was written.
func oneView(t *testing.T, p *post) {
	p.Login()
	for name, c := range map[string]struct{ args, want string }{
		"keys that differ in case": {`{"ID":2,"id":1,"Id":3}`, `{"ID":2,"Id":3,"id":1}`},
		"escaped key":              {`{"\u0069d":1}`, `{"id":1}`},
		"escapes":                  {`{"q":"\u0044ROP\/\u00e9\ud834\udd1e\u0000"}`, `{"q":"DROP/é𝄞\u0000"}`},
		"nested JSON":              {`{"q":"{\"id\":1,\"id\":2}"}`, `{"q":"{\"id\":1,\"id\":2}"}`},
		"white space":              {" {\t\"b\" :1,\n\"a\": [ ] } ", `{"a":[],"b":1}`},
		"order":                    {`{"z":1,"a":{"y":2,"b":3}}`, `{"a":{"b":3,"y":2},"z":1}`},
		"a null":                   {`{"a":null}`, `{"a":null}`},
		"an empty name":            {`{"":""}`, `{"":""}`},
	} {
		id := ticketFor(t, p.raw, "a__transfer", c.args, "")
		if got := compact(t, ticket(t, p.Gateway, id).Binding.Args); got != c.want {
			t.Errorf("%s: the approver saw %s, want %s", name, got, c.want)
		}
		p.Must("", "approvals", "approve", id)
		if a := p.must(t, "a__transfer", c.args, ticketed(id)); a.Text != "paid "+c.want || p.ledger.Count(c.want) != 1 {
			t.Errorf("%s: the upstream got %s, want %s", name, a, c.want)
		}
		entries := p.audit(t, "--tool", "a__transfer", "--kind", "intent", "--limit", "1")
		if len(entries) != 1 || !strings.Contains(compact(t, entries[0].Payload), `"args":`+c.want) {
			t.Errorf("%s: the audit has %s, want %s", name, entries, c.want)
		}
	}
}

// What two parsers could read in two ways is refused, and reaches nobody.
func refusedBodies(t *testing.T, p *post) {
	body := callBody("1", "a__pay", `{"to":"differential"}`, modernMeta)
	edit := func(old, new string) string {
		if !strings.Contains(body, old) {
			t.Fatalf("%s is not in %s", old, body)
		}
		return strings.Replace(body, old, new, 1)
	}
	units := utf16.Encode([]rune(body))
	wide := make([]byte, 0, 2*len(units))
	for _, u := range units {
		wide = binary.LittleEndian.AppendUint16(wide, u)
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write([]byte(body)); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		body   string
		header map[string]string
	}{
		"duplicate argument":      {body: edit(`{"to":"differential"}`, `{"to":"differential","to":"x"}`)},
		"duplicate, escaped":      {body: edit(`{"to":"differential"}`, `{"to":"differential","\u0074o":"x"}`)},
		"duplicate, deep":         {body: edit(`{"to":"differential"}`, `{"to":"differential","a":[{"b":1,"b":2}]}`)},
		"params twice":            {body: edit(`"params":`, `"params":{"name":"a__echo","arguments":{}},"params":`)},
		"name twice":              {body: edit(`"name":`, `"name":"a__echo","name":`)},
		"method twice":            {body: edit(`"method":`, `"method":"ping","method":`)},
		"id twice":                {body: edit(`"id":1`, `"id":1,"id":2`)},
		"Params":                  {body: edit(`"params":`, `"Params":`)},
		"Arguments and arguments": {body: edit(`"arguments":`, `"Name":"a__echo","arguments":[],"Arguments":`)},
		"two documents":           {body: body + body},
		"trailing data":           {body: body + "x"},
		"byte order mark":         {body: "\ufeff" + body},
		"a comment":               {body: edit(`"id":1`, `"id":1/**/`)},
		"NaN":                     {body: edit(`"differential"`, `NaN`)},
		"hexadecimal":             {body: edit(`"differential"`, `0x10`)},
		"single quotes":           {body: edit(`"differential"`, `'differential'`)},
		"trailing comma":          {body: edit(`"differential"`, `"differential",`)},
		"bad UTF-8":               {body: edit(`differential`, "differential\xff")},
		"overlong UTF-8":          {body: edit(`differential`, "differential\xc0\xaf")},
		"lone surrogate":          {body: edit(`differential`, `differential\ud800`)},
		"UTF-16":                  {body: string(wide)},
		"UTF-16, told":            {body: string(wide), header: map[string]string{"Content-Type": "application/json; charset=utf-16"}},
		"UTF-7, told":             {body: body, header: map[string]string{"Content-Type": "application/json; charset=utf-7"}},
		"gzip":                    {body: zipped.String(), header: map[string]string{"Content-Encoding": "gzip"}},
		"multipart":               {body: body, header: map[string]string{"Content-Type": "multipart/form-data; boundary=x"}},
		"plain text":              {body: body, header: map[string]string{"Content-Type": "text/plain"}},
		"a batch":                 {body: "[" + body + "]"},
		"too deep":                {body: edit(`"differential"`, strings.Repeat("[", 500)+strings.Repeat("]", 500))},
		"another name on top":     {body: body, header: map[string]string{"Mcp-Name": "a__echo"}},
		"another case on top":     {body: body, header: map[string]string{"Mcp-Name": "A__PAY"}},
		"another method on top":   {body: body, header: map[string]string{"Mcp-Method": "tools/list"}},
		"another version on top":  {body: body, header: map[string]string{"MCP-Protocol-Version": "2025-11-25"}},
	} {
		header := modernHeader("a__pay")
		maps.Copy(header, c.header)
		h, b, err := p.post(c.body, header)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if a, err := parse(b); err == nil && a.Error == nil && !a.IsError || strings.Contains(string(b), "paid") {
			t.Errorf("%s: status %s, %s", name, h.Get("Status"), b)
		}
	}
	if lines := strings.Join(p.ledger.Lines(), "\n"); strings.Contains(lines, "differential") {
		t.Errorf("a refused body reached the upstream: %s", lines)
	}
	if _, b, err := p.post(edit(`tools/call`, `tools\u002fcall`), modernHeader("a__pay")); err != nil || !strings.Contains(string(b), "paid") {
		t.Errorf("the control, a body that can be read in one way only: %s, %v", b, err)
	}
}

// A page that makes a browser talk to the gateway gets nowhere: 403 at every
// face, whatever the method.
func hostAndOrigin(t *testing.T, p *post) {
	_, port, _ := strings.Cut(p.Listen, ":")
	direct := *client
	direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	type header struct{ host, origin string }
	ask := func(method, path string, h header) *http.Response {
		t.Helper()
		req, err := http.NewRequest(method, p.URL+path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+p.token)
		if h.host != "" {
			req.Host = h.host
		}
		if h.origin != "" {
			req.Header["Origin"] = []string{h.origin}
		}
		resp, err := direct.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	bad := []header{
		{host: "attacker.test"}, {host: "attacker.test:" + port}, {host: "localhost.attacker.test:" + port},
		{host: "127.0.0.1.attacker.test:" + port}, {host: "127.0.0.1:1"}, {host: "[::ffff:127.0.0.1]:" + port},
		{host: "127.1:" + port}, {host: "2130706433:" + port}, {host: "localhost.:" + port}, {host: "0.0.0.0:" + port},
		{origin: "http://evil.test"}, {origin: "null"}, {origin: "HTTP://EVIL.TEST"}, {origin: "http://127.0.0.1"},
		{origin: "http://127.0.0.1:" + port + ".evil.test"}, {origin: "http://localhost:" + port + "@evil.test"},
		{origin: "http://evil.test, http://127.0.0.1:" + port}, {origin: " "},
	}
	for _, path := range []string{
		"/mcp", "/mcp/x", "/oauth/token", "/oauth/jwks", "/api/v1/status", "/api/v1/login", "/api/v1/approvals/x/approve", "/healthz", "/readyz",
		"/metrics", "/console/", "/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-authorization-server", "/nowhere",
	} {
		for _, method := range []string{"GET", "POST", "OPTIONS", "DELETE"} {
			for _, h := range bad {
				resp := ask(method, path, h)
				if resp.StatusCode != http.StatusForbidden || resp.Header.Get("Access-Control-Allow-Origin") != "" {
					t.Errorf("%s %s with %+v: %s", method, path, h, resp.Status)
				}
			}
			for _, h := range []header{{}, {host: "localhost:" + port}, {origin: "http://" + p.Listen}} {
				if resp := ask(method, path, h); resp.StatusCode == http.StatusForbidden || resp.Header.Get("Access-Control-Allow-Origin") != "" {
					t.Errorf("the control: %s %s with %+v: %s", method, path, h, resp.Status)
				}
			}
		}
	}
}
