// Package request builds the HTTP request of one call of an API: a pure function
// of the tool's route and the call's canonical arguments, so that what is judged,
// approved and sent is the same. Numbers travel as they were written.
//
// What could make a request another one than it shows is refused: a path that
// leaves its place, a line break in a header, a name that chooses the method.
package request

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
)

// A Request is ready to be sent, but for credentials.
type Request struct {
	Method string
	URL    string
	Header [][2]string
	Cookie string
	Type   string // of the body
	Body   []byte // nil for none
}

// Build makes the request. Its errors name the argument and say what is wrong.
func Build(r *sallyport.Route, args json.RawMessage) (Request, error) {
	b := builder{out: Request{Method: r.Method}, path: map[string]string{}}
	known := map[string]bool{}
	for _, p := range r.Params {
		known[p.Argument] = true
		v := wire.Member(args, p.Argument)
		if v == nil || wire.IsNull(v) && p.In != "path" {
			continue
		}
		if err := b.param(p, v); err != nil {
			return Request{}, fmt.Errorf("argument %q: %w", p.Argument, err)
		}
	}
	if r.Body != nil {
		known[r.Body.Argument] = true
		if v := wire.Member(args, r.Body.Argument); v != nil {
			if err := b.body(r.Body, v); err != nil {
				return Request{}, fmt.Errorf("argument %q: %w", r.Body.Argument, err)
			}
		}
	}
	for name := range wire.Members(args) {
		if !known[string(name)] {
			return Request{}, fmt.Errorf("there is no argument %.80q", name)
		}
	}
	return b.finish(r)
}

// maxHead bounds the address, and each header, in bytes: no server takes more.
const maxHead = 32 << 10

type builder struct {
	out     Request
	path    map[string]string // by the name in the template, encoded
	query   []string          // name=value, encoded
	cookies []string
}

func (b *builder) finish(r *sallyport.Route) (Request, error) {
	target, err := expand(r.URL, b.path)
	if err != nil {
		return Request{}, err
	}
	if len(b.query) > 0 {
		target += "?" + strings.Join(b.query, "&")
	}
	if len(target) > maxHead {
		return Request{}, fmt.Errorf("its address would have %d bytes, more than %d", len(target), maxHead)
	}
	b.out.URL, b.out.Cookie = target, strings.Join(b.cookies, "; ")
	if r.Accept != "" {
		b.out.Header = append(b.out.Header, [2]string{"Accept", r.Accept})
	}
	return b.out, nil
}

func (b *builder) param(p sallyport.RouteParam, raw json.RawMessage) error {
	v, err := read(raw)
	if err != nil {
		return err
	}
	if p.Style == "json" {
		v = value{text: string(raw)}
	}
	if v.nested() && p.In != "query" {
		return errDeep
	}
	switch p.In {
	case "path":
		if b.path[p.Name] = v.inPath(p); v.empty() || b.path[p.Name] == "" { // [""] is not empty, and is written as nothing
			return fmt.Errorf("it is empty, and the path would then be another one")
		}
	case "query":
		return b.inQuery(p, v)
	case "header":
		if Reserved(p.Name) {
			return fmt.Errorf("the header %s is not a call's to set", p.Name)
		}
		text := v.simple(p.Explode, func(s string) string { return s })
		if err := plainHeader(text); err != nil {
			return err
		}
		b.out.Header = append(b.out.Header, [2]string{p.Name, text})
	case "cookie":
		for _, pair := range v.form(p) {
			b.cookies = append(b.cookies, pair[0]+"="+pair[1])
		}
	default:
		return fmt.Errorf("it is nowhere in the request")
	}
	return nil
}

func (b *builder) inQuery(p sallyport.RouteParam, v value) error {
	pairs, err := v.query(p)
	if err != nil {
		return err
	}
	for _, pair := range pairs {
		name, _ := unescape(pair[0])
		if Overrides(name) {
			return fmt.Errorf("%q chooses another method than the request shows", name)
		}
		b.query = append(b.query, pair[0]+"="+pair[1])
	}
	return nil
}

// plainHeader: nothing in a value begins another header, or is read in different
// ways by different programs.
func plainHeader(s string) error {
	if len(s) > maxHead {
		return fmt.Errorf("it has %d bytes, more than %d", len(s), maxHead)
	}
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c >= 0x7f {
			return fmt.Errorf("a header's value holds printable ASCII only, and byte %d is 0x%02x", i, c)
		}
	}
	if s != strings.TrimSpace(s) {
		return fmt.Errorf("a header's value neither begins nor ends with a space")
	}
	return nil
}

// reserved are headers that say to whom a request is, how long it is, who sends
// it, or which request it really is.
var reserved = []string{
	"accept", "accept-encoding", "authorization", "connection", "content-encoding", "content-length", "content-type", "cookie", "cookie2", "expect",
	"forwarded", "host", "http2-settings", "idempotency-key", "keep-alive", "max-forwards", "origin", "referer", "te", "trailer", "transfer-encoding", "upgrade",
	"via", "x-idempotency-key", "x-original-url", "x-rewrite-url", "x-original-host", "x-original-uri", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "x-host",
	"x-http-host-override", "x-remote-addr", "x-remote-ip", "x-remote-user", "x-forwarded", "true-client-ip", "cf-connecting-ip", "fastly-client-ip", "client-ip", "user-agent",
}

// Reserved tells whether a header is not a call's to set. Names with an
// underscore count as with a hyphen: some servers read them so.
func Reserved(name string) bool {
	name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	if slices.Contains(reserved, name) || Overrides(name) {
		return true
	}
	for _, prefix := range []string{"x-forwarded-", "proxy-", "sec-", "x-envoy-", "x-amzn-oidc-", "x-goog-iap-", "x-ms-client-principal", "x-auth-request-"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// Overrides tells whether a header, or a parameter of a query or a form, is known
// to choose another method than the request shows. PHP reads some names as others:
// without space before them, up to a NUL, and . and [ as _.
func Overrides(name string) bool {
	name, _, _ = strings.Cut(strings.ToLower(strings.TrimLeft(name, " \t\r\n\v\f")), "\x00")
	name = strings.NewReplacer(".", "_", " ", "_", "[", "_").Replace(name)
	switch strings.ReplaceAll(strings.ReplaceAll(name, "_", ""), "-", "") {
	case "xhttpmethodoverride", "xhttpmethod", "xmethodoverride", "xmethod", "httpmethod", "httpmethodoverride", "methodoverride":
		return true
	}
	return name == "_method" || name == "-method"
}
