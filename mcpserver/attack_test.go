package mcpserver_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"sallyport.dev/sallyport/mcpserver"
	"sallyport.dev/sallyport/mcpserver/hosts"
)

var errRead = errors.New("the body was read")

// poisoned fails the test's purpose if somebody reads it.
type poisoned struct{ read bool }

func (p *poisoned) Read([]byte) (int, error) { p.read = true; return 0, errRead }

// hostCases: PORT is the listener's.
var hostCases = []struct {
	host, origin string
	ok           bool
}{
	{"127.0.0.1:PORT", "", true},
	{"localhost:PORT", "", true},
	{"LOCALHOST:PORT", "", true},
	{"[::1]:PORT", "", true},
	{"127.0.0.2:PORT", "", true}, // a literal of the loopback range: no name to rebind
	{"gw.example.com", "", true},
	{"GW.example.com:443", "", true},
	{"alt.example.com:8443", "", true},

	{"attacker.test", "", false},
	{"attacker.test:PORT", "", false},
	{"localhost.attacker.test:PORT", "", false},
	{"127.0.0.1.nip.example:PORT", "", false},
	{"127.0.0.1.attacker.test", "", false},
	{"localhost.:PORT", "", false},
	{"127.0.0.1", "", false},
	{"localhost:1", "", false},
	{"127.1:PORT", "", false},
	{"2130706433:PORT", "", false},
	{"[::ffff:127.0.0.1]:PORT", "", false},
	{"[::2]:PORT", "", false},
	{"0.0.0.0:PORT", "", false},
	{"alt.example.com:8444", "", false},
	{"evil.gw.example.com", "", false},

	{"127.0.0.1:PORT", "http://127.0.0.1:PORT", true},
	{"localhost:PORT", "http://localhost:PORT", true},
	{"localhost:PORT", "HTTP://LOCALHOST:PORT", true},
	{"127.0.0.1:PORT", "https://console.example.com", true},
	{"127.0.0.1:PORT", "HTTPS://CONSOLE.EXAMPLE.COM", true},
	{"gw.example.com", "https://console.example.com", true},

	{"127.0.0.1:PORT", "null", false},
	{"127.0.0.1:PORT", "https://evil.example", false},
	{"127.0.0.1:PORT", "http://localhost:PORT", false}, // another origin than the host
	{"127.0.0.1:PORT", "http://127.0.0.1:1", false},
	{"127.0.0.1:PORT", "http://127.0.0.1:PORT/x", false},
	{"127.0.0.1:PORT", "http://user@127.0.0.1:PORT", false},
	{"127.0.0.1:PORT", "http://127.0.0.1:PORT.evil.example", false},
	{"127.0.0.1:PORT", "file://127.0.0.1:PORT", false},
	{"127.0.0.1:PORT", "https://console.example.com.evil.example", false},
	{"gw.example.com", "https://gw.example.com", false}, // not loopback and not configured
}

func TestTO13_HostAndOrigin(t *testing.T) {
	d := newDoor(t, func(o *mcpserver.Options) {
		o.Hosts = hosts.Policy{Hosts: []string{"gw.example.com", "alt.example.com:8443"}, Origins: []string{"https://console.example.com"}}
	})
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(d.base, "http://"))
	for _, tt := range hostCases {
		tt.host, tt.origin = strings.ReplaceAll(tt.host, "PORT", port), strings.ReplaceAll(tt.origin, "PORT", port)
		for _, method := range []string{"POST", "GET", "OPTIONS", "DELETE"} {
			for _, path := range []string{"/mcp", "/mcp/finance", "/.well-known/oauth-protected-resource/mcp"} {
				extra := []string{"Host: " + tt.host}
				if tt.origin != "" {
					extra = append(extra, "Origin: "+tt.origin)
				}
				res, _ := d.do(d.newRequest(context.Background(), method, path, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, extra...))
				if refused := res.StatusCode == http.StatusForbidden; refused == tt.ok {
					t.Errorf("%s %s with host %q, origin %q: %d", method, path, tt.host, tt.origin, res.StatusCode)
				}
				for h := range res.Header {
					if strings.HasPrefix(h, "Access-Control-") {
						t.Errorf("%s %s answers with %s", method, path, h)
					}
				}
			}
		}
	}
}

// A page may send "simple" content types without asking first: they are no
// way in either, and a request without a token is refused whatever its origin.
func TestTO13_SimpleRequestsAndNoToken(t *testing.T) {
	d := newDoor(t, nil)
	body, headers := modern("1", "tools/list", "")
	for _, ct := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""} {
		if res, _ := d.post(body, append(headers, "Content-Type: "+ct)...); res.StatusCode != http.StatusUnsupportedMediaType {
			t.Errorf("content type %q: %d", ct, res.StatusCode)
		}
	}
	for _, origin := range []string{"-Origin", "Origin: " + d.base} {
		if res, _ := d.post(body, append(headers, "-Authorization", origin)...); res.StatusCode != http.StatusUnauthorized {
			t.Errorf("no token, %s: %d", origin, res.StatusCode)
		}
	}
	if d.gw.count()+d.gw.lists != 0 {
		t.Error("the gateway was reached")
	}
}

func TestTO13_BodyIsNotReadAndNoHostIsRefused(t *testing.T) {
	d := newDoor(t, nil)
	for _, setUp := range []func(*http.Request){
		func(r *http.Request) { r.Host = "attacker.test" },
		func(r *http.Request) { r.Header.Set("Origin", "null") },
		func(r *http.Request) {
			r.Header.Add("Origin", "http://"+r.Host)
			r.Header.Add("Origin", "https://evil.example")
		},
	} {
		body := &poisoned{}
		r := httptest.NewRequest("POST", "/mcp", body)
		addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7450}
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, addr))
		r.Host = "127.0.0.1:7450"
		setUp(r)
		w := httptest.NewRecorder()
		d.server.ServeHTTP(w, r)
		if w.Code != http.StatusForbidden || body.read {
			t.Errorf("status %d, body read: %v", w.Code, body.read)
		}
	}
	// Positive control: with a good host the body is read.
	body := &poisoned{}
	r := httptest.NewRequest("POST", "/mcp", body)
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{Port: 7450}))
	r.Host = "127.0.0.1:7450"
	r.Header.Set("Authorization", "Bearer alice")
	r.Header.Set("Content-Type", "application/json")
	if d.server.ServeHTTP(httptest.NewRecorder(), r); !body.read {
		t.Error("control: the body was not read")
	}
	if got := rawStatus(t, d, "POST /mcp HTTP/1.0\r\n\r\n"); got != http.StatusForbidden {
		t.Errorf("no host: %d", got)
	}
}

// rawStatus sends bytes as they are and returns the status of the answer.
func rawStatus(t *testing.T, d *door, raw string) int {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(d.base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, raw); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode
}

func gzipped(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, s)
	_ = w.Close()
	return b.String()
}

func utf16be(s string) string {
	b := []byte{0xfe, 0xff}
	for _, u := range utf16.Encode([]rune(s)) {
		b = append(b, byte(u>>8), byte(u))
	}
	return string(b)
}

func sub(old, new string) func(string) string {
	return func(s string) string {
		if !strings.Contains(s, old) {
			panic(old + " is not in " + s)
		}
		return strings.Replace(s, old, new, 1)
	}
}

func same(s string) string { return s }

func multipart(s string) string {
	return "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n" + s + "\r\n--x--\r\n"
}

// differentials are edits of one good call, and what each must be refused with.
var differentials = []struct {
	name   string
	edit   func(string) string
	extra  []string
	status int
	code   string
}{
	{"duplicate key in the arguments", sub(`{"id":1}`, `{"id":1,"id":2}`), nil, 400, "-32700"},
	{"duplicate key, one escaped", sub(`{"id":1}`, `{"id":1,"\u0069d":2}`), nil, 400, "-32700"},
	{"duplicate key, deep", sub(`{"id":1}`, `{"a":[{"id":1,"id":2}]}`), nil, 400, "-32700"},
	{"params twice", sub(`"method"`, `"params":{},"method"`), nil, 400, "-32700"},
	{"method twice", sub(`"method":"tools/call"`, `"method":"ping","method":"tools/call"`), nil, 400, "-32700"},
	{"name twice", sub(`"name":"echo"`, `"name":"denied","name":"echo"`), nil, 400, "-32700"},
	{"method in another case beside it", sub(`"method"`, `"METHOD":"ping","method"`), nil, 400, "-32600"},
	{"params in another case", sub(`"params"`, `"Params"`), nil, 400, "-32600"},
	{"two documents", func(s string) string { return s + s }, nil, 400, "-32700"},
	{"two documents, on two lines", func(s string) string { return s + "\n" + s }, nil, 400, "-32700"},
	{"trailing text", func(s string) string { return s + "x" }, nil, 400, "-32700"},
	{"trailing zero", func(s string) string { return s + "\x00" }, nil, 400, "-32700"},
	{"comment", sub(`{"id":1}`, `{"id":1/*2*/}`), nil, 400, "-32700"},
	{"trailing comma", sub(`{"id":1}`, `{"id":1,}`), nil, 400, "-32700"},
	{"NaN", sub(`{"id":1}`, `{"id":NaN}`), nil, 400, "-32700"},
	{"leading zero", sub(`{"id":1}`, `{"id":01}`), nil, 400, "-32700"},
	{"byte order mark", func(s string) string { return "\ufeff" + s }, nil, 400, "-32700"},
	{"invalid UTF-8", sub(`{"id":1}`, "{\"id\":\"\xc0\xaf\"}"), nil, 400, "-32700"},
	{"lone surrogate", sub(`{"id":1}`, `{"id":"\ud800"}`), nil, 400, "-32700"},
	{"UTF-16", utf16be, nil, 400, "-32700"},
	{"UTF-16, declared", utf16be, []string{"Content-Type: application/json; charset=utf-16"}, 415, "-32600"},
	{"UTF-7, declared", same, []string{"Content-Type: application/json; charset=utf-7"}, 415, "-32600"},
	{"gzip", gzipped, []string{"Content-Encoding: gzip"}, 415, "-32600"},
	{"gzip, not declared", gzipped, nil, 400, "-32700"},
	{"multipart", multipart, []string{"Content-Type: multipart/form-data; boundary=x"}, 415, "-32600"},
	{"two content types", same, []string{"+Content-Type: text/plain"}, 415, "-32600"},
	{"batch", func(s string) string { return "[" + s + "]" }, nil, 400, "-32600"},
	{"method header differs", same, []string{"Mcp-Method: tools/list"}, 400, "-32020"},
	{"method in another case", sub("tools/call", "Tools/Call"), nil, 400, "-32020"},
	{"name header differs", same, []string{"Mcp-Name: denied"}, 400, "-32020"},
	{"version header differs", same, []string{"Mcp-Protocol-Version: 2025-11-25"}, 400, "-32020"},
	{"method header twice", same, []string{"+Mcp-Method: tools/list"}, 400, "-32020"},
	{"too deep", sub(`{"id":1}`, strings.Repeat(`{"a":`, 300)+"1"+strings.Repeat("}", 300)), nil, 400, "-32700"},
}

// Whatever two readers could read differently is refused before the gateway
// sees anything of it.
func TestTO26_ParserDifferential(t *testing.T) {
	d := newDoor(t, nil)
	good, headers := modern("1", "tools/call", `"name":"echo","arguments":{"id":1}`)
	for _, tt := range differentials {
		res, body := d.post(tt.edit(good), append(append([]string(nil), headers...), tt.extra...)...)
		if res.StatusCode != tt.status || !strings.Contains(body, `"code":`+tt.code) {
			t.Errorf("%s: %d %s; want %d and %s", tt.name, res.StatusCode, body, tt.status, tt.code)
		}
	}
	if d.gw.count() != 0 {
		t.Fatalf("the gateway was called %d times", d.gw.count())
	}

	// What only looks odd passes, and the gateway sees one meaning of it.
	for _, tt := range []struct {
		name string
		edit func(string) string
		args string
	}{
		{"positive control", same, `{"id":1}`},
		{"escaped method and name", sub(`"method":"tools/call"`, `"method":"tools\/c\u0061ll"`), `{"id":1}`},
		{"keys that differ in case", sub(`{"id":1}`, `{"ID":2,"id":1}`), `{"ID":2,"id":1}`},
		{"JSON inside a string", sub(`{"id":1}`, `{"id":"{\"id\":1,\"id\":2}"}`), `{"id":"{\"id\":1,\"id\":2}"}`},
	} {
		res, body := d.post(tt.edit(good), headers...)
		if got := string(d.gw.last(t).Operation.Args); res.StatusCode != 200 || got != tt.args {
			t.Errorf("%s: %d %s; the gateway got %s", tt.name, res.StatusCode, body, got)
		}
	}
}

func TestBodyLimit(t *testing.T) {
	d := newDoor(t, func(o *mcpserver.Options) { o.MaxBody = 1000 })
	body, headers := modern("1", "tools/call", `"name":"echo","arguments":{"x":"`+strings.Repeat("x", 1000)+`"}`)
	if res, _ := d.post(body, headers...); res.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("announced: %d", res.StatusCode)
	}
	unread := &poisoned{}
	r := httptest.NewRequest("POST", "/mcp", unread)
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{Port: 7450}))
	r.Host, r.ContentLength = "127.0.0.1:7450", 1001
	r.Header = http.Header{"Authorization": {"Bearer alice"}, "Content-Type": {"application/json"}}
	if d.server.ServeHTTP(httptest.NewRecorder(), r); unread.read {
		t.Error("a body announced as too large was read")
	}
	req := d.newRequest(context.Background(), "POST", "/mcp", body, headers...)
	req.ContentLength = -1
	if res, _ := d.do(req); res.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("chunked: %d", res.StatusCode)
	}
	hasty := newDoor(t, func(o *mcpserver.Options) { o.BodyTimeout = 300 * time.Millisecond })
	head := "POST /mcp HTTP/1.1\r\nHost: " + strings.TrimPrefix(d.base, "http://") + "\r\nAuthorization: Bearer alice\r\nContent-Type: application/json\r\nContent-Length: "
	if got := rawStatus(t, hasty, strings.ReplaceAll(head, d.base[7:], hasty.base[7:])+"500\r\n\r\n{"); got != http.StatusBadRequest {
		t.Errorf("a body that does not come: %d", got)
	}
	for _, odd := range []string{
		"POST /mcp HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		head + "3\r\nContent-Length: 4\r\n\r\n{}",
		strings.TrimSuffix(head, "Content-Length: ") + "Transfer-Encoding: gzip\r\n\r\n",
	} {
		if got := rawStatus(t, d, odd); got < 400 {
			t.Errorf("%q: %d", odd, got)
		}
	}
}

func TestPanicIsCountedAndHidden(t *testing.T) {
	d := newDoor(t, nil)
	body, headers := modern("1", "tools/call", `"name":"panic","arguments":{}`)
	for i := range 3 {
		res, got := d.post(body, headers...)
		id := errID.FindString(got)
		if res.StatusCode != 500 || id == "" || strings.Contains(got, "hunter2") || !strings.Contains(got, `"id":1`) {
			t.Errorf("%d %s", res.StatusCode, got)
		}
		if d.server.Panics() != int64(i+1) || !strings.Contains(d.log.String(), id) || !strings.Contains(d.log.String(), "hunter2") {
			t.Errorf("%d panics counted, log: %s", d.server.Panics(), d.log)
		}
	}
	body, headers = modern("2", "tools/call", `"name":"echo"`)
	if res, _ := d.post(body, headers...); res.StatusCode != 200 {
		t.Errorf("afterwards: %d", res.StatusCode)
	}
}

func TestInternalErrorsShowOnlyAnID(t *testing.T) {
	d := newDoor(t, nil)
	for _, name := range []string{"broken", "broken-late", "malformed"} {
		body, headers := modern("1", "tools/call", `"name":"`+name+`"`)
		_, got := d.post(body, headers...)
		id := errID.FindString(got)
		if id == "" || strings.Contains(got, "hunter2") || !strings.Contains(d.log.String(), id) {
			t.Errorf("%s: %s\nlog: %s", name, got, d.log)
		}
	}
}

// Who has no good token gets its answer before a large body is read.
func TestLargeBodyOfAStranger(t *testing.T) {
	for name, c := range map[string]struct {
		token  string
		length int64
		read   bool
	}{
		"a stranger announces 4 MiB":       {"mallory", 4 << 20, false},
		"a stranger announces nothing":     {"mallory", -1, false},
		"a stranger sends a small message": {"mallory", 100, true},
		"an agent announces 4 MiB":         {"alice", 4 << 20, true},
	} {
		d := newDoor(t, nil)
		body := &poisoned{}
		r := httptest.NewRequest("POST", "/mcp", body)
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{Port: 7450}))
		r.Host, r.ContentLength = "127.0.0.1:7450", c.length
		r.Header.Set("Authorization", "Bearer "+c.token)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		d.server.ServeHTTP(w, r)
		if body.read != c.read || !c.read && (w.Code != http.StatusUnauthorized || w.Header().Get("WWW-Authenticate") == "" || w.Header().Get("Connection") != "close") {
			t.Errorf("%s: read %v, answered %d %s", name, body.read, w.Code, w.Body)
		}
	}
}
