package conformance

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"sallyport.dev/sallyport/test/stage"
)

// bent are the malformed tools of FO-32, with a good one before and after.
var bent = "ACTOR_TOOLS=[" + strings.Join([]string{
	definition(`"first"`, `{"type":"object"}`),
	`{"name":"none","description":"d"}`,
	definition(`"null"`, `null`),
	definition(`"array"`, `[]`),
	definition(`"text"`, `"object"`),
	definition(`"scalar"`, `{"type":"string"}`),
	definition(`null`, `{"type":"object"}`),
	`{"name":"nodesc","description":null,"inputSchema":{"type":"object"}}`,
	`null`, `7`,
	definition(`"last"`, `{"type":"object"}`),
}, ",") + "]"

var plainName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,48}$`)

// Every tool has one name of its own that every model takes, and the name leads
// to it.
func names(t *testing.T, w *world) {
	all := w.of(t, "alpha", "beta", "x", "x_y", longAlias, "odd")
	if len(all) != 1+1+2+1+6+6 {
		t.Errorf("%d tools are listed: %+v", len(all), all)
	}
	list, err := w.legacy(t).list()
	if err != nil {
		t.Fatal(err)
	}
	agents := toolNames(t, list)
	seen := map[string]bool{}
	for _, tool := range all {
		if !plainName.MatchString(tool.Name) || seen[tool.Name] || tool.Status != "active" {
			t.Errorf("%+v: the name is not plain or not its own", tool)
		}
		seen[tool.Name] = true
		if _, found := slices.BinarySearch(agents, tool.Name); !found {
			t.Errorf("%s is not listed to agents", tool.Name)
		}
		if a := w.must(t, tool.Name, `{}`, ""); a.Text != tool.Server+"/"+tool.Upstream {
			t.Errorf("%s leads to %q, want %s of %s", tool.Name, a.Text, tool.Upstream, tool.Server)
		}
	}
}

func namesSurviveARestart(t *testing.T, w *world) {
	before := w.tools(t)
	w.Stop()
	if p := stage.Players(t, w.self); len(p) != 0 {
		t.Errorf("servers outlive the gateway: %v", p)
	}
	w.Start("a", "b", "alpha", "beta", "x", "x_y", longAlias, "odd", "bent")
	w.token = w.Token("")
	if after := w.tools(t); !slices.Equal(before, after) {
		t.Errorf("the tools were %+v\nand are %+v", before, after)
	}
}

func malformedTools(t *testing.T, w *world) {
	var active []string
	for _, tool := range w.of(t, "bent") {
		if tool.Status == "active" {
			active = append(active, tool.Upstream)
		} else if tool.Reason == "" {
			t.Errorf("%+v: no reason", tool)
		}
	}
	slices.Sort(active)
	if !slices.Equal(active, []string{"first", "last", "nodesc"}) {
		t.Errorf("active are %v", active)
	}
	s := w.server(t, "bent")
	t.Logf("warnings: %q", s.Warnings)
	if len(s.Warnings)+len(w.of(t, "bent"))-len(active) < 8 {
		t.Errorf("not every malformed tool is accounted for: %q, %+v", s.Warnings, w.of(t, "bent"))
	}
}
