package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	puts int
	err  error
}

func (m *memory) GetPin(_ context.Context, server, tool string) (Pin, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pins[[2]string{server, tool}], m.err
}

func (m *memory) PutPins(_ context.Context, server string, pins map[string]Pin) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	if m.pins == nil {
		m.pins = map[[2]string]Pin{}
	}
	m.puts++
	for tool, p := range pins {
		m.pins[[2]string{server, tool}] = p
	}
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

// FO-28: a tool that strict clients would refuse the whole list for is shown as they
// take it, and pinned as its server wrote it.
func TestFO28OddToolsSpoilNoList(t *testing.T) {
	c := open(t, Options{})
	set(t, c, "s", tool("plain"), json.RawMessage(`{"name":"odd","title":null,"annotations":{"readOnlyHint":"yes"},"inputSchema":{"properties":{"a":true,"b":false}}}`))
	got, err := c.Resolve("", "s__odd")
	want := `{"name":"s__odd","annotations":{},"inputSchema":{"properties":{"a":{},"b":{"not":{}}},"type":"object"}}`
	if err != nil || got.Status != sallyport.ToolActive || string(got.Definition) != want {
		t.Errorf("%s: %s\nwant %s, %v", got.Status, got.Definition, want, err)
	}
	if w := c.Warnings(); len(w) != 1 || w[0].Tool != "odd" || !strings.HasSuffix(w[0].Reason, ": annotations.readOnlyHint, inputSchema") {
		t.Errorf("warnings: %+v", w)
	}
	if c.Validate(got, json.RawMessage(`{"a":1}`)) != nil || c.Validate(got, json.RawMessage(`{"b":1}`)) == nil {
		t.Error("its arguments are not judged as its server says")
	}
	digest := got.Digest
	set(t, c, "s", tool("plain"), json.RawMessage(`{"name":"odd","inputSchema":{"type":"object","properties":{"a":{},"b":{"not":{}}}}}`))
	if got, _ := c.Resolve("", "s__odd"); got.Status != sallyport.ToolQuarantined || got.Digest == digest {
		t.Error("what its server wrote is not what is pinned")
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
