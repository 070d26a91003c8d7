// Package change tells what became of a tool's definition: line by line for a
// reader, and as one word for who calls the tool: worded otherwise, compatible
// or breaking.
//
// Whether a schema still takes what it took is proven or not. What cannot be
// proven is breaking.
package change

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// A Kind says what a change asks of who calls the tool.
type Kind string

// The kinds of change. They are the parts of a semantic version.
const (
	None       Kind = ""
	Wording    Kind = "wording"    // nothing but words for readers: a patch
	Compatible Kind = "compatible" // what was good before still is: minor
	Breaking   Kind = "breaking"   // major
)

// First is the version of a definition that nobody has seen before.
const First = "1.0.0"

// Next is the version after a change.
func Next(version string, k Kind) string {
	var n [3]int
	for i, part := range strings.SplitN(version, ".", 3) {
		n[i], _ = strconv.Atoi(part) // what is no number counts as 0
	}
	switch k {
	case Breaking:
		n = [3]int{n[0] + 1}
	case Compatible:
		n = [3]int{n[0], n[1] + 1}
	case Wording:
		n[2]++
	case None:
	}
	return fmt.Sprintf("%d.%d.%d", n[0], n[1], n[2])
}

// A Verdict is what a change is, and why.
type Verdict struct {
	Kind    Kind
	Reasons []string // "PLACE: what", none for wording
}

// words are members of a definition that only readers need.
var words = map[string]bool{"description": true, "title": true, "icons": true, "_meta": true, "name": true}

// Compare judges the change from one pinned form to another, {"instructions":…,
// "tool":…} and what else is pinned, such as the route of an operation. One that
// cannot be read is breaking.
func Compare(before, after json.RawMessage) Verdict {
	a, okA := decode(before).(map[string]any)
	b, okB := decode(after).(map[string]any)
	if !okA || !okB {
		return Verdict{Breaking, []string{"the definition cannot be read"}}
	}
	if reflect.DeepEqual(a, b) {
		return Verdict{}
	}
	old, fresh := object(a["tool"]), object(b["tool"])
	c := comparison{}
	c.input(old["inputSchema"], fresh["inputSchema"])
	c.output(old["outputSchema"], fresh["outputSchema"])
	c.annotations(object(old["annotations"]), object(fresh["annotations"]))
	for _, name := range union(old, fresh) {
		switch {
		case words[name], name == "inputSchema", name == "outputSchema", name == "annotations", reflect.DeepEqual(old[name], fresh[name]):
		default:
			c.breaks("/"+name, "it changed, and what it means to callers is not known")
		}
	}
	for _, name := range union(a, b) {
		if name != "instructions" && name != "tool" && !reflect.DeepEqual(a[name], b[name]) {
			c.breaks("/"+name, "it changed, so calls do something else")
		}
	}
	switch {
	case len(c.breaking) > 0:
		return Verdict{Breaking, c.breaking}
	case len(c.compatible) > 0:
		return Verdict{Compatible, c.compatible}
	}
	return Verdict{Kind: Wording}
}

// comparison collects what was found.
type comparison struct{ breaking, compatible []string }

func (c *comparison) breaks(where, format string, args ...any) {
	c.breaking = append(c.breaking, where+": "+fmt.Sprintf(format, args...))
}

// input: every call that was good must still be.
func (c *comparison) input(old, fresh any) {
	if reflect.DeepEqual(old, fresh) {
		return
	}
	c.settle("/inputSchema", prove("/inputSchema", fresh, old, true), old, fresh)
}

// output: every result that can come must have been possible.
func (c *comparison) output(old, fresh any) {
	switch {
	case reflect.DeepEqual(old, fresh):
	case old == nil:
		c.compatible = append(c.compatible, "/outputSchema: results are described now")
	case fresh == nil:
		c.breaks("/outputSchema", "results are no longer described")
	default:
		c.settle("/outputSchema", prove("/outputSchema", old, fresh, false), old, fresh)
	}
}

// stable reports whether equal references mean the same in both documents: what
// they can lead to is the same.
func stable(a, b any) bool {
	for _, key := range []string{"$defs", "definitions"} {
		if !reflect.DeepEqual(object(a)[key], object(b)[key]) {
			return false
		}
	}
	return onlyDefs(a) && onlyDefs(b)
}

func onlyDefs(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			if to, ok := inner.(string); ok && (k == "$dynamicRef" || k == "$recursiveRef" || k == "$ref" && !strings.HasPrefix(to, "#/$defs/") && !strings.HasPrefix(to, "#/definitions/")) {
				return false
			}
			if !onlyDefs(inner) {
				return false
			}
		}
	case []any:
		return !slices.ContainsFunc(v, func(x any) bool { return !onlyDefs(x) })
	}
	return true
}

func (c *comparison) settle(where string, why []string, old, fresh any) {
	switch {
	case len(why) > 0:
		c.breaking = append(c.breaking, why...)
	case !reflect.DeepEqual(worded(old), worded(fresh)):
		c.compatible = append(c.compatible, where+": it takes and gives what it did, and more")
	}
}

// annotations are a server's claims: they never lower a risk here, but clients
// go by them.
func (c *comparison) annotations(old, fresh map[string]any) {
	for _, name := range union(old, fresh) {
		if name != "title" && !reflect.DeepEqual(old[name], fresh[name]) {
			c.breaks("/annotations/"+name, "what the server claims of the tool's effects changed")
		}
	}
}

// worded is a schema without what only readers need. Names of properties stay,
// whatever they are called.
func worded(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	out := map[string]any{}
	for k, v := range m {
		switch {
		case k == "description" || k == "title" || k == "$comment" || k == "examples":
		case k == "properties" || k == "patternProperties" || k == "$defs" || k == "definitions" || k == "dependentSchemas":
			inner := map[string]any{}
			for name, s := range object(v) {
				inner[name] = worded(s)
			}
			out[k] = inner
		case k == "enum" || k == "const" || k == "default":
			out[k] = v
		default:
			if list, ok := v.([]any); ok {
				items := make([]any, len(list))
				for i := range list {
					items[i] = worded(list[i])
				}
				v = items
			}
			out[k] = worded(v)
		}
	}
	return out
}
