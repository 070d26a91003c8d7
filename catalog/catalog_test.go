package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/catalog/profile"
	"sallyport.dev/sallyport/gateway"
)

var _ gateway.Catalog = (*Catalog)(nil)

// memory is a Pins for tests.
type memory struct {
	mu   sync.Mutex
	pins map[[2]string]Pin
	err  error
}

func (m *memory) GetPin(_ context.Context, server, tool string) (Pin, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pins[[2]string{server, tool}], m.err
}

func (m *memory) PutPin(_ context.Context, server, tool string, p Pin) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	if m.pins == nil {
		m.pins = map[[2]string]Pin{}
	}
	m.pins[[2]string{server, tool}] = p
	return nil
}

func open(t testing.TB, o Options) *Catalog {
	t.Helper()
	if o.Pins == nil {
		o.Pins = &memory{}
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func tool(name string) json.RawMessage {
	b, err := json.Marshal(name)
	if err != nil {
		panic(err)
	}
	return json.RawMessage(`{"name":` + string(b) + `,"inputSchema":{"type":"object"}}`)
}

func set(t testing.TB, c *Catalog, server string, tools ...json.RawMessage) {
	t.Helper()
	if err := c.SetListing(t.Context(), Listing{Server: server, Tools: tools}); err != nil {
		t.Fatal(err)
	}
}

// origins maps exposed names to "server/tool".
func origins(t testing.TB, c *Catalog) map[string]string {
	t.Helper()
	list, err := c.List("")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, l := range list {
		got, err := c.Resolve("", l.Name)
		if err != nil || got.Origin != l.Origin {
			t.Errorf("Resolve(%q) = %v, %v; want %v", l.Name, got.Origin, err, l.Origin)
		}
		out[l.Name] = l.Origin.Server + "/" + l.Origin.Name
	}
	return out
}

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

func TestFO09_DefinitionIsKeptByteForByte(t *testing.T) {
	raw := json.RawMessage(`{ "zeta" : [1.0, 9007199254740993], "name":"x","title":"T","annotations":{"readOnlyHint":true,"vendorHint":-0},
	 "icons":[{"src":"data:,"}],"inputSchema":{"type":"object","properties":{}},"outputSchema":{"type":"object"},"_meta":{"k":1e400}}`)
	c := open(t, Options{})
	set(t, c, "s", raw)
	got, err := c.Resolve("", "s__x")
	want := strings.Replace(string(raw), `"name":"x"`, `"name":"s__x"`, 1)
	if err != nil || string(got.Definition) != want {
		t.Errorf("definition changed (%v):\n%s\nwant\n%s", err, got.Definition, want)
	}
	if got.Manifest.ReadOnly || got.Manifest.Risk != nil {
		t.Error("an upstream's hint reached the manifest")
	}
}

// Clients of revision 2025-11-25 would not call a tool that says that it must be called as
// a task, which this gateway takes from none of them: the gateway itself asks its server
// for one. A difference in that is none in the pinned definition's bytes for clients.
func TestHowServersWantTasksIsNotShown(t *testing.T) {
	c := open(t, Options{})
	def := func(name, execution string) json.RawMessage {
		return json.RawMessage(`{"name":"` + name + `","inputSchema":{"type":"object"}` + execution + `}`)
	}
	set(t, c, "s", def("a", `,"execution":{"taskSupport":"required","x":1}`), def("b", `,"execution":{"taskSupport":"optional"}`), def("c", `,"execution":{"taskSupport":"forbidden"}`), def("d", ""))
	for name, want := range map[string]struct {
		shown  string
		byTask bool
	}{
		"s__a": {`,"execution":{"taskSupport":"forbidden","x":1}`, true}, "s__b": {`,"execution":{"taskSupport":"forbidden"}`, false},
		"s__c": {`,"execution":{"taskSupport":"forbidden"}`, false}, "s__d": {"", false},
	} {
		got, err := c.Resolve("", name)
		if err != nil || string(got.Definition) != string(def(name, want.shown)) || got.ByTask != want.byTask {
			t.Errorf("%s: %s, by task %v, %v", name, got.Definition, got.ByTask, err)
		}
	}
}

func TestFO32_MalformedToolsAreQuarantinedOneByOne(t *testing.T) {
	bad := map[string]string{
		"missing":     `{"name":"missing"}`,
		"null":        `{"name":"null","inputSchema":null}`,
		"list":        `{"name":"list","inputSchema":[]}`,
		"text":        `{"name":"text","inputSchema":"object"}`,
		"string":      `{"name":"string","inputSchema":{"type":"string"}}`,
		"description": `{"name":"description","description":5,"inputSchema":{"type":"object"}}`,
		"external":    `{"name":"external","inputSchema":{"type":"object","properties":{"a":{"$ref":"http://127.0.0.1:1/x"}}}}`,
		"invalid":     `{"name":"invalid","inputSchema":{"type":"object","properties":5}}`,
		"number":      `{"name":"number","inputSchema":{"type":"object","minProperties":1e999999999}}`,
		"loop":        `{"name":"loop","inputSchema":{"type":"object","$ref":"#"}}`,
	}
	tools := []json.RawMessage{
		tool("good"), []byte(`{"name":"plain","description":null,"inputSchema":{"type":"object"}}`),
		[]byte(`{"name":null,"inputSchema":{"type":"object"}}`), []byte(`null`), []byte(`7`), []byte(`{"a":1,"a":2}`), []byte(`{`),
	}
	for _, b := range bad {
		tools = append(tools, []byte(b))
	}
	c := open(t, Options{})
	set(t, c, "s", tools...)
	for name := range bad {
		got, err := c.Resolve("", "s__"+name)
		if err != nil || got.Status != sallyport.ToolQuarantined || !strings.HasPrefix(got.StatusReason, "malformed: ") {
			t.Errorf("%s: status %q, reason %q, %v", name, got.Status, got.StatusReason, err)
		}
		if c.Approve(t.Context(), "s__"+name, "") == nil {
			t.Errorf("%s: a malformed tool was approved", name)
		}
		if c.Validate(got, json.RawMessage(`{}`)) == nil {
			t.Errorf("%s: arguments of a malformed tool were accepted", name)
		}
		t.Log(got.StatusReason)
	}
	for _, name := range []string{"good", "plain"} {
		if got, err := c.Resolve("", "s__"+name); err != nil || got.Status != sallyport.ToolActive {
			t.Errorf("%s: status %q, %v", name, got.Status, err)
		}
	}
	if w := c.Warnings(); len(w) != 5 {
		t.Errorf("warnings = %v, want five about what has no name", w)
	}
}

func TestProfiles(t *testing.T) {
	c := open(t, Options{Profiles: map[string]profile.Profile{"few": {Names: []string{"s__a", "r__*"}}, "none": {}}})
	set(t, c, "s", tool("a"), tool("b"))
	set(t, c, "r", tool("c"))
	for profile, want := range map[string]int{"": 3, "few": 2, "none": 0} {
		if list, err := c.List(profile); err != nil || len(list) != want {
			t.Errorf("List(%q) = %d tools, %v; want %d", profile, len(list), err, want)
		}
	}
	_, hidden := c.Resolve("few", "s__b")
	_, unknown := c.Resolve("few", "s__z")
	_, noProfile := c.Resolve("other", "s__a")
	for _, err := range []error{hidden, unknown, noProfile} {
		if sallyport.CodeOf(err) != sallyport.NotFound {
			t.Errorf("got %v, want not_found", err)
		}
	}
	if strings.Replace(hidden.Error(), "s__b", "s__z", 1) != unknown.Error() {
		t.Error("a hidden tool can be told from an unknown one")
	}
	if _, err := c.List("other"); sallyport.CodeOf(err) != sallyport.NotFound {
		t.Errorf("List(other) = %v", err)
	}
}

func TestGenerationAndRemoval(t *testing.T) {
	c := open(t, Options{})
	before := c.Generation()
	set(t, c, "s", tool("a"))
	during := c.Generation()
	c.RemoveListing("s")
	if before == during || during == c.Generation() {
		t.Error("the generation did not change with the tools")
	}
	if list, _ := c.List(""); len(list) != 0 {
		t.Errorf("a removed server's tools are still there: %v", list)
	}
}

func TestBuiltins(t *testing.T) {
	b := sallyport.Tool{
		Name: "run_python", Description: "Runs Python.", InputSchema: json.RawMessage(`{"type":"object","required":["code"]}`),
		Origin: sallyport.Origin{Backend: "sandbox"}, Code: &sallyport.Script{Language: "python"},
	}
	c := open(t, Options{Builtins: []sallyport.Tool{b}})
	got, err := c.Resolve("", "run_python")
	if err != nil || got.Status != sallyport.ToolActive || len(got.Digest) != 64 || got.Version != "1" {
		t.Fatalf("Resolve = %+v, %v", got, err)
	}
	if want := `{"name":"run_python","description":"Runs Python.","inputSchema":{"type":"object","required":["code"]}}`; string(got.Definition) != want {
		t.Errorf("definition = %s, want %s", got.Definition, want)
	}
	if err := c.Validate(got, json.RawMessage(`{}`)); sallyport.CodeOf(err) != sallyport.Invalid {
		t.Errorf("Validate without code = %v", err)
	}
	b.Name = "no spaces"
	if _, err := New(Options{Builtins: []sallyport.Tool{b}}); err == nil {
		t.Error("a bad builtin name was accepted")
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

func BenchmarkResolveAndValidate(b *testing.B) {
	args := json.RawMessage(`{"text":"` + strings.Repeat("x", 900) + `","n":9007199254740993}`)
	for _, n := range []int{10, 10_000} {
		c := open(b, Options{})
		var tools []json.RawMessage
		for i := range n {
			tools = append(tools, fmt.Appendf(nil, `{"name":"t%d","inputSchema":{"type":"object","properties":{"text":{"type":"string"},"n":{"type":"integer"}},"required":["text"]}}`, i))
		}
		set(b, c, "s", tools...)
		b.Run(fmt.Sprintf("tools=%d/resolve", n), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if _, err := c.Resolve("", "s__t7"); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("tools=%d/validate", n), func(b *testing.B) {
			t, _ := c.Resolve("", "s__t7")
			for b.Loop() {
				if err := c.Validate(t, args); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestPinsThatFailFailClosed(t *testing.T) {
	pins := &memory{err: errors.New("disk")}
	c := open(t, Options{Pins: pins})
	set(t, c, "s", tool("a"))
	if got, _ := c.Resolve("", "s__a"); got.Status != sallyport.ToolQuarantined {
		t.Errorf("status = %q with unreadable pins", got.Status)
	}
	if c.Approve(t.Context(), "s__a", "") == nil {
		t.Error("approved although the pin cannot be stored")
	}
	pins.err = nil
	if err := c.Approve(t.Context(), "s__a", ""); err != nil {
		t.Fatal(err)
	}
	if got, _ := c.Resolve("", "s__a"); got.Status != sallyport.ToolActive {
		t.Errorf("status = %q after approval", got.Status)
	}
}
