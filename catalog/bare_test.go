package catalog

import (
	"encoding/json"
	"testing"

	"sallyport.dev/sallyport/catalog/profile"
)

// In a profile with bare names, tools are listed by their own, and found by both.
func TestBareNames(t *testing.T) {
	c, err := New(Options{Pins: &memory{}, Profiles: map[string]profile.Profile{"bare": {Names: []string{"a__*"}, Bare: "a"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range []string{"a", "b"} {
		tools := []json.RawMessage{json.RawMessage(`{"name":"x y","inputSchema":{"type":"object"}}`), json.RawMessage(`{"name":"do","inputSchema":{"type":"object"}}`)}
		if err := c.SetListing(t.Context(), Listing{Server: server, Tools: tools}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := c.List("bare")
	if err != nil || len(list) != 2 || list[0].Shown() != "do" || list[1].Shown() != "x y" || list[0].Name != "a__do" || string(list[0].Definition) != `{"name":"do","inputSchema":{"type":"object"}}` {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, name := range []string{"do", "a__do"} {
		if tool, err := c.Resolve("bare", name); err != nil || tool.Name != "a__do" || tool.Digest != list[0].Digest {
			t.Errorf("%s: %+v, %v", name, tool, err)
		}
	}
	for profile, name := range map[string]string{"": "do", "bare": "b__do"} {
		if _, err := c.Resolve(profile, name); err == nil {
			t.Errorf("%q finds %s", profile, name)
		}
	}
}
