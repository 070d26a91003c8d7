// Package web judges HTTP requests: by method, host, path, headers and body.
package web

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/cloud"
	"sallyport.dev/sallyport/risk/finding"
)

// A Request is what is judged. An empty Method means that it is not known.
type Request struct {
	Method  string
	URL     string
	Headers map[string]string
	Body    string
	Known   bool // the operator chose the host: where it is does not count
	Guessed bool // nobody said that Method is what is sent
}

// Judge says what the request would do. GET, HEAD and OPTIONS change nothing by
// HTTP's own rules; that a server keeps to them is the operator's to know, except
// where a service or a form of request is known not to.
func Judge(r Request) sallyport.Risk {
	var l finding.List
	l.Effect(sallyport.EffectNetwork)
	if why := asks(r); why != "" {
		l.Effect(sallyport.EffectRead)
		l.Add(sallyport.Low, "%s", why)
	} else {
		method(&l, r.Method)
	}
	target := r.Method
	if r.URL != "" {
		address(&l, r, r.Method)
	}
	for _, name := range sortedKeys(r.Headers) {
		if m := header(&l, r, name, r.Headers[name]); m != "" {
			target = m
		}
	}
	if target != r.Method && r.URL != "" {
		address(&l, r, target)
	}
	content(&l, r.Body)
	if risk := l.Risk(); risk.Level > sallyport.Low {
		l.Part("", "request", strings.TrimSpace(r.Method+" "+r.URL))
	}
	return l.Risk()
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// header judges one header. It returns the method that the header asks for
// instead of the one that shows.
func header(l *finding.List, r Request, name, value string) (instead string) {
	if strings.ContainsAny(name+value, "\r\n\x00") {
		l.Add(sallyport.Critical, "a header holds a line break, which can add headers")
	}
	switch strings.ToLower(strings.TrimSpace(name)) {
	case "x-http-method-override", "x-http-method", "x-method-override", "x-method", "_method":
		l.Add(sallyport.High, "asks the server to take another method than it shows")
		method(l, value)
		return value
	case "host", "x-forwarded-host", "forwarded", ":authority":
		if u, err := url.Parse(r.URL); err == nil && u.Host != "" && !strings.EqualFold(u.Host, strings.TrimSpace(value)) {
			l.Part("", "host", value)
			l.Add(sallyport.Critical, "names host %s beside the one of the URL", value)
		}
	case "transfer-encoding", "content-length":
		l.Add(sallyport.Critical, "sets %s, by which two servers can read two different requests", name)
	case "x-amz-target":
		awsAction(l, value[strings.LastIndexByte(value, '.')+1:])
	case "destination":
		l.Object(value)
	case "x-original-url", "x-rewrite-url":
		l.Add(sallyport.Critical, "asks the server for another path than it shows")
		service(l, r.Method, "", value)
	}
	return ""
}

// awsAction judges an action of AWS, whatever the method: its query protocol
// takes GET for all of them.
func awsAction(l *finding.List, action string) {
	ws := cloud.Words(action)
	if len(ws) < 2 || strings.ContainsAny(action, " /") || action[0] < 'A' || action[0] > 'Z' {
		return
	}
	r := cloud.Action("aws:" + action)
	if r.Level > sallyport.Low {
		l.Merge(r)
	}
}

func method(l *finding.List, m string) {
	up := strings.ToUpper(strings.TrimSpace(m))
	switch up {
	case "GET", "HEAD", "OPTIONS", "PROPFIND", "SEARCH", "QUERY", "REPORT":
		l.Effect(sallyport.EffectRead)
		l.Add(sallyport.Low, "%s asks and changes nothing", up)
	case "TRACE":
		l.Add(sallyport.Medium, "TRACE echoes the request, credentials included")
	case "POST", "PUT", "PATCH", "COPY", "MKCOL", "PROPPATCH", "LOCK", "LINK":
		l.Effect(sallyport.EffectWrite)
		l.Add(sallyport.High, "%s changes something on the server", up)
	case "DELETE":
		l.Effect(sallyport.EffectDelete)
		l.Lost("DELETE removes something on the server: it cannot be brought back")
	case "PURGE", "UNLOCK", "UNLINK":
		l.Effect(sallyport.EffectDelete)
		l.Lost("%s removes something on the server", up)
	case "MOVE":
		l.Effect(sallyport.EffectDelete)
		l.Lost("MOVE can overwrite what is at its destination")
	case "":
		l.Effect(sallyport.EffectOpaque)
		l.Add(sallyport.Critical, "the method is missing, so what the request does is unknown")
	default:
		l.Effect(sallyport.EffectOpaque)
		l.Add(sallyport.Critical, "the method %q is unknown", m)
	}
}

// known tells whether a text is the name of a method.
func known(m string) bool {
	switch strings.ToUpper(m) {
	case "GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "PURGE", "MOVE", "COPY", "MKCOL", "PROPFIND", "PROPPATCH", "LOCK", "UNLOCK", "TRACE", "CONNECT":
		return true
	}
	return false
}

// IsMethod tells whether a whole text is the name of an HTTP method, in capitals
// as requests have it or in small letters.
func IsMethod(s string) bool {
	return known(s) && (s == strings.ToUpper(s) || s == strings.ToLower(s))
}

// Bounds of what an address carries without being taken for a message.
const (
	wideValue = 512  // bytes of one value
	wideQuery = 2048 // bytes of the whole query
	vastQuery = 6144
)

func address(l *finding.List, r Request, verb string) {
	raw := r.URL
	if strings.ContainsAny(raw, "\x00\r\n\t\\") {
		l.Add(sallyport.Critical, "the URL holds characters that programs read differently")
		return
	}
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil {
		l.Add(sallyport.Critical, "the URL cannot be parsed, so where it leads is unknown")
		return
	}
	scheme := strings.ToLower(u.Scheme)
	if scheme == "" && u.Host == "" {
		l.Object(u.Path) // relative to a server that the tool knows
		service(l, verb, "", u.Path)
		words(l, verb, u)
		query(l, u)
		return
	}
	if scheme != "http" && scheme != "https" {
		l.Add(sallyport.Critical, "the URL's scheme %q is not http or https", u.Scheme)
		return
	}
	name := strings.ToLower(u.Hostname())
	if r.Known {
		l.Object(u.Host)
	} else if name = host(l, u, nearTo(r, verb)); name == "" {
		return
	}
	if u.User != nil {
		l.Add(sallyport.High, "the URL carries credentials, or hides its host behind an @")
		if strings.Contains(u.User.Username(), ".") {
			l.Part("", "host", u.Host)
			l.Add(sallyport.Critical, "the URL shows %s, and goes to %s", u.User.Username(), u.Host)
		}
	}
	service(l, verb, name, u.Path)
	provider(l, verb, name, u)
	words(l, verb, u)
	query(l, u)
	if !r.Known && safe(strings.ToUpper(strings.TrimSpace(verb))) && isNear(name) {
		nearby(l, u)
	}
}

// provider sees the forms of clouds whose verbs stand in the path.
func provider(l *finding.List, verb, host string, u *url.URL) {
	switch {
	case strings.HasSuffix(host, ".googleapis.com"):
		if i := strings.LastIndexByte(u.Path, ':'); i >= 0 && u.Path[i+1:] != "" && u.Path[i+1] >= 'a' && u.Path[i+1] <= 'z' {
			if r := cloud.Action("google." + u.Path[i+1:]); r.Level > sallyport.Low {
				l.Merge(r)
			}
		}
	case host == "management.azure.com" && !safe(strings.ToUpper(verb)):
		if r := cloud.Action("azure/" + u.Path[strings.LastIndexByte(u.Path, '/')+1:]); r.Irreversible {
			l.Merge(r)
		}
	case strings.HasSuffix(host, ".amazonaws.com"):
		if _, ok := u.Query()["delete"]; ok && strings.EqualFold(verb, "POST") {
			l.Effect(sallyport.EffectDelete)
			l.Lost("deletes many objects of a bucket")
		}
		for _, sub := range []string{"acl", "policy", "publicAccessBlock"} {
			if u.Query().Has(sub) && !safe(strings.ToUpper(verb)) {
				l.Effect(sallyport.EffectPrivileges)
				l.Add(sallyport.Critical, "changes who may read a bucket")
			}
		}
	}
}

// query sees a method that the query string overrides, what it carries out, and
// what is secret in it.
func query(l *finding.List, u *url.URL) {
	if n := len(u.RawQuery); n > vastQuery {
		l.Add(sallyport.Critical, "the URL carries %d bytes out in its query", n)
	} else if n > wideQuery {
		l.Add(sallyport.High, "the URL carries %d bytes out in its query", n)
	}
	values := u.Query()
	b := &body{found: l, budget: maxInner}
	for _, name := range sortedKeys(values) {
		for _, v := range values[name] {
			if len(v) > wideValue {
				l.Add(sallyport.High, "the URL carries %d bytes out in %s", len(v), name)
			}
			switch strings.ToLower(name) {
			case "_method", "x-http-method-override", "_httpmethod":
				method(l, v)
				service(l, v, strings.ToLower(u.Hostname()), u.Path)
			case "action", "cmd", "do", "op", "operation", "task", "act":
				awsAction(l, v)
				if ordered(v) {
					l.Add(sallyport.High, "the query says %s, which a server may do though the method only asks", v)
				}
			case "url", "uri", "callback", "webhook", "redirect", "target":
				if strings.HasPrefix(strings.ToLower(v), "http") && len(v) < wideValue {
					nested, err := url.Parse(v)
					if err == nil && nested.Host != "" {
						inner(l, strings.ToLower(nested.Hostname()), near(""))
					}
				}
			default:
				b.text(v, 0)
			}
		}
		if finding.Secret(name) {
			l.Add(sallyport.Medium, "the URL carries %s, which by its name is secret", name)
		}
	}
}
