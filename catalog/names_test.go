package catalog

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestFO01_SameNameOnTwoServers(t *testing.T) {
	type listing struct{ server, tool string }
	listings := []listing{{"alpha", "search"}, {"beta", "search"}, {"a", "b__c"}, {"a__b", "c"}, {"a_", "b"}, {"a", "_b"}}
	build := func(order []listing) map[string]string {
		c := open(t, Options{})
		for _, l := range order {
			set(t, c, l.server, tool(l.tool))
		}
		// A server has one listing: "a" gets both of its tools in the end.
		set(t, c, "a", tool("b__c"), tool("_b"))
		return origins(t, c)
	}
	forward := build(listings)
	slices.Reverse(listings)
	backward := build(listings)
	if len(forward) != 6 {
		t.Errorf("got %d names for 6 tools: %v", len(forward), forward)
	}
	for name, origin := range forward {
		if backward[name] != origin {
			t.Errorf("%q is %s, but %s when registered in reverse", name, origin, backward[name])
		}
	}
	if forward["alpha__search"] != "alpha/search" || forward["beta__search"] != "beta/search" {
		t.Errorf("plain names are not kept: %v", forward)
	}
}

func TestFO01_EqualNameIsRefusedForTheLater(t *testing.T) {
	m, err := ParseManifest("take.yaml", []byte("server: beta\ntool: find\nname: alpha__search\n"))
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, Options{Manifests: []Manifest{m}})
	set(t, c, "alpha", tool("search"))
	set(t, c, "beta", tool("find"), tool("other"))
	if got := origins(t, c); got["alpha__search"] != "alpha/search" || got["beta__other"] == "" || len(got) != 2 {
		t.Errorf("got %v", got)
	}
	w := c.Warnings()
	if len(w) != 1 || w[0].Server != "beta" || !strings.Contains(w[0].Reason, `"search" of server "alpha"`) {
		t.Errorf("warnings = %v, want one that names both origins", w)
	}
}

func TestFO02_LongNames(t *testing.T) {
	server := strings.Repeat("s", 30)
	var tools []json.RawMessage
	var names []string
	for _, n := range []int{16, 17, 34, 35, 64, 100, 128} {
		names = append(names, strings.Repeat("t", n))
	}
	names = append(names, strings.Repeat("t", 99)+"a", strings.Repeat("t", 99)+"b")
	for _, n := range names {
		tools = append(tools, tool(n))
	}
	c := open(t, Options{})
	set(t, c, server, tools...)
	got := origins(t, c)
	if len(got) != len(names) {
		t.Fatalf("got %d names for %d tools: %v", len(got), len(names), got)
	}
	for name, origin := range got {
		original := strings.TrimPrefix(origin, server+"/")
		if len(name) > MaxName {
			t.Errorf("%q has %d characters", name, len(name))
		}
		listed, _ := c.Resolve("", name)
		var def struct {
			Name string
			Meta map[string]string `json:"_meta"`
		}
		if err := json.Unmarshal(listed.Definition, &def); err != nil || def.Name != name {
			t.Errorf("definition of %q: %s, %v", name, listed.Definition, err)
		}
		if hashed := name != server+"__"+original; hashed != (def.Meta[MetaOrigin] == original) {
			t.Errorf("%q: original name in _meta is %q", name, def.Meta[MetaOrigin])
		}
	}
}

func TestFO03_Alphabet(t *testing.T) {
	ok := regexp.MustCompile(`^[A-Za-z0-9_-]{1,48}$`)
	c := open(t, Options{})
	names := []string{"a.b", "a/b", "a b", "a:b", "é", "", "a_b", "a--aaaaaaaaaaaa"}
	var tools []json.RawMessage
	for _, n := range names {
		tools = append(tools, tool(n))
	}
	set(t, c, "s", tools...)
	got := origins(t, c)
	if len(got) != len(names)-1 {
		t.Errorf("got %d names, want %d: %v", len(got), len(names)-1, got)
	}
	for name := range got {
		if !ok.MatchString(name) {
			t.Errorf("%q is outside the alphabet", name)
		}
	}
	if got["s__a_b"] != "s/a_b" {
		t.Errorf("the plain name does not keep its plain form: %v", got)
	}
	if w := c.Warnings(); len(w) != 1 || !strings.Contains(w[0].Reason, "name is empty") {
		t.Errorf("warnings = %v, want one about the empty name", w)
	}
}

func FuzzExposedName(f *testing.F) {
	f.Add("a", "b__c", "a__b", "c")
	f.Add("a", "_b", "a_", "b")
	f.Add("", "x", "x", "")
	f.Add(strings.Repeat("s", 30), strings.Repeat("t", 100)+"1", strings.Repeat("s", 30), strings.Repeat("t", 100)+"2")
	f.Fuzz(func(t *testing.T, s1, t1, s2, t2 string) {
		a, b := ExposedName(s1, t1), ExposedName(s2, t2)
		if !validName(a) || !validName(b) {
			t.Fatalf("%q, %q: outside the alphabet or too long", a, b)
		}
		if (a == b) != (s1 == s2 && t1 == t2) {
			t.Fatalf("(%q,%q) and (%q,%q) are %q and %q", s1, t1, s2, t2, a, b)
		}
		// The hashed form of one tool is never the plain form of another.
		server, plain, _ := strings.Cut(a, joiner)
		if again := ExposedName(server, plain); again == a && (server != s1 || plain != t1) {
			t.Fatalf("(%q,%q) has the name %q that is also that of (%q,%q)", s1, t1, a, server, plain)
		}
	})
}

// TestNamesAreInjective checks random sets of names from a tiny alphabet, in
// which collisions of careless schemes are common.
func TestNamesAreInjective(t *testing.T) {
	pieces := []string{"a", "_", "__", "-", "--", ".", "é", strings.Repeat("x", 20), "aaaaaaaaaaaa"}
	var words []string
	for _, x := range pieces {
		for _, y := range pieces {
			words = append(words, x+y, x+y+x)
		}
	}
	owner := map[string][2]string{}
	for _, s := range words {
		for _, n := range words {
			name := ExposedName(s, n)
			if first, taken := owner[name]; taken && first != [2]string{s, n} {
				t.Fatalf("%q and %q share %q", first, [2]string{s, n}, name)
			}
			owner[name] = [2]string{s, n}
		}
	}
}
