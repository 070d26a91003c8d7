package library

import (
	"net/url"
	"strings"
	"testing"
)

var addresses = []string{
	"file:///readme", "db://users", "http://h/a%20b?x=1&y=2#f", "urn:x:1", "demo://resource/dynamic/text/1", "data:text/plain,hi",
	"sallyport:b/file:///readme", "file:///a b", "plain", "~x", "", "file:///ü", "a:%zz", "a:#b#c", "http://[::1]/", "file:///readme\n", "x:\x00",
}

// FO-07: exposed addresses are valid URIs, unique, and say which server's they are.
func TestFO07AddressesAreReversible(t *testing.T) {
	seen := map[string]string{}
	for _, server := range []string{"a", "b", "A", "a-b", "a_b"} {
		for _, address := range addresses {
			exposed := Expose(server, address)
			if other, taken := seen[exposed]; taken {
				t.Errorf("%s %q and %s are both %q", server, address, other, exposed)
			}
			seen[exposed] = server + " " + address
			if !valid(exposed) {
				t.Errorf("%q is no URI", exposed)
			}
			if u, err := url.Parse(exposed); err != nil || u.String() != exposed {
				t.Errorf("%q is read as %v, %v", exposed, u, err)
			}
			if s, back, ok := Reveal(exposed); !ok || s != server || back != address {
				t.Errorf("%q gives %q of %q, %v", exposed, back, s, ok)
			}
		}
	}
}

// What a template expands to is the exposed form of what its server's own
// expands to.
func TestTemplatesMapAsTheirExpansions(t *testing.T) {
	for template, values := range map[string][]string{
		"db://{table}":                     {"users", "a%2Fb", "%C3%BC"},
		"file:///{+path}":                  {"a/b/c", "x%20y"},
		"demo://resource/dynamic/{id}?{q}": {"1"},
	} {
		exposed, ok := exposeTemplate("srv", template)
		if !ok {
			t.Fatal(template)
		}
		for _, v := range values {
			expand := strings.NewReplacer("{table}", v, "{+path}", v, "{id}", v, "{q}", "q=1").Replace
			if got, want := expand(exposed), Expose("srv", expand(template)); got != want {
				t.Errorf("%s expands to %s, want %s", exposed, got, want)
			}
		}
	}
	if _, ok := exposeTemplate("srv", "~{x}"); ok {
		t.Error("a template that could look like an encoded address is taken")
	}
}

func TestNormal(t *testing.T) {
	for in, want := range map[string]string{
		"FILE:///readme":       "file:///readme",
		"file:///read%6de":     "file:///readme",
		"file:///a/../b":       "file:///b",
		"file:///a/./b":        "file:///a/b",
		"file:///../../b":      "file:///b",
		"file:///a%2fb":        "file:///a%2Fb",
		"http://Host/A":        "http://host/A",
		"http://h/a?x=%7e/../": "http://h/a?x=~/../",
		"file:///a%2e%2e/b":    "file:///a../b",
		"file:///%2e%2e/b":     "file:///b",
	} {
		if got := normal(in); got != want {
			t.Errorf("normal(%q) = %q, want %q", in, got, want)
		}
	}
	for _, a := range addresses {
		if n := normal(a); normal(n) != n {
			t.Errorf("normal(%q) = %q, and again %q", a, n, normal(n))
		}
	}
}

func FuzzAddress(f *testing.F) {
	for _, a := range addresses {
		f.Add("srv", a)
	}
	f.Fuzz(func(t *testing.T, server, address string) {
		if strings.Trim(server, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" || server == "" {
			return
		}
		if exposed := Expose(server, address); len(exposed) <= maxAddress {
			s, back, ok := Reveal(exposed)
			if !ok || s != server || back != address || !valid(exposed) {
				t.Fatalf("%q of %q: %q gives %q of %q, %v", address, server, exposed, back, s, ok)
			}
		}
		if s, a, ok := Reveal(address); ok && Expose(s, a) != address {
			t.Fatalf("%q has two forms", address)
		}
		if n := normal(address); valid(address) && (normal(n) != n || !valid(n)) {
			t.Fatalf("normal(%q) = %q is not", address, n)
		}
	})
}
