package request

import (
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
)

func canonical(t testing.TB, args string) json.RawMessage {
	t.Helper()
	c, err := sallyport.Canonical(json.RawMessage(args))
	if err != nil {
		t.Fatalf("%s: %v", args, err)
	}
	return c
}

// The examples of OpenAPI's own table of styles, and what numbers look like.
func TestStyles(t *testing.T) {
	const blue, list, rgb = `"blue"`, `["blue","black","brown"]`, `{"R":100,"G":200,"B":150}`
	for _, c := range []struct {
		in, style string
		explode   bool
		value     string
		want      string
	}{
		{"path", "simple", false, blue, "/p/blue"},
		{"path", "simple", false, list, "/p/blue,black,brown"},
		{"path", "simple", true, list, "/p/blue,black,brown"},
		{"path", "simple", false, rgb, "/p/B,150,G,200,R,100"},
		{"path", "simple", true, rgb, "/p/B=150,G=200,R=100"},
		{"path", "label", false, blue, "/p/.blue"},
		{"path", "label", false, list, "/p/.blue,black,brown"},
		{"path", "label", true, list, "/p/.blue.black.brown"},
		{"path", "label", false, rgb, "/p/.B,150,G,200,R,100"},
		{"path", "label", true, rgb, "/p/.B=150.G=200.R=100"},
		{"path", "matrix", false, blue, "/p/;color=blue"},
		{"path", "matrix", false, list, "/p/;color=blue,black,brown"},
		{"path", "matrix", true, list, "/p/;color=blue;color=black;color=brown"},
		{"path", "matrix", false, rgb, "/p/;color=B,150,G,200,R,100"},
		{"path", "matrix", true, rgb, "/p/;B=150;G=200;R=100"},
		{"query", "form", true, blue, "?color=blue"},
		{"query", "form", true, `""`, "?color="},
		{"query", "form", true, list, "?color=blue&color=black&color=brown"},
		{"query", "form", false, list, "?color=blue,black,brown"},
		{"query", "form", true, rgb, "?B=150&G=200&R=100"},
		{"query", "form", false, rgb, "?color=B,150,G,200,R,100"},
		{"query", "spaceDelimited", false, list, "?color=blue%20black%20brown"},
		{"query", "pipeDelimited", false, list, "?color=blue%7Cblack%7Cbrown"},
		{"query", "pipeDelimited", true, list, "?color=blue&color=black&color=brown"},
		{"query", "deepObject", true, rgb, "?color[B]=150&color[G]=200&color[R]=100"},
		{"query", "deepObject", true, `{"a":{"b":[1,2]},"c&":"d="}`, "?color[a][b]=1&color[a][b]=2&color[c%26]=d%3D"},
		{"query", "json", true, `{"a":[1]}`, "?color=%7B%22a%22%3A%5B1%5D%7D"},
		{"query", "form", true, `[]`, ""},
		{"query", "form", true, `null`, ""},
		{"query", "form", true, `true`, "?color=true"},
		{"query", "form", true, `"a b+c&d=e/ü"`, "?color=a%20b%2Bc%26d%3De%2F%C3%BC"},
		{"path", "simple", false, `"group/project"`, "/p/group%2Fproject"},
		{"path", "simple", false, `"a?b#c%d é"`, "/p/a%3Fb%23c%25d%20%C3%A9"},
		{"header", "simple", false, list, "blue,black,brown"},
		{"header", "simple", true, rgb, "B=150,G=200,R=100"},
		{"cookie", "form", false, list, "color=blue,black,brown"},
	} {
		r := &sallyport.Route{Method: "GET", URL: "https://a.example/p", Params: []sallyport.RouteParam{{Argument: "c", Name: "color", In: c.in, Style: c.style, Explode: c.explode}}}
		if c.in == "path" {
			r.URL += "/{color}"
		}
		got, err := Build(r, canonical(t, `{"c":`+c.value+`}`))
		if err != nil {
			t.Errorf("%v: %v", c, err)
			continue
		}
		shown := strings.TrimPrefix(strings.TrimPrefix(got.URL, "https://a.example"), map[bool]string{true: "/p"}[c.in == "query"])
		switch c.in {
		case "header":
			shown = got.Header[0][1]
		case "cookie":
			shown = got.Cookie
		}
		if shown != c.want {
			t.Errorf("%s %s explode %t %s: %s, want %s", c.in, c.style, c.explode, c.value, shown, c.want)
		}
	}
}

// FO-27: numbers travel as they were written, wherever they stand.
func TestFO27_Numbers(t *testing.T) {
	for _, n := range []string{"9007199254740993", "9223372036854775807", "-9223372036854775808", "18446744073709551615", "1e400", "0.1", "1.0", "-0", "12345678901234567890.123456789"} {
		r := &sallyport.Route{Method: "POST", URL: "https://a.example/{p}", Body: &sallyport.RouteBody{Argument: "b", Type: "application/json", Form: "json"}, Params: []sallyport.RouteParam{
			{Argument: "p", Name: "p", In: "path", Style: "simple"}, {Argument: "q", Name: "q", In: "query", Style: "form"}, {Argument: "h", Name: "X-N", In: "header", Style: "simple"},
		}}
		got, err := Build(r, canonical(t, `{"p":`+n+`,"q":`+n+`,"h":`+n+`,"b":{"n":`+n+`}}`))
		if err != nil || got.URL != "https://a.example/"+n+"?q="+n || got.Header[0][1] != n || string(got.Body) != `{"n":`+n+`}` {
			t.Errorf("%s: %+v %s, %v", n, got, got.Body, err)
		}
	}
}

// attacks are values that would make another request of one; each with the text
// that its refusal holds.
var attacks = []struct{ in, value, want string }{
	{"path", `".."`, ". or .."},
	{"path", `"."`, ". or .."},
	{"path", `"%2e%2e"`, ". or .."},
	{"path", `"%2E."`, ". or .."},
	{"path", `"%252e%252e"`, ". or .."},
	{"path", `"%25252e%25252e"`, ". or .."},
	{"path", `"%252525252525252e"`, "more often"},
	{"path", `"../admin"`, ". or .."},
	{"path", `"a/../../admin"`, ". or .."},
	{"path", `"a/%2e%2e/admin"`, ". or .."},
	{"path", `"a%2f..%2fadmin"`, ". or .."},
	{"path", `"a%252f%252e%252e%252fadmin"`, ". or .."},
	{"path", `"..;/admin"`, ". or .."},
	{"path", `"..;x=1"`, ". or .."},
	{"path", `"..\\admin"`, "programs read differently"},
	{"path", `"a\\b"`, "programs read differently"},
	{"path", `"a%5cb"`, "programs read differently"},
	{"path", `"a%255c..%255cb"`, "programs read differently"},
	{"path", `"．．"`, ". or .."},
	{"path", `"․․"`, ". or .."},
	{"path", `"..／admin"`, ". or .."},
	{"path", `"a＼b"`, "programs read differently"},
	{"path", `"a\u0000b"`, "programs read differently"},
	{"path", `"a%00b"`, "programs read differently"},
	{"path", `"a\r\nHost: evil"`, "programs read differently"},
	{"path", `"a%0d%0aHost:evil"`, "programs read differently"},
	{"path", `""`, "empty"},
	{"path", `[]`, "empty"},
	{"path", `{}`, "empty"},
	{"path", `[""]`, "empty"},
	{"path", `[["a"]]`, "nested"},
	{"path", `null`, "null"},
	{"path", `[".."]`, ". or .."},
	{"header", `"a\r\nX-Evil: b"`, "printable ASCII"},
	{"header", `"a\nb"`, "printable ASCII"},
	{"header", `"a\u0000"`, "printable ASCII"},
	{"header", `"a\u007f"`, "printable ASCII"},
	{"header", `"嘊嘍Set-Cookie: x"`, "printable ASCII"},
	{"header", `" a"`, "space"},
	{"header", `["a","b\r\nc"]`, "printable ASCII"},
	{"query", `{"_method":"DELETE"}`, "another method"},
	{"query", `{"X-HTTP-Method-Override":"DELETE"}`, "another method"},
	{"query", `{"_METHOD":"DELETE"}`, "another method"},
	{"query", `{".method":"DELETE"}`, "another method"},
	{"query", `{"[method":"DELETE"}`, "another method"},
	{"query", `{" _method":"DELETE"}`, "another method"},
	{"query", `{"_method\u0000x":"DELETE"}`, "another method"},
	{"header", `[["a"]]`, "nested"},
	{"query", `[["a"]]`, "nested"},
	{"query", `"` + strings.Repeat("é", 6000) + `"`, "more than 32768"},
	{"path", `"` + strings.Repeat("a", 33000) + `"`, "more than 32768"},
	{"header", `"` + strings.Repeat("a", 33000) + `"`, "more than 32768"},
	{"query", `{"a":{"b":1}}`, "nested"},
}

func TestAttacks(t *testing.T) {
	for _, c := range attacks {
		r := &sallyport.Route{Method: "GET", URL: "https://a.example/users/{v}/keys", Params: []sallyport.RouteParam{{Argument: "v", Name: "v", In: c.in, Style: "simple", Explode: true}}}
		switch c.in {
		case "header":
			r.URL, r.Params[0].Name = "https://a.example/users", "X-V"
		case "query":
			r.URL, r.Params[0].Style = "https://a.example/users", "form"
		}
		got, err := Build(r, canonical(t, `{"v":`+c.value+`}`))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %+v, %v; want an error with %q", c.in, c.value, got, err, c.want)
		}
		if _, err := Build(r, canonical(t, `{"v":"plain-value"}`)); err != nil { // the control
			t.Errorf("%s: %v", c.in, err)
		}
	}
}

// Two harmless values do not make a dot segment together, nor one with its
// surroundings; harmless values with dots pass.
func TestDotsThatMeet(t *testing.T) {
	route := func(path string) *sallyport.Route {
		return &sallyport.Route{Method: "GET", URL: "https://a.example" + path, Params: []sallyport.RouteParam{
			{Argument: "a", Name: "a", In: "path", Style: "simple"}, {Argument: "b", Name: "b", In: "path", Style: "label"},
		}}
	}
	for _, c := range []struct {
		path, args string
		ok         bool
	}{
		{"/x/{a}{a}/y/{b}", `{"a":".","b":"z"}`, false},
		{"/x/.{a}/y/{b}", `{"a":".","b":"z"}`, false},
		{"/x/{a}/y/{b}", `{"a":"z","b":"."}`, false},
		{"/x/%2e{a}/y/{b}", `{"a":".","b":"z"}`, false},
		{"/x/{a}/y/{b}", `{"a":"...","b":"z"}`, true},
		{"/x/{a}/y/{b}", `{"a":"v1.2..3","b":".z"}`, true},
		{"/x/{a}/y/{b}", `{"a":"100%","b":"50%25"}`, true},
		{"/x/{a}/y/{b}", `{"a":"..a","b":"..b"}`, true},
	} {
		if got, err := Build(route(c.path), canonical(t, c.args)); (err == nil) != c.ok {
			t.Errorf("%s %s: %s, %v; want ok %t", c.path, c.args, got.URL, err, c.ok)
		}
	}
}

func TestReserved(t *testing.T) {
	for _, name := range []string{"Host", "content-length", "Transfer-Encoding", "AUTHORIZATION", "Cookie", "Forwarded", "X-Forwarded-For", "x_forwarded_host", "X-HTTP-Method-Override",
		"X-HTTP-Method", "X-Method-Override", "x_http_method_override", "Proxy-Connection", "X-Real-IP", "X-Original-URL", "TE", "Upgrade", "Connection", "Idempotency-Key", "Sec-Fetch-Site"} {
		if !Reserved(name) {
			t.Errorf("%s may be set", name)
		}
		r := &sallyport.Route{Method: "GET", URL: "https://a.example/", Params: []sallyport.RouteParam{{Argument: "v", Name: name, In: "header", Style: "simple"}}}
		if _, err := Build(r, json.RawMessage(`{"v":"x"}`)); err == nil {
			t.Errorf("%s is set", name)
		}
	}
	for _, name := range []string{"X-Request-Id", "If-Match", "Range", "Prefer", "X-Tenant", "Accept-Language", "method"} {
		if Reserved(name) {
			t.Errorf("%s may not be set", name)
		}
	}
}

func TestUnknownAndMissingArguments(t *testing.T) {
	r := &sallyport.Route{Method: "GET", URL: "https://a.example/{id}", Params: []sallyport.RouteParam{{Argument: "id", Name: "id", In: "path", Style: "simple"}}}
	for args, want := range map[string]string{`{"id":1,"ID":2}`: `no argument "ID"`, `{}`: "is missing", `{"id":1,"x":2}`: "no argument"} {
		if got, err := Build(r, canonical(t, args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", args, got, err)
		}
	}
}

func TestBodies(t *testing.T) {
	for _, c := range []struct {
		form, value, want string
		fields            map[string]sallyport.RouteField
	}{
		{"json", `{"b":[1.0,null],"a":"<é>"}`, `{"a":"<é>","b":[1.0,null]}`, nil},
		{"text", `"line\nline"`, "line\nline", nil},
		{"base64", `"AAH/"`, "\x00\x01\xff", nil},
		{"urlencoded", `{"a":"x y&z","n":1.0,"l":["p","q"],"o":{"k":[1]},"gone":null}`, `a=x%20y%26z&l=p&l=q&n=1.0&o=%7B%22k%22%3A%5B1%5D%7D`, nil},
		{"urlencoded", `{"l":["p","q"],"o":{"k":1}}`, `l=p,q&o[k]=1`, map[string]sallyport.RouteField{"l": {Style: "joined"}, "o": {Style: "deepObject"}}},
	} {
		r := &sallyport.Route{Method: "POST", URL: "https://a.example/", Body: &sallyport.RouteBody{Argument: "body", Type: "x/y", Form: c.form, Fields: c.fields}}
		got, err := Build(r, canonical(t, `{"body":`+c.value+`}`))
		if err != nil || string(got.Body) != c.want || got.Type != "x/y" {
			t.Errorf("%s %s: %q, %v; want %q", c.form, c.value, got.Body, err, c.want)
		}
	}
	for _, c := range []struct{ form, value, want string }{
		{"text", `{}`, "must be text"}, {"base64", `"a"`, "not base64"}, {"base64", `1`, "base64 text"}, {"urlencoded", `"a"`, "must be an object"}, {"multipart", `[]`, "must be an object"},
		{"urlencoded", `{"_method":"DELETE"}`, "another method"}, {"multipart", `{"_method":"DELETE"}`, "another method"}, {"json", `{"_method":"DELETE"}`, "another method"},
	} {
		r := &sallyport.Route{Method: "POST", URL: "https://a.example/", Body: &sallyport.RouteBody{Argument: "body", Type: "x/y", Form: c.form}}
		if got, err := Build(r, canonical(t, `{"body":`+c.value+`}`)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %q, %v", c.form, c.value, got.Body, err)
		}
	}
}

// A form with files, read by the standard library.
func TestMultipart(t *testing.T) {
	r := &sallyport.Route{Method: "POST", URL: "https://a.example/", Body: &sallyport.RouteBody{Argument: "body", Type: "multipart/form-data", Form: "multipart",
		Fields: map[string]sallyport.RouteField{"photo": {Base64: true, Type: "image/png"}}}}
	args := canonical(t, `{"body":{"photo":"iVBORw==","title":"a\r\n--b","tags":["x","y"],"meta":{"n":1.0},"quo\"te\r\n":"v"}}`)
	got, err := Build(r, args)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := Build(r, args); string(again.Body) != string(got.Body) || again.Type != got.Type {
		t.Error("the same call is not the same request")
	}
	kind, params, err := mime.ParseMediaType(got.Type)
	if err != nil || kind != "multipart/form-data" {
		t.Fatal(kind, err)
	}
	seen := map[string]string{}
	for reader := multipart.NewReader(strings.NewReader(string(got.Body)), params["boundary"]); ; {
		p, err := reader.NextPart()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(p)
		seen[p.FormName()] += string(b) + "|" + p.Header.Get("Content-Type") + ";"
	}
	want := map[string]string{"photo": "\x89PNG|image/png;", "title": "a\r\n--b|;", "tags": "x|;y|;", "meta": `{"n":1.0}|application/json;`, "quo%22te%0D%0A": "v|;"}
	for k, v := range want {
		if seen[k] != v {
			t.Errorf("%q = %q, want %q (all: %q)", k, seen[k], v, seen)
		}
	}
	if len(seen) != len(want) {
		t.Errorf("parts %q", seen)
	}
}

// Whatever the values are: what a server sees is the place that the template
// names, with the values in it, or nothing is sent.
func FuzzBuild(f *testing.F) {
	for _, c := range attacks {
		f.Add(strings.Trim(c.value, `"`), "v")
	}
	f.Add("a/b", "ü &=")
	var got *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r }))
	f.Cleanup(server.Close)
	f.Fuzz(func(t *testing.T, id, q string) {
		args, err := json.Marshal(map[string]string{"id": id, "q": q})
		if err != nil {
			return
		}
		c, err := sallyport.Canonical(args)
		if err != nil {
			return
		}
		var sent struct{ ID, Q string }
		if err := json.Unmarshal(c, &sent); err != nil {
			t.Fatal(err)
		}
		r := &sallyport.Route{Method: "GET", URL: server.URL + "/users/{id}/keys", Params: []sallyport.RouteParam{
			{Argument: "id", Name: "id", In: "path", Style: "simple"}, {Argument: "q", Name: "q", In: "query", Style: "form"}}}
		built, err := Build(r, c)
		if err != nil {
			return
		}
		u, err := url.Parse(built.URL)
		if err != nil || u.Path != "/users/"+sent.ID+"/keys" || u.Query().Get("q") != sent.Q || len(u.Query()) != 1 || u.Fragment != "" {
			t.Fatalf("%q %q: %s, %v", id, q, built.URL, err)
		}
		if clean := u.JoinPath().Path; clean != u.Path && !strings.Contains(u.Path, "//") {
			t.Errorf("%q leads to %s", id, clean)
		}
		req, err := http.NewRequest("GET", built.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got.URL.Path != "/users/"+sent.ID+"/keys" || got.URL.Query().Get("q") != sent.Q {
			t.Errorf("%q %q arrives as %s", id, q, got.URL)
		}
	})
}
