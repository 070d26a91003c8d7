// Package lint judges how well a tool is described: a model chooses tools and
// fills in arguments by what their definitions say, and what a schema does not
// bound nobody checks.
package lint

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"sallyport.dev/sallyport"
)

// A Problem is one thing to improve.
type Problem struct {
	Path string `json:"path"` // JSON Pointer into the input schema, or a key of the manifest
	What string `json:"what"`
	Hint string `json:"hint"`
}

// Lengths of a description, in characters. Shorter ones say no more than the
// name does; longer ones are read by a model at every turn.
const (
	minDescription = 20
	maxDescription = 1024
)

// Check judges a tool that the gateway itself defines. A tool without an input
// schema takes no arguments.
func Check(t sallyport.Tool) []Problem {
	l := &linter{}
	l.description(t)
	if len(t.InputSchema) > 0 {
		var schema map[string]any
		if err := json.Unmarshal(t.InputSchema, &schema); err != nil {
			l.add("input_schema", "it is not a JSON object", "write type: object and properties")
			return l.problems
		}
		l.root(schema)
		l.fields(t, schema)
		l.beside(t, schema)
	} else if t.Code != nil {
		l.add("input_schema", "there is none, so nothing says that the tool takes no arguments", "write input_schema: {type: object, additionalProperties: false}")
	}
	slices.SortStableFunc(l.problems, func(a, b Problem) int { return cmp.Compare(a.Path, b.Path) })
	return l.problems
}

type linter struct{ problems []Problem }

func (l *linter) add(path, what, hint string) {
	l.problems = append(l.problems, Problem{path, what, hint})
}

func (l *linter) description(t sallyport.Tool) {
	switch n := utf8.RuneCountInString(strings.TrimSpace(t.Description)); {
	case n == 0:
		l.add("description", "it is missing", "say what the tool does, what it returns and when to use it")
	case n < minDescription:
		l.add("description", fmt.Sprintf("%d characters say too little", n), "say what the tool does, what it returns and when to use it")
	case n > maxDescription:
		l.add("description", fmt.Sprintf("%d characters are too many: a model reads them at every turn", n), fmt.Sprintf("keep to %d", maxDescription))
	}
}

// root judges the schema itself, then everything in it.
func (l *linter) root(schema map[string]any) {
	if schema["type"] != "object" {
		l.add("", "the schema is not of type object", "arguments are one object: write type: object")
	}
	properties := object(schema["properties"])
	required, stated := schema["required"].([]any)
	if len(properties) > 0 && !stated {
		l.add("/required", "nothing says which arguments are required", "list them, or write required: []")
	}
	for _, r := range required {
		if name, ok := r.(string); ok && properties[name] == nil {
			l.add("/required", fmt.Sprintf("%q is required, but is no property", name), "add it to properties, or take it out here")
		}
	}
	l.closed("", schema)
	for _, name := range sorted(properties) {
		l.property("/properties/"+sallyport.PointerToken(name), properties[name])
	}
	l.definitions(schema)
}

func (l *linter) definitions(schema map[string]any) {
	for _, key := range []string{"$defs", "definitions"} {
		defs := object(schema[key])
		for _, name := range sorted(defs) {
			l.value("/"+key+"/"+sallyport.PointerToken(name), object(defs[name]))
		}
	}
}

// property judges what is under a name that a model has to fill in.
func (l *linter) property(path string, v any) {
	if b, ok := v.(bool); ok {
		if b {
			l.add(path, "anything is taken", "give it a type, a description and bounds")
		}
		return
	}
	schema := object(v)
	if text, _ := schema["description"].(string); strings.TrimSpace(text) == "" && schema["$ref"] == nil {
		l.add(path, "it has no description", "say what it means, its unit and an example")
	}
	l.value(path, schema)
}

// open are keywords that say what a value is in place of type.
var open = []string{"enum", "const", "$ref", "anyOf", "oneOf", "allOf", "not", "if"}

func (l *linter) value(path string, schema map[string]any) {
	types := typesOf(schema)
	if len(types) == 0 && !has(schema, open...) {
		l.add(path, "it has no type", "give it one, such as type: string")
	}
	for _, t := range types {
		switch t {
		case "string":
			if !has(schema, "enum", "const", "maxLength") {
				l.add(path, "a string of any length is taken", "add maxLength, or enum")
			}
		case "integer", "number":
			if !has(schema, "enum", "const") && !(has(schema, "minimum", "exclusiveMinimum") && has(schema, "maximum", "exclusiveMaximum")) {
				l.add(path, "a number of any size is taken", "add minimum and maximum")
			}
		case "array":
			l.array(path, schema)
		case "object":
			l.object(path, schema)
		}
	}
	for _, key := range []string{"anyOf", "oneOf", "allOf"} {
		branches, _ := schema[key].([]any)
		for i, b := range branches {
			if o := object(b); key != "allOf" || o["type"] != nil {
				l.value(fmt.Sprintf("%s/%s/%d", path, key, i), o)
			}
		}
	}
}

func (l *linter) array(path string, schema map[string]any) {
	if !has(schema, "maxItems") {
		l.add(path, "any number of items is taken", "add maxItems")
	}
	switch items := schema["items"].(type) {
	case map[string]any:
		l.value(path+"/items", items)
	default:
		if !has(schema, "prefixItems") {
			l.add(path, "nothing says what its items are", "add items")
		}
	}
}

func (l *linter) object(path string, schema map[string]any) {
	l.closed(path, schema)
	properties := object(schema["properties"])
	for _, name := range sorted(properties) {
		l.property(path+"/properties/"+sallyport.PointerToken(name), properties[name])
	}
	if more := object(schema["additionalProperties"]); len(more) > 0 {
		l.value(path+"/additionalProperties", more)
		if !has(schema, "maxProperties") {
			l.add(path, "any number of properties is taken", "add maxProperties")
		}
	}
}

// closed wants it said what becomes of names that the schema does not know.
func (l *linter) closed(path string, schema map[string]any) {
	if !has(schema, "additionalProperties", "unevaluatedProperties", "patternProperties") {
		l.add(path, "misspelt and unknown names are taken in silence", "add additionalProperties: false")
	}
}

// fields of a manifest must point at something, or nothing is ever assessed.
func (l *linter) fields(t sallyport.Tool, schema map[string]any) {
	for _, f := range t.Manifest.Fields {
		at := schema
		for _, name := range strings.Split(strings.TrimPrefix(f.Path, "/"), "/") {
			at = object(object(at["properties"])[sallyport.PointerName(name)])
		}
		if len(at) == 0 {
			l.add("fields", fmt.Sprintf("%s is no property of the schema, so no %s is assessed", f.Path, f.Kind), "correct the path: a JSON Pointer into the arguments, such as /sql")
		}
	}
}

// beside finds arguments that stand beside the declared ones and could be orders: a
// text or an object that no field names. Each call that gives one is high.
func (l *linter) beside(t sallyport.Tool, schema map[string]any) {
	properties := object(schema["properties"])
	for _, name := range sorted(properties) {
		at, s := "/"+sallyport.PointerToken(name), object(properties[name])
		declared := slices.ContainsFunc(t.Manifest.Fields, func(f sallyport.RiskField) bool { return f.Path == at || strings.HasPrefix(f.Path, at+"/") })
		types := typesOf(s)
		plain := len(types) > 0 && !slices.ContainsFunc(types, func(t string) bool { return t == "string" || t == "object" || t == "array" })
		if len(t.Manifest.Fields) > 0 && !declared && !plain && !has(s, "enum", "const", "format") {
			l.add("fields", at+" is not among them, so it is judged as if nothing were declared about the tool", "add it with the kind of what it says, or as inert if it has no effect")
		}
	}
}

func typesOf(schema map[string]any) (types []string) {
	switch t := schema["type"].(type) {
	case string:
		types = []string{t}
	case []any:
		for _, v := range t {
			if s, ok := v.(string); ok {
				types = append(types, s)
			}
		}
	}
	return types
}

func has(schema map[string]any, keys ...string) bool {
	return slices.ContainsFunc(keys, func(k string) bool { _, ok := schema[k]; return ok })
}

func object(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func sorted(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
