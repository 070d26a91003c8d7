// Package web judges HTTP requests by method and host.
package web

import (
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

// A Request is what is judged. An empty Method means that it is not known.
type Request struct {
	Method  string
	URL     string
	Headers map[string]string
}

// Judge says what the request would do. GET, HEAD and OPTIONS change nothing by
// HTTP's own rules; that a server keeps to them is the operator's to know.
func Judge(r Request) sallyport.Risk {
	var l finding.List
	method(&l, r.Method)
	if r.URL != "" {
		address(&l, r.URL)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		value := r.Headers[name]
		switch strings.ToLower(name) {
		case "x-http-method-override", "x-http-method", "x-method-override", "_method":
			l.Add(sallyport.High, "asks the server to take another method than it shows")
			method(&l, value)
		}
	}
	return l.Risk()
}

func method(l *finding.List, m string) {
	switch strings.ToUpper(strings.TrimSpace(m)) {
	case "GET", "HEAD", "OPTIONS":
		l.Add(sallyport.Low, "%s asks and changes nothing", strings.ToUpper(m))
	case "TRACE":
		l.Add(sallyport.Medium, "TRACE echoes the request, credentials included")
	case "POST", "PUT", "PATCH":
		l.Add(sallyport.High, "%s changes something on the server", strings.ToUpper(m))
	case "DELETE":
		l.Lost("DELETE removes something on the server: it cannot be brought back")
	case "":
		l.Add(sallyport.Critical, "the method is missing, so what the request does is unknown")
	case "PURGE", "UNLOCK", "UNLINK":
		l.Lost("%s removes something on the server", strings.ToUpper(m))
	case "COPY", "MKCOL", "PROPPATCH", "LOCK", "LINK":
		l.Add(sallyport.High, "%s changes something on the server", strings.ToUpper(m))
	case "MOVE":
		l.Lost("MOVE can overwrite what is at its destination")
	case "PROPFIND", "SEARCH", "QUERY", "REPORT":
		l.Add(sallyport.Low, "%s asks and changes nothing", strings.ToUpper(m))
	default:
		l.Add(sallyport.Critical, "the method %q is unknown", m)
	}
}

// Names that lead to the machine itself or to a cloud's credentials.
var innerNames = []string{"localhost", "metadata", "metadata.google.internal", "instance-data", "metadata.azure.internal"}

func address(l *finding.List, raw string) {
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
		query(l, u)
		return
	}
	if scheme != "http" && scheme != "https" {
		l.Add(sallyport.Critical, "the URL's scheme %q is not http or https", u.Scheme)
		return
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if host == "" {
		l.Add(sallyport.Critical, "the URL names no host")
		return
	}
	l.Object(u.Host)
	if u.User != nil {
		l.Add(sallyport.High, "the URL carries credentials, or hides its host behind an @")
	}
	inner(l, host)
	query(l, u)
}

// query sees a method that the query string overrides.
func query(l *finding.List, u *url.URL) {
	values := u.Query()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch strings.ToLower(name) {
		case "_method", "x-http-method-override", "_httpmethod":
			for _, v := range values[name] {
				method(l, v)
			}
		default:
			if finding.Secret(name) {
				l.Add(sallyport.Medium, "the URL carries %s, which by its name is secret", name)
			}
		}
	}
}

func inner(l *finding.List, host string) {
	for _, n := range innerNames {
		if host == n || strings.HasSuffix(host, ".localhost") {
			l.Add(sallyport.Critical, "the host %s is this machine or a cloud's metadata service", host)
			return
		}
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		if odd(host) {
			l.Add(sallyport.Critical, "the host %s is an address in an unusual form", host)
		}
		return
	}
	addr = addr.Unmap()
	switch {
	case addr == netip.MustParseAddr("169.254.169.254") || addr == netip.MustParseAddr("fd00:ec2::254") || addr == netip.MustParseAddr("100.100.100.200"):
		l.Add(sallyport.Critical, "the host %s is a cloud's metadata service", host)
	case addr.IsLoopback() || addr.IsUnspecified():
		l.Add(sallyport.Critical, "the host %s is this machine", host)
	case addr.IsLinkLocalUnicast() || addr.IsMulticast():
		l.Add(sallyport.Critical, "the host %s is a link-local or multicast address", host)
	case addr.IsPrivate():
		l.Add(sallyport.High, "the host %s is in a private network", host)
	}
}

// odd finds addresses written as one number, in hex or octal, or with fewer
// than four parts, which resolvers accept and filters miss.
func odd(host string) bool {
	if strings.HasPrefix(host, "0x") {
		return true
	}
	return host != "" && strings.Trim(host, "0123456789.xabcdef") == "" && strings.Trim(host[strings.LastIndexByte(host, '.')+1:], "0123456789") == ""
}
