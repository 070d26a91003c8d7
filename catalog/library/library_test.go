package library_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/catalog/library"
	"sallyport.dev/sallyport/catalog/profile"
	"sallyport.dev/sallyport/wire"
)

func raws(all ...string) (out []json.RawMessage) {
	for _, s := range all {
		out = append(out, json.RawMessage(s))
	}
	return out
}

func filled(o library.Options) *library.Library {
	l := library.New(o)
	for _, server := range []string{"b", "a"} {
		l.SetListing(context.Background(), library.Listing{
			Server: server, Holds: true, Endpoint: "e-" + server,
			Resources: raws(`{"uri":"file:///readme","name":"readme","x-n":1.0}`, `{"uri":"HTTP://H/x","name":"odd"}`),
			Templates: raws(`{"uriTemplate":"db://{table}","name":"rows"}`),
			Prompts:   raws(`{"name":"hi","arguments":[{"name":"who","required":true},{"name":"how"}]}`, `{"name":"überlang"}`),
		})
	}
	return l
}

func shown(l *library.Library, profile string, shelf sallyport.Shelf) string {
	list, _ := l.Shelf(profile, shelf)
	var names []string
	for _, t := range list {
		names = append(names, t.Shown())
	}
	return strings.Join(names, " ")
}

// FO-07: one address at two servers is two addresses, and each is read where it is.
func TestFO07SameAddressAtTwoServers(t *testing.T) {
	l := filled(library.Options{})
	want := "sallyport:a/HTTP://H/x sallyport:a/file:///readme sallyport:b/HTTP://H/x sallyport:b/file:///readme"
	if got := shown(l, "", sallyport.Resources); got != want {
		t.Errorf("resources: %s", got)
	}
	if got := shown(l, "", sallyport.Templates); got != "sallyport:a/db://{table} sallyport:b/db://{table}" {
		t.Errorf("templates: %s", got)
	}
	for _, server := range []string{"a", "b"} {
		tool, err := l.Find("", sallyport.Resources, "sallyport:"+server+"/file:///readme")
		if err != nil || tool.Origin.Server != server || tool.Origin.Name != "file:///readme" || tool.Origin.Endpoint != "e-"+server || tool.Digest == "" {
			t.Errorf("%+v, %v", tool, err)
		}
		if uri, _ := wire.String(wire.Member(tool.Definition, "uri")); uri != tool.Name || !strings.Contains(string(tool.Definition), `"x-n":1.0`) {
			t.Errorf("listed as %s", tool.Definition)
		}
	}
}

// TO-15, TO-07: an address goes to its own server or nowhere, in one spelling.
func TestTO15OnlyOneSpelling(t *testing.T) {
	l := filled(library.Options{})
	for address, found := range map[string]bool{
		"sallyport:a/db://users":                     true, // of the template
		"sallyport:a/http://canary.example/":         true, // its own server may know it: the gateway fetches nothing
		"sallyport:a/db://a%2Fb":                     true,
		"sallyport:a/HTTP://H/x":                     true,  // as it is listed
		"sallyport:a/http://h/x":                     false, // another spelling of it
		"sallyport:a/file:///read%6de":               false,
		"sallyport:a/file:///x/../readme":            false,
		"sallyport:a/FILE:///readme":                 false,
		"SALLYPORT:a/file:///readme":                 false,
		"sallyport:a/file:///pub/note":               true,
		"sallyport:a/file:///pub/..%2Fsecret":        false, // a server that decodes it leaves the folder
		"sallyport:a/file:///pub/%252e%252e/secret":  false,
		"sallyport:a/db://pub/..%2Fsecret":           false,
		"sallyport:a/db://pub/..%5Csecret":           false,
		"sallyport:a/db://pub/x%00":                  false,
		"sallyport:a/db://pub/%E2%80%A5/secret":      false, // two dots, once it is normalised
		"sallyport:a/file:///pub/x?/../../secret":    false, // for a server that takes all of it for a path
		"sallyport:a/file:////etc/passwd":            false, // all these are file:///etc/passwd to who opens them
		"sallyport:a/file:///etc//passwd":            false,
		"sallyport:a/file:///etc%2Fpasswd":           false,
		"sallyport:a/file:/etc/passwd":               false,
		"sallyport:a/file://localhost/etc/passwd":    false,
		"sallyport:a/file:etc/passwd":                false,
		"sallyport:a/http://h:80/x/y":                false,
		"sallyport:a/http://h:/x/y":                  false,
		"sallyport:a/http://me@h/x/y":                false,
		"sallyport:a/http://h:8080/x/y?a=b&c=%C3%BC": true,
		"sallyport:A/file:///readme":                 false,
		"sallyport:a//file:///readme":                false,
		"sallyport://a/file:///readme":               false,
		"sallyport:a/~ZmlsZTovLy9yZWFkbWU":           false, // a URI has no encoded form
		"sallyport:c/file:///readme":                 false,
		"file:///readme":                             false,
		"file:///etc/hostname":                       false,
		"data:text/plain,hi":                         false,
		"a/file:///readme":                           false,
		"":                                           false,
		"sallyport:a/":                               false,
		"sallyport:a/" + strings.Repeat("x:", 8<<10): false,
	} {
		tool, err := l.Find("", sallyport.Resources, address)
		if (err == nil) != found || err != nil && sallyport.CodeOf(err) != sallyport.NotFound {
			t.Errorf("%.80s: %v, want found: %v", address, err, found)
		}
		if err == nil && tool.Origin.Server != "a" {
			t.Errorf("%s goes to %q", address, tool.Origin.Server)
		}
	}
}

func TestServerWithoutResourcesIsNotAsked(t *testing.T) {
	l := library.New(library.Options{})
	l.SetListing(context.Background(), library.Listing{Server: "a", Prompts: raws(`{"name":"hi"}`)})
	if _, err := l.Find("", sallyport.Resources, "sallyport:a/db://users"); err == nil {
		t.Error("a server that holds no resources would be asked for one")
	}
}

func TestProfiles(t *testing.T) {
	l := filled(library.Options{Profiles: map[string]profile.Profile{
		"one": {Names: []string{"a__*"}}, "bare": {Names: []string{"a__*"}, Bare: "a"}, "prompt": {Names: []string{"a__hi"}},
	}})
	for _, tt := range []struct {
		profile string
		shelf   sallyport.Shelf
		want    string
	}{
		{"one", sallyport.Resources, "sallyport:a/HTTP://H/x sallyport:a/file:///readme"},
		{"one", sallyport.Prompts, "a____berlang--bdnlwcvnwi5h a__hi"},
		{"bare", sallyport.Resources, "HTTP://H/x file:///readme"},
		{"bare", sallyport.Templates, "db://{table}"},
		{"bare", sallyport.Prompts, "hi überlang"},
		{"prompt", sallyport.Prompts, "a__hi"},
		{"prompt", sallyport.Resources, ""},
		{"none", sallyport.Resources, ""},
	} {
		got := shown(l, tt.profile, tt.shelf)
		if i, j := strings.Index(got, "--"), strings.Index(tt.want, "--"); i > 0 && j > 0 {
			got, tt.want = got[:i]+got[i+14:], tt.want[:j]+tt.want[j+14:] // the hash is catalog's
		}
		if got != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.profile, tt.shelf, got, tt.want)
		}
	}
	for profile, found := range map[string][]string{
		"one": {"sallyport:a/db://users", "", ""}, "prompt": {"", "", ""},
		"bare": {"sallyport:a/db://users", "sallyport:a/sallyport:b/db://users", "sallyport:a/db://users"}, // its one server's, whatever it looks like
	} {
		for i, address := range []string{"sallyport:a/db://users", "sallyport:b/db://users", "db://users"} {
			tool, err := l.Find(profile, sallyport.Resources, address)
			if tool.Name != found[i] || (err == nil) != (found[i] != "") {
				t.Errorf("%s %s: %+v, %v", profile, address, tool, err)
			}
		}
	}
	if tool, err := l.Find("bare", sallyport.Prompts, "a__hi"); err != nil || tool.Name != "a__hi" || tool.Shown() != "hi" {
		t.Errorf("%+v, %v", tool, err)
	}
}

// What cannot be used is left out by itself, and said.
func TestOddItems(t *testing.T) {
	l := library.New(library.Options{Clean: func(v json.RawMessage) json.RawMessage {
		return json.RawMessage(strings.ReplaceAll(string(v), "hunter2", "[masked]"))
	}})
	l.SetListing(context.Background(), library.Listing{
		Server: "a", Resources: raws(`{"uri":"x:1","description":"hunter2"}`, `{"uri":"x:1"}`, `{"uri":7}`, `{}`, `[]`, `{"uri":"x:hunter2"}`, `{"uri":"x:2"`, `{"uri":"a b"}`),
		Templates: raws(`{"uriTemplate":"~{x}"}`),
	})
	if got := shown(l, "", sallyport.Resources); got != "sallyport:a/x:1 sallyport:a/~YSBi" {
		t.Errorf("resources: %s", got)
	}
	list, _ := l.Shelf("", sallyport.Resources)
	if !strings.Contains(string(list[0].Definition), "[masked]") {
		t.Errorf("listed as %s", list[0].Definition)
	}
	if tool, err := l.Find("", sallyport.Resources, "sallyport:a/~YSBi"); err != nil || tool.Origin.Name != "a b" {
		t.Errorf("%+v, %v", tool, err)
	}
	if n := len(l.Warnings("a")); n != 7 {
		t.Errorf("%d warnings: %v", n, l.Warnings("a"))
	}
}

// FO-07: links and embedded resources get the same addresses.
func TestFO07AddressesInResults(t *testing.T) {
	l := filled(library.Options{Profiles: map[string]profile.Profile{"bare": {Names: []string{"a__*"}, Bare: "a"}}})
	in := `{ "content":[{"type":"text","text":"see file:///readme"},{"type":"resource_link","uri":"file:///readme","n":1.0} , ` +
		`{"type":"resource","resource":{"uri":"sallyport:b/x:1","text":"uri"}},{"type":"resource","resource":{"uri":7}}],"structuredContent":{"uri":"x:1"}}`
	tool := sallyport.Tool{Origin: sallyport.Origin{Server: "a"}}
	got := string(l.Address("", tool, json.RawMessage(in)))
	for _, want := range []string{
		`{"type":"resource_link","uri":"sallyport:a/file:///readme","n":1.0}`, `"text":"see file:///readme"`,
		`{"uri":"sallyport:a/sallyport:b/x:1","text":"uri"}`, `{"uri":7}`, `"structuredContent":{"uri":"x:1"}}`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in %s", want, got)
		}
	}
	if got := l.Address("bare", tool, json.RawMessage(in)); string(got) != in {
		t.Errorf("a bare profile: %s", got)
	}
}

func TestCheckPromptArguments(t *testing.T) {
	l := filled(library.Options{})
	tool, err := l.Find("", sallyport.Prompts, "a__hi")
	if err != nil {
		t.Fatal(err)
	}
	for args, good := range map[string]bool{
		`{"who":"me"}`: true, `{"how":"so","who":"me"}`: true, `{}`: false, `{"who":7}`: false, `{"what":"x","who":"me"}`: false,
	} {
		if err := l.Check(tool, sallyport.GetPrompt, json.RawMessage(args)); (err == nil) != good {
			t.Errorf("%s: %v", args, err)
		}
	}
	for args, good := range map[string]bool{
		`{"argument":{"name":"who","value":""}}`: true, `{"argument":{"name":"who"}}`: false, `{}`: false,
		`{"argument":{"name":"who","value":"m"},"context":{"arguments":{"how":"so"}}}`: true,
		`{"argument":{"name":"who","value":"m"},"context":{"arguments":{"how":1}}}`:    false,
		`{"argument":{"name":"who","value":"m"},"context":[]}`:                         false,
	} {
		if err := l.Check(tool, sallyport.Complete, json.RawMessage(args)); (err == nil) != good {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// A list is whole only when every server of the profile has told what it has.
func TestIncomplete(t *testing.T) {
	silent := []string{"c"}
	l := filled(library.Options{
		Silent: func() []string { return silent }, Profiles: map[string]profile.Profile{"one": {Names: []string{"a__*"}}, "c": {Names: []string{"c__x"}}},
	})
	for profile, want := range map[string]bool{"": false, "one": true, "c": false} {
		if _, whole := l.Shelf(profile, sallyport.Resources); whole != want {
			t.Errorf("profile %q: whole is %v", profile, whole)
		}
	}
	silent = nil
	if _, whole := l.Shelf("", ""); !whole {
		t.Error("nobody is silent")
	}
}

func TestRemovedServerIsGone(t *testing.T) {
	changes := 0
	l := filled(library.Options{Changed: func() { changes++ }})
	l.RemoveListing("a")
	if got := shown(l, "", sallyport.Prompts); strings.Contains(got, "a__") || changes != 3 {
		t.Errorf("%s; %d changes", got, changes)
	}
	if _, err := l.Find("", sallyport.Resources, "sallyport:a/file:///readme"); err == nil {
		t.Error("it can still be read")
	}
}

func BenchmarkFind(b *testing.B) {
	var all []json.RawMessage
	for i := range 10_000 {
		all = append(all, json.RawMessage(fmt.Sprintf(`{"uri":"db://t%d"}`, i)))
	}
	l := library.New(library.Options{})
	l.SetListing(context.Background(), library.Listing{Server: "a", Resources: all})
	for b.Loop() {
		if _, err := l.Find("", sallyport.Resources, "sallyport:a/db://t77"); err != nil {
			b.Fatal(err)
		}
	}
}

// FO-28: things that strict clients would refuse the whole list for are shown as they
// take them; of one that is no thing nothing is.
func TestFO28OddThingsSpoilNoList(t *testing.T) {
	l := library.New(library.Options{})
	l.SetListing(context.Background(), library.Listing{
		Server: "a", Holds: true,
		Resources: raws(`{"uri":"x:1"}`, `{"uri":"x:2","name":"n","mimeType":null,"size":"big"}`, `{"name":"n"}`),
		Templates: raws(`{"uriTemplate":"x:{a}","name":null}`),
		Prompts:   raws(`{"name":"p","description":null,"arguments":[{"name":"a","required":null},{"required":true}]}`),
	})
	for shelf, want := range map[sallyport.Shelf]string{
		sallyport.Resources: `{"uri":"sallyport:a/x:1","name":"x:1"} {"uri":"sallyport:a/x:2","name":"n"} `,
		sallyport.Templates: `{"uriTemplate":"sallyport:a/x:{a}","name":"x:{a}"} `,
		sallyport.Prompts:   `{"name":"a__p","arguments":[{"name":"a"}]} `,
	} {
		list, _ := l.Shelf("", shelf)
		got := ""
		for _, t := range list {
			got += string(t.Definition) + " "
		}
		if got != want {
			t.Errorf("%s: %s\nwant %s", shelf, got, want)
		}
	}
	if w := l.Warnings("a"); len(w) != 3 {
		t.Errorf("warnings: %q", w)
	}
}
