package catalog

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	reader "sallyport.dev/sallyport/backend/openapi/document"
)

// operations takes the operations of a document into a catalogue.
func operations(t testing.TB, text string) *Catalog {
	t.Helper()
	d, err := reader.Read([]byte(text), "", "https://a.example")
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, Options{})
	l := Listing{Server: "s", Endpoint: d.Base, Routes: map[string]*sallyport.Route{}}
	for _, o := range d.Operations {
		l.Tools = append(l.Tools, o.Definition)
		l.Routes[o.Name] = o.Route
	}
	if err := c.SetListing(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	return c
}

// FO-28: schemas of OpenAPI 3.0 and 3.1 with their oddities: each takes one value
// and refuses another, and none keeps the others out.
func TestFO28_SchemasOfDocuments(t *testing.T) {
	const components = `"components":{"schemas":{
		"Node":{"type":"object","properties":{"next":{"$ref":"#/components/schemas/Node"},"v":{"type":"integer"}}},
		"a/b ~%":{"type":"integer"},"Tree":{"$recursiveAnchor":true,"type":"object","properties":{"c":{"type":"array","items":{"$recursiveRef":"#"}}}},"Kind":{"type":"string","enum":["a","b"]}}}`
	for name, c := range map[string]struct{ version, schema, good, bad string }{
		"true":                   {"3.1.0", `true`, `{"x":1}`, ``},
		"false":                  {"3.1.0", `false`, ``, `1`},
		"empty":                  {"3.0.3", `{}`, `[1]`, ``},
		"types":                  {"3.1.0", `{"type":["string","null"]}`, `null`, `1`},
		"nullable":               {"3.0.3", `{"type":"string","nullable":true}`, `null`, `1`},
		"nullable choice":        {"3.0.3", `{"type":"string","nullable":true,"enum":["a"]}`, `null`, `"b"`},
		"nullable reference":     {"3.0.3", `{"nullable":true,"allOf":[{"$ref":"#/components/schemas/Kind"}]}`, `null`, `"c"`},
		"not nullable":           {"3.0.3", `{"type":"string"}`, `"a"`, `null`},
		"exclusive, 3.0":         {"3.0.3", `{"type":"integer","minimum":1,"exclusiveMinimum":true}`, `2`, `1`},
		"exclusive false":        {"3.0.3", `{"type":"integer","maximum":1,"exclusiveMaximum":false}`, `1`, `2`},
		"exclusive, 3.1":         {"3.1.0", `{"type":"integer","exclusiveMinimum":1}`, `2`, `1`},
		"additional, false":      {"3.0.3", `{"type":"object","additionalProperties":false}`, `{}`, `{"a":1}`},
		"additional, schema":     {"3.0.3", `{"type":"object","additionalProperties":{"type":"integer"}}`, `{"a":1}`, `{"a":"b"}`},
		"choice at the root":     {"3.1.0", `{"anyOf":[{"type":"integer"},{"$ref":"#/components/schemas/Kind"}]}`, `"a"`, `"c"`},
		"prefix items":           {"3.1.0", `{"type":"array","prefixItems":[{"type":"integer"}],"items":false}`, `[1]`, `[1,2]`},
		"const":                  {"3.1.0", `{"const":{"$ref":"x"}}`, `{"$ref":"x"}`, `{}`},
		"in itself":              {"3.0.3", `{"$ref":"#/components/schemas/Node"}`, `{"next":{"next":{"v":1}}}`, `{"next":{"next":{"v":"x"}}}`},
		"beside a reference":     {"3.1.0", `{"$ref":"#/components/schemas/Node","required":["v"]}`, `{"v":1}`, `{}`},
		"beside one, 3.0":        {"3.0.3", `{"$ref":"#/components/schemas/Node","required":["v"]}`, `{}`, `1`},
		"a name with signs":      {"3.1.0", `{"$ref":"#/components/schemas/a~1b%20~0%25"}`, `1`, `"x"`},
		"into a schema":          {"3.1.0", `{"$ref":"#/components/schemas/Node/properties/v"}`, `1`, `"x"`},
		"own definitions":        {"3.1.0", `{"$defs":{"x":{"type":"integer"}},"type":"object","properties":{"a":{"type":"integer"}}}`, `{"a":1}`, `{"a":"b"}`},
		"property named as word": {"3.0.3", `{"type":"object","properties":{"nullable":{"type":"integer"},"example":{"type":"integer"},"x-a":{"type":"integer"},"$ref":{"type":"integer"}}}`, `{"$ref":1}`, `{"nullable":"a"}`},
		"discriminator":          {"3.0.3", `{"oneOf":[{"$ref":"#/components/schemas/Node"}],"discriminator":{"propertyName":"k"}}`, `{"v":1}`, `{"v":"x"}`},
		"a dialect of its own":   {"3.1.0", `{"$schema":"http://json-schema.org/draft-04/schema#","$id":"https://x.example/y","type":"integer"}`, `1`, `"x"`},
		"recursive, 2019-09":     {"3.1.0", `{"$ref":"#/components/schemas/Tree"}`, `{"c":[{"c":[]}]}`, `{"c":[{"c":[1]}]}`},
		"nullable, 3.1":          {"3.1.0", `{"type":"integer","nullable":true}`, `null`, `"x"`},
		"exclusive true, 3.1":    {"3.1.0", `{"type":"integer","minimum":1,"exclusiveMinimum":true}`, `2`, `1`},
		"required twice":         {"3.0.3", `{"type":"object","required":["a","a"],"properties":{"a":{}}}`, `{"a":1}`, `{}`},
		"required true":          {"3.0.3", `{"type":"object","properties":{"a":{"type":"integer","required":true}}}`, `{"a":1}`, `{"a":"b"}`},
		"lookahead":              {"3.0.3", `{"type":"string","pattern":"^(?!a)"}`, `"a"`, `1`},
	} {
		text := fmt.Sprintf(`{"openapi":%q,"paths":{"/x":{"post":{"operationId":"x","requestBody":{"content":{"application/json":{"schema":%s}}}}},"/y":{"get":{"operationId":"y"}}},%s}`,
			c.version, c.schema, components)
		cat := operations(t, text)
		tool, err := cat.Resolve("", "s__x")
		if err != nil || tool.Status != sallyport.ToolActive {
			t.Errorf("%s: %v, %s %s", name, err, tool.StatusReason, tool.InputSchema)
			continue
		}
		if _, err := cat.Resolve("", "s__y"); err != nil {
			t.Errorf("%s: the other one: %v", name, err)
		}
		for value, good := range map[string]bool{c.good: true, c.bad: false} {
			if value == "" {
				continue
			}
			if err := cat.Validate(tool, json.RawMessage(`{"body":`+value+`}`)); (err == nil) != good {
				t.Errorf("%s: %s: %v, want good %t; %s", name, value, err, good, tool.InputSchema)
			}
		}
	}
}

// TO-06: what would take long, or has no end, is quarantined alone.
func TestTO06_SchemasOfDocuments(t *testing.T) {
	wide := make([]string, 3000)
	for i := range wide {
		wide[i] = fmt.Sprintf(`"p%d":{"type":"string","description":%q}`, i, strings.Repeat("x", 200))
	}
	for name, c := range map[string]struct{ components, schema string }{
		"itself":           {`"A":{"$ref":"#/components/schemas/A"}`, `{"$ref":"#/components/schemas/A"}`},
		"each other":       {`"A":{"$ref":"#/components/schemas/B"},"B":{"$ref":"#/components/schemas/A"}`, `{"$ref":"#/components/schemas/A"}`},
		"all of each":      {`"A":{"allOf":[{"$ref":"#/components/schemas/A"},{"type":"object"}]}`, `{"$ref":"#/components/schemas/A"}`},
		"multiplying":      {multiplied(18), `{"$ref":"#/components/schemas/S18"}`},
		"very large":       {`"A":{"type":"object","properties":{` + strings.Join(wide, ",") + `}}`, `{"$ref":"#/components/schemas/A"}`},
		"of another place": {`"A":{"type":"object"}`, `{"$ref":"#/paths"}`},
	} {
		text := fmt.Sprintf(`{"openapi":"3.1.0","paths":{"/x":{"post":{"operationId":"x","requestBody":{"content":{"application/json":{"schema":%s}}}}},"/y":{"get":{"operationId":"y"}}},"components":{"schemas":{%s}}}`,
			c.schema, c.components)
		cat := operations(t, text)
		if tool, err := cat.Resolve("", "s__x"); err == nil && tool.Status == sallyport.ToolActive && name != "of another place" {
			t.Errorf("%s is active: %.200s", name, tool.InputSchema)
		}
		if tool, err := cat.Resolve("", "s__y"); err != nil || tool.Status != sallyport.ToolActive {
			t.Errorf("%s: the other one: %v", name, err)
		}
	}
}

func multiplied(n int) string {
	all := []string{`"S0":{"type":"integer"}`}
	for i := range n {
		ref := fmt.Sprintf(`{"$ref":"#/components/schemas/S%d"}`, i)
		all = append(all, fmt.Sprintf(`"S%d":{"anyOf":[%s,{"not":%s}]}`, i+1, ref, ref))
	}
	return strings.Join(all, ",")
}
