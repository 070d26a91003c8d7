package front_test

import (
	"testing"

	"sallyport.dev/sallyport/cmd/sallyport/front"
	"sallyport.dev/sallyport/config"
)

// The names of each profile's endpoint are its own.
func TestResources(t *testing.T) {
	c := config.Default()
	c.URL, c.Profiles = "https://gw.example", map[string]config.Profile{"a": {}, "b": {}}
	c.Endpoints = map[string]string{"https://gw.example/team/a/mcp": "a", "https://root.example/": ""}
	of, all := front.Resources(c, "http://127.0.0.1:7450")
	seen := map[string]string{}
	for name, links := range of {
		for _, link := range links {
			if other, twice := seen[link]; twice {
				t.Errorf("%s is of %q and %q", link, other, name)
			}
			seen[link] = name
		}
	}
	if all[0] != "http://127.0.0.1:7450/mcp" || len(all) != 8 || len(seen) != 8 || seen["https://gw.example/team/a/mcp"] != "a" || seen["https://root.example/"] != "" || seen["https://gw.example/mcp/b"] != "b" {
		t.Errorf("%v, %v", of, all)
	}
}
