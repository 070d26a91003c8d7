package sse

import (
	"net/url"
	"testing"
)

// Whatever a server says, its endpoint is of the server's own origin.
func FuzzEndpoint(f *testing.F) {
	for _, said := range []string{
		"/messages?s=1", "messages", "?s=1", "", "//evil.test/x", "http://h:80/x", "http://H/x", "http://h:8080/x", "https://h/x", "http://user@h/x",
		"http:x", "http:///x", "\\\\evil.test\\x", "/\\evil.test", " http://evil.test", "http://h%2eevil.test/", "http://h\x00.evil.test/", "javascript:alert(1)", "/x#y",
	} {
		f.Add(said)
	}
	base, err := url.Parse("http://h/sse")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, said string) {
		got, err := endpoint(base, said)
		if err != nil {
			return
		}
		u, err := url.Parse(got)
		if err != nil || u.Scheme != "http" || u.User != nil || u.Fragment != "" || u.Hostname() != "h" && u.Hostname() != "H" || u.Port() != "" && u.Port() != "80" {
			t.Errorf("%q leads to %q", said, got)
		}
	})
}
